//! Whether a new communicator's calls go to the vendor's library. Every rank sees what all ranks said, so all decide alike.

use std::ffi::c_int;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};

use hetccl_runtime::gpu::version_text;

use super::config::Kept;
use crate::abi::{Code, CommHandle, Config, UniqueId};
use crate::init::Card;
use crate::log::{self, Level};
use crate::{Failure, Library, weights};

/// The setting: `0` never, `1` or an error.
const SETTING: &str = "HETCCL_DELEGATE";
/// Bytes of what a rank says of its library.
const WORDS_BYTES: usize = 4 + 128 + REASON_BYTES;
const REASON_BYTES: usize = 512;

/// What a rank's setting says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wish {
    /// Where it can be.
    IfPossible = 0,
    /// hetccl is to do everything.
    Never = 1,
    /// Anything else is an error.
    Always = 2,
    /// None of these.
    Unclear = 3,
}

impl Wish {
    pub(crate) fn own() -> Wish {
        match std::env::var(SETTING).as_deref() {
            Err(_) | Ok("" | "auto") => Wish::IfPossible,
            Ok("0") => Wish::Never,
            Ok("1") => Wish::Always,
            Ok(_) => Wish::Unclear,
        }
    }

    pub(crate) fn from_number(number: u8) -> Wish {
        match number {
            0 => Wish::IfPossible,
            1 => Wish::Never,
            2 => Wish::Always,
            _ => Wish::Unclear,
        }
    }
}

/// What a rank says of its library: a version and, from rank 0, the vendor's unique id; or why there is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Words {
    version: i32,
    id: [u8; 128],
    pub(super) reason: String,
}

impl Words {
    pub(super) fn own(library: Library, makes_id: bool) -> Words {
        let vendor = match super::load(library) {
            Ok(vendor) => vendor,
            Err(reason) => return Words::none(reason),
        };
        let mut words = Words { version: vendor.version(), id: [0; 128], reason: String::new() };
        if makes_id {
            match vendor.unique_id() {
                Ok(id) => words.id = id,
                Err(error) => return Words::none(&error.to_string()),
            }
        }
        words
    }

    /// There is no library, or it can't.
    pub(super) fn none(reason: &str) -> Words {
        Words { version: 0, id: [0; 128], reason: reason.to_owned() }
    }

    /// Nothing is wrong here.
    pub(super) fn able() -> Words {
        Words { version: 1, id: [0; 128], reason: String::new() }
    }

    pub(super) fn is_able(&self) -> bool {
        self.version != 0
    }

    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = self.version.to_le_bytes().to_vec();
        bytes.extend_from_slice(&self.id);
        bytes.extend(self.reason.bytes().take(REASON_BYTES));
        bytes.resize(WORDS_BYTES, 0);
        bytes
    }

    pub(super) fn from_bytes(bytes: &[u8]) -> Result<Words, Failure> {
        let bytes: &[u8; WORDS_BYTES] = bytes.try_into().map_err(|_| {
            Failure::new(
                Code::InternalError,
                "a rank speaks of its library in another version's words",
            )
        })?;
        let reason = String::from_utf8_lossy(&bytes[132..]);
        Ok(Words {
            version: i32::from_le_bytes(std::array::from_fn(|i| bytes[i])),
            id: std::array::from_fn(|i| bytes[4 + i]),
            reason: reason.trim_end_matches('\0').to_owned(),
        })
    }
}

/// For the fuzzers.
#[cfg(feature = "fuzz")]
pub(crate) fn read_words(bytes: &[u8]) {
    if let Ok(words) = Words::from_bytes(bytes) {
        assert_eq!(words.to_bytes().len(), WORDS_BYTES);
    }
}

