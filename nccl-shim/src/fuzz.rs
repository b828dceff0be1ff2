//! For the fuzzers: what other ranks say of themselves, and a user's file.

use crate::init::Card;

/// Reads bytes as a rank's card; one that is taken is written again as it was, its unused bytes aside.
pub fn cards(bytes: &[u8]) {
    if let Ok(card) = Card::from_bytes(bytes) {
        assert_eq!(Card::from_bytes(&card.to_bytes()), Ok(card));
    }
    crate::delegate::read_words(bytes);
}

/// Reads text as NCCL's configuration file.
pub fn configuration(text: &str) {
    let settings = crate::settings::parse(text);
    assert!(settings.keys().all(|name| !name.contains(['=', '#', '\n'])));
}
