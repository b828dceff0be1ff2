//! Communicators whose ranks all use one device: rank 0 does the work of all.
//!
//! Processes that share a GPU take turns on it, and a turn costs more than most collectives. So each rank tells rank 0
//! where its buffers are, and rank 0 reaches all of them and does the whole collective with the fewest passes over memory:
//!
//! ```text
//! ranks 1, 2, 3   offer (IPC handles) -> 0
//! rank 0          copies and kernels over everybody's buffers
//! ranks 1, 2, 3   <- done, or "as usual", and then all run the schedule that they would have run
//! ```
//!
//! A rank whose buffers can't be reached (host memory, memory of a pool) says so in its offer, and all go on as usual.

mod asking;
mod offer;
mod plan;

use hetccl_core::{
    Address, Call, Handle, MessageTag, Posted, Rank, Reduction, Region, Transport, TransportError,
};
use hetccl_gpu::{Change, Error, Exported, Fold, Gpus, Lane, MOST_INPUTS, Order};

use crate::process::Request;
use crate::resident::{Resident, common_lane};
use crate::waiting::all_finished;
pub(crate) use asking::Asking;
use offer::{OFFER_BYTES, Offer};
use plan::{Buffers, Work};

/// The message numbers of offers and verdicts; schedules count from 0.
const OFFER: u16 = u16::MAX - 1;
const VERDICT: u16 = u16::MAX;

const DONE: u8 = 1;
const AS_USUAL: u8 = 2;
const FAILED: u8 = 3;

/// A collective as every rank describes it.
#[derive(Debug)]
pub(crate) struct Task<'a> {
    pub(crate) call: &'a Call,
    pub(crate) element_bytes: usize,
    pub(crate) reduction: Option<Reduction>,
    /// The sum is divided by the number of ranks.
    pub(crate) average: bool,
    pub(crate) input: Region,
    pub(crate) output: Region,
    /// The collective's number in messages.
    pub(crate) sequence: u16,
}

impl<'a> Task<'a> {
    /// The request as a task.
    pub(crate) fn of(request: &Request<'a>, sequence: u16) -> Task<'a> {
        Task {
            call: request.call,
            element_bytes: request.element_bytes,
            reduction: request.reduction,
            average: request.average,
            input: request.input,
            output: request.output,
            sequence,
        }
    }

    /// Whether ranks may ask rank 0 to do it; the same on all ranks.
    pub(crate) fn can_be_shared(&self) -> bool {
        let reduces_here = !matches!(self.reduction, Some(Reduction::External(_)));
        reduces_here && plan::knows(self.call)
    }

    /// A number for all that is equal on all ranks.
    pub(crate) fn kind(&self) -> u64 {
        use std::hash::{Hash, Hasher};
        let mut hasher = rustc_hash::FxHasher::default();
        (self.call.collective, self.call.root, self.call.count()).hash(&mut hasher);
        (self.element_bytes, self.reduction, self.average).hash(&mut hasher);
        hasher.finish()
    }

    /// What the sum is divided by.
    fn divisor(&self) -> Option<u64> {
        self.average.then(|| self.call.size() as u64)
    }

    fn tag(&self, step: u16) -> MessageTag {
        MessageTag { sequence: self.sequence, step }
    }
}

/// How far it has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    Pending,
    Done,
    /// Rank 0 can't do it: run the schedule.
    AsUsual,
}

/// One rank's part in a collective that rank 0 may do.
#[derive(Debug)]
pub(crate) struct Shared {
    phase: Phase,
    /// The lane of this rank's buffers.
    lane: Option<Lane>,
    /// This rank's offer (rank 0: everybody's).
    offers: Vec<[u8; OFFER_BYTES]>,
    verdict: Box<[u8; 1]>,
    waiting: Vec<Handle>,
}

#[derive(Debug)]
enum Phase {
    /// The program's own work on the buffers comes first.
    Before(Option<Handle>),
    /// Rank 0 waits for offers, the others for the verdict.
    Waiting,
    /// Rank 0's device works.
    Working(Handle),
    /// Rank 0's verdicts are on their way.
    Telling(u8),
}

