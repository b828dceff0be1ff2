//! Vendors' libraries inside a mixed communicator: what a collective does among the ranks of one vendor is a call of that vendor's.
//!
//! Whether a vendor's library can follows from what all ranks say, in words that all see, so all decide alike: the ranks' cards, then
//! each rank's library and the group's unique id, then whether its communicator could be made.

use hetccl_core::topology;
use hetccl_runtime::gpu::{CclComm, Context, Vendor};
use hetccl_runtime::{GroupLibrary, GroupLibraryChoice, HierarchyChoice};

use super::agree::{Words, of_libraries};
use crate::init::{self, Card};
use crate::log::{self, Level};
use crate::{Failure, Library};

/// What has been agreed.
#[derive(Debug, Default)]
pub(crate) struct Inside {
    /// The vendors whose libraries work inside their groups.
    pub(crate) vendors: Vec<topology::Vendor>,
    /// This rank's part.
    pub(crate) own: Option<GroupLibrary>,
}

/// A vendor's ranks.
struct Candidate {
    vendor: Vendor,
    ranks: Vec<usize>,
}

/// Gives everybody's bytes, by rank.
pub(crate) type Gather<'a> = dyn Fn(Vec<u8>) -> Result<Vec<Vec<u8>>, Failure> + 'a;

/// Decides for the ranks with these cards, `rank` among them, and makes the groups' communicators. `gather` is called on all ranks or
/// on none. The calling thread's device is the rank's.
///
/// # Errors
/// Of `gather`; words of another version.
pub(crate) fn agree(
    library: Library,
    context: Context,
    rank: usize,
    cards: &[Card],
    gather: &Gather<'_>,
) -> Result<Inside, Failure> {
    let (mut candidates, reasons) = candidates(cards);
    tell(rank, &reasons);
    if candidates.is_empty() {
        return Ok(Inside::default());
    }
    let place = |candidates: &[Candidate]| {
        let own = candidates.iter().find(|candidate| candidate.ranks.contains(&rank))?;
        own.ranks.iter().position(|&member| member == rank).map(|at| (at, own.ranks.len()))
    };
    let words = match place(&candidates) {
        Some((at, _)) => Words::own(library, at == 0),
        None => Words::none("not asked"),
    };
    let all = gather(words.to_bytes())?;
    let all = all.iter().map(|bytes| Words::from_bytes(bytes)).collect::<Result<Vec<_>, _>>()?;
    let ids = keep(rank, &mut candidates, |candidate| {
        let words: Vec<Words> = candidate.ranks.iter().map(|&rank| all[rank].clone()).collect();
        of_libraries(&words, &candidate.ranks)
    });
    if candidates.is_empty() {
        return Ok(Inside::default());
    }
    let own = candidates.iter().position(|candidate| candidate.ranks.contains(&rank));
    let made = own.zip(place(&candidates)).map(|(index, place)| {
        let vendor = super::load(library).map_err(str::to_owned)?;
        let comm = CclComm::join(vendor, ids[index], place, context);
        comm.map(|comm| GroupLibrary::new(comm, candidates[index].vendor))
            .map_err(|error| error.to_string())
    });
    let (made, outcome) = match made {
        Some(Err(reason)) => (None, Words::none(&reason)),
        Some(Ok(made)) => (Some(made), Words::able()),
        None => (None, Words::able()),
    };
    let all = gather(outcome.to_bytes())?;
    let all = all.iter().map(|bytes| Words::from_bytes(bytes)).collect::<Result<Vec<_>, _>>()?;
    keep(rank, &mut candidates, |candidate| {
        let failed = candidate.ranks.iter().find(|&&rank| !all[rank].is_able());
        failed.map_or(Ok(()), |&rank| Err(format!("rank {rank}: {}", all[rank].reason)))
    });
    let own = made.filter(|_| place(&candidates).is_some());
    if let (Some(own), Some((_, size))) = (&own, place(&candidates)) {
        let text = format!("rank {rank}: {} works inside the group of {size} ranks", own.name());
        log::line(Level::Info, &text);
    }
    let vendors = candidates.iter().map(|candidate| candidate.vendor.maker()).collect();
    Ok(Inside { vendors, own })
}