/// Decides for the ranks with these cards, `rank` among them. `gather` gives everybody's bytes, by rank; it is called on
/// all of them or on none. The vendor's unique id, if the communicator is handed on.
///
/// # Errors
/// A setting that can't be, or that can't be followed; of `gather`.
pub(crate) fn agree(
    library: Library,
    rank: usize,
    cards: &[Card],
    gather: impl FnOnce(Vec<u8>) -> Result<Vec<Vec<u8>>, Failure>,
) -> Result<Option<UniqueId>, Failure> {
    if let Some(rank) = cards.iter().position(|card| card.wish == Wish::Unclear) {
        return Err(Failure::argument(format!(
            "{SETTING} of rank {rank} is neither 0 (never hand calls on), 1 (always) nor auto"
        )));
    }
    let outcome = match against(cards) {
        Some(reason) => Err(reason),
        None => {
            let all = gather(Words::own(library, rank == 0).to_bytes())?;
            let all = all.iter().map(|bytes| Words::from_bytes(bytes));
            let ranks: Vec<usize> = (0..cards.len()).collect();
            of_libraries(&all.collect::<Result<Vec<_>, _>>()?, &ranks)
        }
    };
    match outcome {
        Ok(bytes) => Ok(Some(UniqueId { bytes })),
        Err(reason) => {
            if let Some(rank) = cards.iter().position(|card| card.wish == Wish::Always) {
                return Err(Failure::usage(format!(
                    "{SETTING} of rank {rank} is 1, and calls can't be handed on to the vendor's library: {reason}"
                )));
            }
            log::line(Level::Info, &format!("rank {rank}: hetccl does the communicator: {reason}"));
            Ok(None)
        }
    }
}

/// What speaks against it, whatever the libraries are.
fn against(cards: &[Card]) -> Option<String> {
    if let Some(rank) = cards.iter().position(|card| card.wish == Wish::Never) {
        return Some(format!("{SETTING} of rank {rank} is 0"));
    }
    if let Some(rank) = cards.iter().position(|card| card.weight != weights::NONE) {
        return Some(format!(
            "rank {rank} has a HETCCL_RANK_WEIGHT, which the vendor's library does not know"
        ));
    }
    let first = cards.first()?;
    if let Some(rank) = cards.iter().position(|card| card.vendor != first.vendor) {
        return Some(format!("ranks 0 and {rank} have GPUs of different vendors"));
    }
    // The vendor's library takes ranks of different NCCL_HOSTIDs for those of different hosts, and runs, but slowly.
    let by_host = cards.iter().any(|card| card.wish == Wish::Always);
    let mut seen = std::collections::HashMap::new();
    for (rank, card) in cards.iter().enumerate() {
        let host = if by_host { card.host } else { first.host };
        if let Some(other) = seen.insert((card.device, host), rank) {
            return Some(format!("ranks {other} and {rank} share a GPU"));
        }
    }
    None
}

/// The vendor's unique id, or what speaks against it; `all` is what these ranks say.
pub(super) fn of_libraries(all: &[Words], ranks: &[usize]) -> Result<[u8; 128], String> {
    if let Some(place) = all.iter().position(|words| !words.is_able()) {
        return Err(format!("rank {}: {}", ranks[place], all[place].reason));
    }
    let first = all.first().ok_or("no ranks")?;
    if let Some(place) = all.iter().position(|words| words.version != first.version) {
        return Err(format!(
            "rank {} has version {} and rank {} {}",
            ranks[0],
            version_text(first.version),
            ranks[place],
            version_text(all[place].version)
        ));
    }
    Ok(first.id)
}