impl Shared {
    /// Begins this rank's part.
    ///
    /// # Errors
    /// Of the driver or the wire.
    pub(crate) fn begin(
        task: &Task<'_>,
        inner: &mut dyn Transport,
        gpus: &mut Gpus,
    ) -> Result<Shared, TransportError> {
        let (lane, offer) = make_offer(task, gpus)?;
        let before = match lane {
            Some(lane) if offer.usable => gpus.after_application(lane)?,
            _ => None,
        };
        let leads = task.call.rank() == 0;
        let count = if leads { task.call.size() } else { 1 };
        let mut shared = Shared {
            phase: Phase::Before(before),
            lane,
            offers: vec![[0; OFFER_BYTES]; count],
            verdict: Box::new([0]),
            waiting: Vec::new(),
        };
        shared.offers[0] = offer.to_bytes();
        if leads {
            for rank in 1..task.call.size() {
                let into = Region::of_bytes_mut(&mut shared.offers[rank][..]);
                let posted = inner.recv(Rank::from(rank), task.tag(OFFER), into)?;
                shared.note(posted);
            }
        }
        Ok(shared)
    }

    /// Does what can be done now.
    ///
    /// # Errors
    /// Of the driver or the wire; the operation has failed on this rank.
    pub(crate) fn advance(
        &mut self,
        task: &Task<'_>,
        inner: &mut dyn Transport,
        gpus: &mut Gpus,
    ) -> Result<Progress, TransportError> {
        loop {
            match self.phase {
                Phase::Before(Some(before)) => {
                    if !gpus.test(before)? {
                        return Ok(Progress::Pending);
                    }
                    self.phase = Phase::Before(None);
                }
                Phase::Before(None) => {
                    if task.call.rank() != 0 {
                        let offer = Region::of_bytes_mut(&mut self.offers[0][..]);
                        let posted = inner.send(Rank(0), task.tag(OFFER), offer)?;
                        self.note(posted);
                        let verdict = Region::of_bytes_mut(&mut self.verdict[..]);
                        let posted = inner.recv(Rank(0), task.tag(VERDICT), verdict)?;
                        self.note(posted);
                    }
                    self.phase = Phase::Waiting;
                }
                Phase::Waiting => {
                    if !all_finished(&mut self.waiting, |handle| inner.test(handle))? {
                        return Ok(Progress::Pending);
                    }
                    if task.call.rank() != 0 {
                        return self.obey();
                    }
                    self.decide(task, inner, gpus)?;
                }
                Phase::Working(work) => {
                    match gpus.test(work) {
                        Ok(false) => return Ok(Progress::Pending),
                        Ok(true) => self.tell(task, inner, DONE)?,
                        Err(error) => {
                            self.tell(task, inner, FAILED)?;
                            return Err(error.into());
                        }
                    };
                }
                Phase::Telling(verdict) => {
                    if !all_finished(&mut self.waiting, |handle| inner.test(handle))? {
                        return Ok(Progress::Pending);
                    }
                    return Ok(if verdict == DONE { Progress::Done } else { Progress::AsUsual });
                }
            }
        }
    }

    /// Rank 0 has all offers.
    fn decide(
        &mut self,
        task: &Task<'_>,
        inner: &mut dyn Transport,
        gpus: &mut Gpus,
    ) -> Result<(), TransportError> {
        match self.work(task, gpus) {
            Ok(Some(handle)) => self.phase = Phase::Working(handle),
            Ok(None) => self.tell(task, inner, AS_USUAL)?,
            Err(error) => {
                self.tell(task, inner, FAILED)?;
                return Err(error.into());
            }
        }
        Ok(())
    }

    /// Queues the work of all ranks; `None` where it can't be done here.
    fn work(&mut self, task: &Task<'_>, gpus: &mut Gpus) -> Result<Option<Handle>, Error> {
        let offers: Vec<Offer> =
            std::hint::black_box(&self.offers).iter().map(Offer::from_bytes).collect();
        let Some(lane) = self.lane else { return Ok(None) };
        if offers.iter().any(|offer| !offer.usable || offer.digest != offers[0].digest) {
            return Ok(None);
        }
        if !Resident::can_reduce(gpus, lane, task.reduction) || !can_divide(gpus, lane, task) {
            return Ok(None);
        }
        // The kernels take so many inputs at a time, and the result of the first pass must not replace a later input.
        if task.call.size() > MOST_INPUTS && offers.iter().any(|offer| offer.in_place) {
            return Ok(None);
        }
        let mut ranks =
            vec![Buffers { input: task.input, output: task.output, in_place: task.call.in_place }];
        for offer in &offers[1..] {
            let (Some(input), Some(output)) =
                (reach(gpus, lane, task, offer.input), reach(gpus, lane, task, offer.output))
            else {
                return Ok(None);
            };
            ranks.push(Buffers { input, output, in_place: offer.in_place });
        }
        for work in plan::plan(task.call, &ranks, task.element_bytes) {
            queue(gpus, lane, task, &work)?;
        }
        gpus.mark(lane, Order::Own).map(Some)
    }