/// Keeps the candidates for which `judge` has something to say, and that; tells the reason for others.
fn keep<T>(
    rank: usize,
    candidates: &mut Vec<Candidate>,
    judge: impl Fn(&Candidate) -> Result<T, String>,
) -> Vec<T> {
    let mut kept = Vec::new();
    let mut reasons = Vec::new();
    candidates.retain(|candidate| match judge(candidate) {
        Ok(something) => {
            kept.push(something);
            true
        }
        Err(reason) => {
            reasons.push(format!("{}: {reason}", candidate.vendor.name()));
            false
        }
    });
    tell(rank, &reasons);
    kept
}

fn tell(rank: usize, reasons: &[String]) {
    for reason in reasons {
        let text = format!("rank {rank}: hetccl does what is done inside a vendor group: {reason}");
        log::line(Level::Info, &text);
    }
}

/// The vendor groups whose library could work inside them, and why others' could not.
fn candidates(cards: &[Card]) -> (Vec<Candidate>, Vec<String>) {
    let mut candidates: Vec<Candidate> = Vec::new();
    for (rank, card) in cards.iter().enumerate() {
        let Some(vendor) = Vendor::from_number(u64::from(card.vendor)) else { continue };
        match candidates.iter_mut().find(|candidate| candidate.vendor == vendor) {
            Some(candidate) => candidate.ranks.push(rank),
            None => candidates.push(Candidate { vendor, ranks: vec![rank] }),
        }
    }
    let off = |card: &Card| {
        card.group_library == GroupLibraryChoice::Off as u8
            || card.hierarchy == HierarchyChoice::Off as u8
    };
    if candidates.len() < 2 || cards.iter().any(off) {
        return (Vec::new(), Vec::new());
    }
    let mut reasons = Vec::new();
    candidates.retain(|candidate| {
        let reason = against(cards, candidate);
        let able = reason.is_none() && candidate.ranks.len() > 1;
        reasons.extend(reason.map(|reason| format!("{}: {reason}", candidate.vendor.name())));
        able
    });
    (candidates, reasons)
}

/// What speaks against a vendor's library, whatever it is. A library tells hosts apart by NCCL_HOSTID.
fn against(cards: &[Card], candidate: &Candidate) -> Option<String> {
    let mut seen = std::collections::HashMap::new();
    for &rank in &candidate.ranks {
        if let Some(other) = seen.insert((cards[rank].device, cards[rank].host), rank) {
            return Some(format!("ranks {other} and {rank} share a GPU"));
        }
    }
    None
}

/// The setting that says whether vendors' libraries work inside their groups.
pub(crate) const SETTING: &str = "HETCCL_GROUP_LIBRARY";

/// What it says.
///
/// # Errors
/// A word that it does not know.
pub(crate) fn setting() -> Result<GroupLibraryChoice, Failure> {
    let number = init::word(SETTING, GroupLibraryChoice::NAMES)?;
    Ok(GroupLibraryChoice::ALL[number])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn card(vendor: Vendor, device: u64, host: u64) -> Card {
        let mut card = Card::for_tests();
        (card.vendor, card.device, card.host) = (vendor as u8, device, host);
        card.hierarchy = HierarchyChoice::Auto as u8;
        card
    }

    #[test]
    fn groups_of_ranks_with_a_gpu_each_are_candidates() {
        let mixed = |devices: [u64; 3], hosts: [u64; 3]| -> Vec<Card> {
            let rocm = card(Vendor::Rocm, 9, 1);
            devices
                .iter()
                .zip(hosts)
                .map(|(&d, h)| card(Vendor::Cuda, d, h))
                .chain([rocm])
                .collect()
        };
        let (found, _) = candidates(&mixed([1, 2, 3], [1, 1, 1]));
        assert_eq!(found.len(), 1, "a group of one rank has no use for its library");
        assert_eq!((found[0].vendor, &found[0].ranks[..]), (Vendor::Cuda, &[0, 1, 2][..]));
        let (found, reasons) = candidates(&mixed([1, 2, 1], [1, 1, 1]));
        assert!(
            found.is_empty() && reasons[0].contains("ranks 0 and 2 share a GPU"),
            "{reasons:?}"
        );
        let (found, _) = candidates(&mixed([1, 1, 1], [1, 2, 3]));
        assert_eq!(found.len(), 1, "NCCL_HOSTID tells them apart");
        let mut cards = mixed([1, 2, 3], [1, 1, 1]);
        cards[1].group_library = GroupLibraryChoice::Off as u8;
        assert!(candidates(&cards).0.is_empty());
        assert!(candidates(&cards[..3]).0.is_empty(), "one vendor");
    }
}
