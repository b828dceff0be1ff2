//! Vendors' libraries inside a mixed communicator: what a collective does among the ranks of one vendor is a call of that vendor's.
//!
//! Whether a vendor's library can follows from what all ranks say, in words that all see, so all decide alike: the ranks' cards, then
//! each rank's library and the group's unique id, then whether its communicator could be made.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use hetccl_core::{Datatype, GroupCall, GroupCollective, Reduction, ReductionOp, topology};
use hetccl_runtime::gpu::{CclComm, Context, Driver, Gpus, Lane, Stream, Vendor};
use hetccl_runtime::{GroupLibrary, GroupLibraryChoice, HierarchyChoice};

use super::agree::{Words, of_libraries};
use crate::init::{self, Card};
use crate::log::{self, Level};
use crate::meeting::Meeting;
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

/// How long a rank waits for the library before it says that it can't be had: another rank may have failed there.
const PATIENCE: Duration = Duration::from_secs(60);

/// How often a rank that waits for it looks after the others.
const LOOK: Duration = Duration::from_millis(5);

/// Bytes of the block with which each of the library's collectives is called once, for each rank of the group.
const WARM_BYTES: usize = 64;

/// The ranks of a new communicator, as one of them sees it.
pub(crate) struct Ranks<'a> {
    pub(crate) library: Library,
    pub(crate) rank: usize,
    /// Of all, by rank.
    pub(crate) cards: &'a [Card],
    pub(crate) meeting: &'a Meeting,
    /// The program does not want the communicator any more.
    pub(crate) abandoned: &'a AtomicBool,
}

impl Ranks<'_> {
    /// Decides, and makes the groups' communicators, whose work will go to a lane. All ranks call it.
    ///
    /// # Errors
    /// A rank has gone; words of another version.
    pub(crate) fn agree(&self, gpus: &mut Gpus, lane: Lane) -> Result<Inside, Failure> {
        let (mut candidates, reasons) = candidates(self.cards);
        self.tell(&reasons);
        if candidates.is_empty() {
            return Ok(Inside::default());
        }
        let words = match self.place(&candidates) {
            Some((at, _)) => Words::own(self.library, at == 0),
            None => Words::none("not asked"),
        };
        let all = self.gather(&words)?;
        let ids = self.keep(&mut candidates, |candidate| {
            let words: Vec<Words> = candidate.ranks.iter().map(|&rank| all[rank].clone()).collect();
            of_libraries(&words, &candidate.ranks)
        });
        if candidates.is_empty() {
            return Ok(Inside::default());
        }
        let own = candidates.iter().position(|candidate| candidate.ranks.contains(&self.rank));
        let made = match own.zip(self.place(&candidates)) {
            Some((index, place)) => Some(self.join(ids[index], place, gpus, lane)?),
            None => None,
        };
        let (made, outcome) = match made {
            Some(Err(reason)) => (None, Words::none(&reason)),
            Some(Ok(made)) => (Some(made), Words::able()),
            None => (None, Words::able()),
        };
        let all = self.gather(&outcome)?;
        self.keep(&mut candidates, |candidate| {
            let failed = candidate.ranks.iter().find(|&&rank| !all[rank].is_able());
            failed.map_or(Ok(()), |&rank| Err(format!("rank {rank}: {}", all[rank].reason)))
        });
        let own = match (made, self.place(&candidates)) {
            (Some(comm), Some((_, size))) => {
                let own = GroupLibrary::new(comm, lane);
                let (rank, name) = (self.rank, own.name());
                let text = format!("rank {rank}: {name} works inside the group of {size} ranks");
                log::line(Level::Info, &text);
                Some(own)
            }
            (Some(comm), None) => {
                comm.give_up();
                None
            }
            (None, _) => None,
        };
        let vendors = candidates.iter().map(|candidate| candidate.vendor.maker()).collect();
        Ok(Inside { vendors, own })
    }

    /// This rank's place in its group, and the group's size.
    fn place(&self, candidates: &[Candidate]) -> Option<(usize, usize)> {
        let own = candidates.iter().find(|candidate| candidate.ranks.contains(&self.rank))?;
        own.ranks.iter().position(|&member| member == self.rank).map(|at| (at, own.ranks.len()))
    }

    fn gather(&self, own: &Words) -> Result<Vec<Words>, Failure> {
        let all = self.meeting.gather(own.to_bytes())?;
        all.iter().map(|bytes| Words::from_bytes(bytes)).collect()
    }

    /// This rank's communicator in its vendor's library, or why there is none. It is made by a thread of its own, which may wait for
    /// a rank that does not come.
    ///
    /// # Errors
    /// A rank has gone, or the program does not want to wait any more.
    fn join(
        &self,
        id: [u8; 128],
        (at, size): (usize, usize),
        gpus: &mut Gpus,
        lane: Lane,
    ) -> Result<Result<CclComm, String>, Failure> {
        let library = self.library;
        let context = gpus.context(lane);
        let block = gpus.take_device(lane, 2 * size * WARM_BYTES)?;
        let stream = gpus.library_stream(lane)?;
        let memory = block.whole().address.0;
        let (done, waiting) = mpsc::channel();
        let make = move || -> Result<CclComm, String> {
            let vendor = super::load(library).map_err(str::to_owned)?;
            let driver = init::vendor(library).open().map_err(|error| error.to_string())?;
            driver.adopt(context).map_err(|error| error.to_string())?;
            let comm = CclComm::join(vendor, id, (at, size)).map_err(|error| error.to_string())?;
            warm(&comm, &*driver, (context, stream), memory, size)?;
            Ok(comm)
        };
        std::thread::Builder::new()
            .name("hetccl-inside".to_owned())
            .spawn(move || {
                if let Err(mpsc::SendError(Ok(comm))) = done.send(make()) {
                    comm.give_up();
                }
            })
            .map_err(|error| Failure::system("starting a thread", &error))?;
        let begun = Instant::now();
        loop {
            match waiting.recv_timeout(LOOK) {
                Ok(made) => {
                    if made.is_ok() {
                        gpus.put(block);
                    }
                    return Ok(made);
                }
                Err(mpsc::RecvTimeoutError::Disconnected) => {
                    return Ok(Err("the thread that called the library has ended".to_owned()));
                }
                Err(mpsc::RecvTimeoutError::Timeout) => {}
            }
            if let Some(failure) = self.meeting.failure() {
                return Err(failure);
            }
            if self.abandoned.load(Ordering::Acquire) {
                return Err(Failure::usage("the communicator was aborted while it was made"));
            }
            if begun.elapsed() > PATIENCE {
                return Ok(Err(format!("its library has not answered for {PATIENCE:?}")));
            }
        }
    }

    /// Keeps the candidates for which `judge` has something to say, and that; tells the reason for others.
    fn keep<T>(
        &self,
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
        self.tell(&reasons);
        kept
    }

    fn tell(&self, reasons: &[String]) {
        for reason in reasons {
            let rank = self.rank;
            let text =
                format!("rank {rank}: hetccl does what is done inside a vendor group: {reason}");
            log::line(Level::Info, &text);
        }
    }
}