    fn tell(
        &mut self,
        task: &Task<'_>,
        inner: &mut dyn Transport,
        verdict: u8,
    ) -> Result<(), TransportError> {
        self.verdict[0] = verdict;
        self.phase = Phase::Telling(verdict);
        for rank in 1..task.call.size() {
            let word = Region::of_bytes_mut(&mut self.verdict[..]);
            let posted = inner.send(Rank::from(rank), task.tag(VERDICT), word)?;
            self.note(posted);
        }
        Ok(())
    }

    fn obey(&self) -> Result<Progress, TransportError> {
        match std::hint::black_box(&self.verdict)[0] {
            DONE => Ok(Progress::Done),
            AS_USUAL => Ok(Progress::AsUsual),
            _ => Err(TransportError::Failed {
                operation: "collective on a shared device",
                native_code: 0,
                reason: "rank 0, which does the work of all, reports a failure of the device"
                    .into(),
            }),
        }
    }

    fn note(&mut self, posted: Posted) {
        if let Posted::Pending(handle) = posted {
            self.waiting.push(handle);
        }
    }

    /// Cancels what is under way.
    pub(crate) fn give_up(mut self, inner: &mut dyn Transport, gpus: &mut Gpus) {
        for handle in self.waiting.drain(..) {
            inner.cancel(handle);
        }
        if let Phase::Before(Some(work)) | Phase::Working(work) = self.phase {
            let _ = gpus.finish(work);
        }
    }
}

/// This rank's offer, and the lane of its buffers.
fn make_offer(task: &Task<'_>, gpus: &mut Gpus) -> Result<(Option<Lane>, Offer), Error> {
    let mut offer = Offer { digest: task.kind(), in_place: task.call.in_place, ..Offer::default() };
    let Some(lane) = common_lane(gpus, [task.input, task.output])? else {
        return Ok((None, offer));
    };
    let mut usable = true;
    let mut export = |region: Region| -> Result<Option<Exported>, Error> {
        if region.len_bytes == 0 {
            return Ok(None);
        }
        let exported = gpus.export(region)?;
        usable &= exported.is_some();
        Ok(exported)
    };
    offer.input = export(task.input)?;
    offer.output = export(task.output)?;
    offer.usable = usable;
    Ok((Some(lane), offer))
}

/// Whether the device can divide the sum, where that is asked for.
fn can_divide(gpus: &mut Gpus, lane: Lane, task: &Task<'_>) -> bool {
    match (task.divisor(), task.reduction) {
        (None, _) => true,
        (Some(by), Some(Reduction::Predefined(_, datatype))) => {
            gpus.can_map(lane, Change::Divide(by), datatype.into())
        }
        (Some(_), _) => false,
    }
}

/// Another rank's buffer here. An absent one is empty; `None`: it can't be reached.
fn reach(
    gpus: &mut Gpus,
    lane: Lane,
    task: &Task<'_>,
    exported: Option<Exported>,
) -> Option<Region> {
    let Some(exported) = exported else { return Some(Region::default()) };
    let address = Address(gpus.import(lane, &exported)?);
    // A buffer holds at most a block for each rank; plans stay within what the collective defines.
    let most = task.call.count() * task.element_bytes * task.call.size();
    let len_bytes = most.min((exported.len_bytes - exported.offset) as usize);
    Some(Region { address, len_bytes, memory: exported.vendor.memory() })
}

fn queue(gpus: &mut Gpus, lane: Lane, task: &Task<'_>, work: &Work) -> Result<(), Error> {
    match work {
        Work::Copy { from, into } => gpus.queue_copy(lane, Order::Own, *from, *into),
        Work::Reduce { inputs, into } => {
            let Some(Reduction::Predefined(op, datatype)) = task.reduction else { return Ok(()) };
            let count = into.len_bytes / task.element_bytes;
            let inputs: Vec<usize> = inputs.iter().map(|input| input.address.0).collect();
            let fold = Fold { op, datatype, divisor: task.divisor() };
            gpus.queue_reduce(lane, fold, &inputs, into.address.0, count)
        }
    }
}

/// For the fuzzers: an offer that is read is written again as what it was taken for.
#[cfg(feature = "fuzz")]
pub(crate) fn read_offer(bytes: &[u8]) {
    if let Some(bytes) = bytes.first_chunk() {
        let offer = Offer::from_bytes(bytes);
        assert_eq!(Offer::from_bytes(&offer.to_bytes()), offer);
    }
}