/// Makes a communicator of the vendor's library. The calling thread's device is the rank's. Ends soon when the
/// program has abandoned it.
///
/// # Errors
/// The vendor's.
pub(crate) fn join(
    library: Library,
    id: UniqueId,
    rank: usize,
    size: usize,
    config: Option<Kept>,
    abandoned: &AtomicBool,
) -> Result<NonNull<std::ffi::c_void>, Failure> {
    let wanted = || !abandoned.load(Ordering::Acquire);
    type InitRank = unsafe extern "C" fn(*mut CommHandle, c_int, UniqueId, c_int) -> c_int;
    type InitRankConfig =
        unsafe extern "C" fn(*mut CommHandle, c_int, UniqueId, c_int, *mut Config) -> c_int;
    type AsyncError = unsafe extern "C" fn(CommHandle, *mut c_int) -> c_int;
    type Abort = unsafe extern "C" fn(CommHandle) -> c_int;
    let vendor = super::load(library).map_err(Failure::usage)?;
    super::use_from_now_on(library);
    let mut comm: CommHandle = std::ptr::null_mut();
    let (rank_number, size_number) = (rank as c_int, size as c_int);
    let with_config =
        config.and_then(|config| Some((config, vendor.symbol(c"ncclCommInitRankConfig")?)));
    let mut code = if let Some((mut config, function)) = with_config {
        // SAFETY: the function has this type in every version.
        let function: InitRankConfig = unsafe { std::mem::transmute(function) };
        // SAFETY: room for the result, and a structure that was made with NCCL's header.
        unsafe { function(&mut comm, size_number, id, rank_number, config.as_mut_ptr()) }
    } else {
        let function =
            vendor.symbol(c"ncclCommInitRank").ok_or_else(|| super::no_function(library))?;
        // SAFETY: the function has this type in every version.
        let function: InitRank = unsafe { std::mem::transmute(function) };
        // SAFETY: room for the result.
        unsafe { function(&mut comm, size_number, id, rank_number) }
    };
    let asynchronous = vendor.symbol(c"ncclCommGetAsyncError");
    while let (7, Some(function)) = (code, asynchronous) {
        std::thread::sleep(std::time::Duration::from_micros(200));
        if !wanted() {
            break;
        }
        // SAFETY: the function has this type in every version.
        let function: AsyncError = unsafe { std::mem::transmute(function) };
        let mut state = code;
        // SAFETY: the vendor's communicator and room for the answer.
        let asked = unsafe { function(comm, &mut state) };
        code = if asked == Code::Success as c_int { state } else { asked };
    }
    if let Some(made) = NonNull::new(comm) {
        if code == Code::Success as c_int && wanted() {
            log::line(
                Level::Info,
                &format!(
                    "rank {rank} of {size}: calls go to {} ({})",
                    vendor.path().display(),
                    version_text(vendor.version())
                ),
            );
            return Ok(made);
        }
        if let Some(function) = vendor.symbol(c"ncclCommAbort").filter(|_| !wanted()) {
            // SAFETY: the function has this type in every version.
            let function: Abort = unsafe { std::mem::transmute(function) };
            // SAFETY: the vendor's communicator, which nobody else has.
            unsafe { function(made.as_ptr()) };
            return Err(Failure::usage("the communicator was aborted while it was made"));
        }
    }
    Err(Failure::new(
        Code::from_number(code),
        format!(
            "making the communicator in {}: {} ({code})",
            vendor.path().display(),
            vendor.text(code)
        ),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_survive_the_wire() {
        let words = Words { version: 22803, id: [7; 128], reason: "no such file".into() };
        assert_eq!(Words::from_bytes(&words.to_bytes()), Ok(words));
        assert!(Words::from_bytes(&[0; 3]).is_err());
    }

    #[test]
    fn ranks_of_one_gpu_are_handed_on_where_that_is_asked_for_and_their_hosts_have_names() {
        let card = |host, wish| {
            let mut card = Card::for_tests();
            (card.host, card.wish, card.weight) = (host, wish, weights::NONE);
            card
        };
        let shared = [card(1, Wish::IfPossible), card(2, Wish::IfPossible)];
        assert_eq!(against(&shared).unwrap(), "ranks 0 and 1 share a GPU");
        assert_eq!(against(&[card(1, Wish::Always), card(2, Wish::IfPossible)]), None);
        assert!(against(&[card(1, Wish::Always), card(1, Wish::Always)]).is_some());
    }

    #[test]
    fn libraries_that_differ_or_are_missing_are_named() {
        let with = |version: i32| Words { version, id: [1; 128], reason: String::new() };
        assert_eq!(of_libraries(&[with(22803), with(22803)], &[0, 1]), Ok([1; 128]));
        let differ = of_libraries(&[with(22803), with(23003)], &[0, 1]).unwrap_err();
        assert_eq!(differ, "rank 0 has version 2.28.3 and rank 1 2.30.3");
        let none = Words { reason: "not there".into(), ..with(0) };
        assert_eq!(of_libraries(&[with(22803), none], &[0, 1]).unwrap_err(), "rank 1: not there");
    }
}