/// Calls each collective once that steps may be, and waits for their end: what the library loads and takes at the first call would
/// wait for streams of the program that wait for hetccl.
fn warm(
    comm: &CclComm,
    driver: &dyn Driver,
    (context, stream): (Context, Stream),
    memory: usize,
    size: usize,
) -> Result<(), String> {
    let sum = Reduction::Predefined(ReductionOp::Sum, Datatype::Float32);
    let (from, into) = (memory, memory + size * WARM_BYTES);
    for (collective, reduction, count) in [
        (GroupCollective::ReduceScatter, Some(sum), WARM_BYTES / 4),
        (GroupCollective::Reduce, Some(sum), WARM_BYTES / 4),
        (GroupCollective::Allgather, None, WARM_BYTES),
        (GroupCollective::Bcast, None, WARM_BYTES),
    ] {
        let call = GroupCall { collective, root: 0, reduction };
        comm.queue(stream, call, from, into, count).map_err(|error| error.to_string())?;
    }
    let text = |error: hetccl_runtime::gpu::Error| error.to_string();
    let event = driver.event(context).map_err(text)?;
    driver.record(context, event, stream).map_err(text)?;
    let begun = Instant::now();
    while !driver.finished(context, event).map_err(text)? {
        comm.check().map_err(|error| error.to_string())?;
        if begun.elapsed() > PATIENCE {
            return Err(format!("its first collectives have not ended for {PATIENCE:?}"));
        }
        std::thread::sleep(Duration::from_micros(20));
    }
    for _ in 0..4 {
        comm.ended();
    }
    Ok(())
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
    init::word_of(SETTING, GroupLibraryChoice::NAMES, GroupLibraryChoice::ALL)
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
