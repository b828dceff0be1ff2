//! Collectives through memory that the ranks of a communicator share.
//!
//! Whether a communicator has a lane is settled at its first blocking collective, which all ranks call: rank 0 describes a
//! segment (one of an earlier communicator of the same ranks, or a new one), everybody opens it, and everybody hears whether
//! all could. Ranks of other nodes can't, so a communicator that reaches several nodes has none. From then on every blocking
//! collective goes through the lane, without the engine and its lock, and nonblocking and persistent ones made after that
//! through a [`Flow`] under the lock.

use std::cell::UnsafeCell;
use std::os::raw::c_int;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};

use hetccl_core::{Call, Collective, Group, Layout as Blocks, Region, Root};
use hetccl_mca::{Request as MpiRequest, progress, sys};
use hetccl_runtime::shared::{
    Descriptor, Flow, LaneError, Lanes, Layout, MAX_RANKS, Members, Segment, SegmentError,
    SegmentKind, Waiter, blocking, polled,
};
use hetccl_runtime::watch::{self, CallWord};
use hetccl_runtime::{Mode, Request, SharedMemory};
use once_cell::sync::Lazy;

use crate::execute;
use crate::module::ModuleState;
use crate::prepared::Prepared;
use crate::quick::Quick;
use crate::reduction::OpenMpiReducer;
use crate::state::{Engine, Plugin, Verbosity};

/// Where files are made that only need a memory file system.
const FOLDER: &str = "/dev/shm";

/// A communicator's share in shared memory.
#[derive(Default)]
pub(crate) struct Share {
    decided: AtomicBool,
    /// Owned; null where there is none.
    lane: AtomicPtr<Quick>,
    /// The same where calls may take the short way: no algorithm is demanded, and nobody wants to hear of each call.
    quick: AtomicPtr<Quick>,
    /// The largest element that polled reductions take; 0 where there are no lanes.
    most_polled_element_bytes: AtomicUsize,
    polled: UnsafeCell<Polled>,
}

/// A communicator's nonblocking and persistent collectives in shared memory.
#[derive(Default)]
pub(crate) struct Polled {
    flow: Option<Flow<MpiRequest>>,
    /// Whether the engine knows that there is something to poll.
    listed: bool,
}

// SAFETY: `polled` is reached only with the engine's lock held.
unsafe impl Sync for Share {}

impl Share {
    /// The lane, once there is one.
    ///
    /// # Safety
    /// The caller is in a blocking collective on the communicator, which MPI lets only one thread be at a time, and lets go of
    /// the lane before it returns.
    #[inline]
    #[allow(clippy::mut_from_ref)]
    pub(crate) unsafe fn lane(&self) -> Option<&mut blocking::Lane> {
        // SAFETY: set in `decide` from a box that only `take` takes back; the caller's promise.
        unsafe { self.lane.load(Ordering::Acquire).as_mut() }.map(|quick| &mut quick.lane)
    }

    /// The lane, where calls may take the short way.
    ///
    /// # Safety
    /// As for [`lane`](Share::lane).
    #[inline]
    #[allow(clippy::mut_from_ref)]
    pub(crate) unsafe fn quick(&self) -> Option<&mut Quick> {
        // SAFETY: as in `lane`.
        unsafe { self.quick.load(Ordering::Acquire).as_mut() }
    }

    /// What is polled; the engine shows that the caller holds the lock.
    #[allow(clippy::mut_from_ref)]
    fn polled(&self, _engine: &Engine) -> &mut Polled {
        // SAFETY: the lock is held, and every caller uses the result before it calls again.
        unsafe { &mut *self.polled.get() }
    }

    fn set(&self, engine: &Engine, lanes: Option<Lanes>, quickly: bool, compare: bool) {
        if let Some(Lanes { blocking, polled }) = lanes {
            let most = polled.iter().map(polled::Lane::most_element_bytes).min().unwrap_or(0);
            self.polled(engine).flow = Some(Flow::new(polled, &OpenMpiReducer, compare));
            self.most_polled_element_bytes.store(most, Ordering::Release);
            let raw = Box::into_raw(Box::new(Quick::new(blocking)));
            self.lane.store(raw, Ordering::Release);
            if quickly {
                self.quick.store(raw, Ordering::Release);
            }
        }
        self.decided.store(true, Ordering::Release);
    }

    /// The blocking lane; nobody finds it here any more.
    /// Calls take the usual way from now on, which refuses them.
    fn close(&self) {
        self.quick.store(std::ptr::null_mut(), Ordering::Release);
    }

    fn take(&self) -> Option<Box<Quick>> {
        self.quick.store(std::ptr::null_mut(), Ordering::Release);
        let lane = self.lane.swap(std::ptr::null_mut(), Ordering::AcqRel);
        // SAFETY: made by `into_raw` in `set`, and nobody else can have taken it.
        (!lane.is_null()).then(|| unsafe { Box::from_raw(lane) })
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        drop(self.take());
    }
}

// ---- nonblocking and persistent calls ----

/// Whether a call that is to be polled goes through shared memory; the same on all ranks, which make such calls in the same
/// order among all their collectives on the communicator.
pub(crate) fn takes_polled(plugin: &Plugin, state: &ModuleState, prepared: &Prepared) -> bool {
    let most = state.share.most_polled_element_bytes.load(Ordering::Acquire);
    if most == 0 || prepared.mode() != Mode::Nonblocking {
        return false;
    }
    let request = prepared.request(Mode::Nonblocking);
    !plugin.settings.choices.is_forced(request.call.collective)
        && (!request.call.collective.reduces() || request.element_bytes <= most)
}

/// What has become of collectives that were polled.
pub(crate) type Ended = Vec<(MpiRequest, Result<(), LaneError>)>;

/// Starts a collective and looks up to `looks` times at whether it is over.
///
/// # Safety
/// As for [`execute::nonblocking`], and what `request` refers to lives until the collective is over.
pub(crate) unsafe fn start_polled(
    engine: &mut Engine,
    state: &Arc<ModuleState>,
    request: Request<'static>,
    token: MpiRequest,
    looks: usize,
    ended: &mut Ended,
) {
    let polled = state.share.polled(engine);
    let Some(flow) = &mut polled.flow else { return };
    // SAFETY: the caller's promise; nobody in the job has a GPU, so all memory is the host's.
    unsafe { flow.start(request, token) };
    for _ in 0..looks {
        flow.poll(ended);
        if flow.is_idle() {
            break;
        }
        std::hint::spin_loop();
    }
    if !flow.is_idle() && !std::mem::replace(&mut polled.listed, true) {
        engine.flowing.push(Arc::clone(state));
    }
}

/// Goes on with the collectives of all communicators.
pub(crate) fn poll_all(engine: &mut Engine, ended: &mut Ended) {
    let mut flowing = std::mem::take(&mut engine.flowing);
    flowing.retain(|state| {
        let polled = state.share.polled(engine);
        let Some(flow) = &mut polled.flow else { return false };
        flow.poll(ended);
        polled.listed = !flow.is_idle();
        polled.listed
    });
    engine.flowing = flowing;
}

/// Runs a prepared call through the communicator's lane; `None` where it has none or the call is not for it.
///
/// # Safety
/// As for [`execute::blocking`].
pub(crate) unsafe fn run(
    plugin: &Plugin,
    state: &ModuleState,
    prepared: &Prepared,
) -> Option<Result<(), c_int>> {
    let request = prepared.request(Mode::Blocking);
    if plugin.settings.is_demanded(request.call.collective) {
        return None;
    }
    if !state.share.decided.load(Ordering::Acquire)
        && let Err(error) = decide(plugin, state)
    {
        return Some(Err(crate::status::report(&error)));
    }
    // SAFETY: the caller's promise.
    let lane = unsafe { state.share.lane() }?;
    if !lane.takes(&request) {
        return None;
    }
    if plugin.settings.check_calls != 0 {
        lane.next_is(CallWord::of(request.call, request.reduction));
    }
    tell(plugin, state, &request);
    // SAFETY: the caller's promise; without GPUs in the job all memory is the host's.
    Some(
        unsafe { lane.run(&request, &OpenMpiReducer) }
            .map_err(|error| failed(state, &request, &error)),
    )
}

/// The class of a nonblocking or persistent collective that failed, after telling the user.
#[cold]
pub(crate) fn failed_polled(
    state: &ModuleState,
    request: &Request<'_>,
    ticket: Option<watch::Ticket>,
    error: &LaneError,
) -> c_int {
    tell_failure(state, request.call.collective, ("nonblocking ", ticket), error)
}

/// The oldest nonblocking or persistent collective under way on each lane.
pub(crate) fn oldest_polled<'a>(
    engine: &Engine,
    state: &'a ModuleState,
) -> impl Iterator<Item = MpiRequest> + 'a {
    state.share.polled(engine).flow.iter().flat_map(Flow::oldest).copied()
}

/// Takes everything that is polled on a communicator out of the engine, and ends it with `trouble`.
pub(crate) fn give_up_polled(
    engine: &mut Engine,
    state: &Arc<ModuleState>,
    trouble: watch::Trouble,
    ended: &mut Ended,
) {
    let polled = state.share.polled(engine);
    polled.listed = false;
    let given_up = polled.flow.take().map(Flow::give_up).unwrap_or_default();
    ended.extend(given_up.into_iter().map(|token| (token, Err(LaneError::Trouble(trouble)))));
    engine.flowing.retain(|flowing| !Arc::ptr_eq(flowing, state));
}

/// The class of a blocking collective that failed, after telling the user.
#[cold]
pub(crate) fn failed(state: &ModuleState, request: &Request<'_>, error: &LaneError) -> c_int {
    report(state, request.call.collective, error)
}

/// As [`failed`], for calls that never became a request.
#[cold]
pub(crate) fn report(state: &ModuleState, collective: Collective, error: &LaneError) -> c_int {
    tell_failure(state, collective, ("", crate::watch::in_call(state)), error)
}

fn tell_failure(
    state: &ModuleState,
    collective: Collective,
    (kind, ticket): (&str, Option<watch::Ticket>),
    error: &LaneError,
) -> c_int {
    let trouble = match *error {
        LaneError::Trouble(trouble) => Some(trouble),
        LaneError::Mismatch { peer } => crate::watch::difference(state, ticket, peer),
        // Shared memory may notice first; the watch knows the rank's host and process.
        LaneError::PeerGone { peer } => {
            state.watch.as_ref().and(ticket).map(|_| watch::Trouble::Ended { peer })
        }
        LaneError::Truncated { .. } => None,
    };
    let (code, why) = match (trouble, error) {
        (Some(trouble), _) => crate::watch::explain(state, ticket, trouble),
        (None, LaneError::Truncated { .. }) => (sys::MPI_ERR_TRUNCATE as c_int, error.to_string()),
        (None, LaneError::PeerGone { .. }) => {
            (hetccl_mca::failed_process_error(), error.to_string())
        }
        (None, LaneError::Mismatch { .. } | LaneError::Trouble(_)) => {
            (sys::MPI_ERR_OTHER as c_int, error.to_string())
        }
    };
    // Ranks that differ in length only are in step afterwards.
    let in_step = matches!(error, LaneError::Truncated { .. });
    if !in_step {
        state.share.close();
    }
    let ended = if in_step { watch::Ended::Failed } else { watch::Ended::Broken };
    crate::watch::end(state, ticket, ended);
    let number = ticket.map_or(0, |ticket| ticket.number);
    hetccl_mca::tell(&format!(
        "{kind}{} number {number} on communicator {} (rank {} of {}) failed: {why}",
        collective.name(),
        state.comm.context(),
        state.group.rank,
        state.group.size
    ));
    crate::watch::dump();
    code
}

/// Gives the lanes of a communicator that goes to later ones of the same ranks, unless something is under way on them or a rank
/// is lost.
pub(crate) fn give_back(engine: &mut Engine, state: &ModuleState) {
    let flow = state.share.polled(engine).flow.take();
    let broken = state.watch.as_ref().is_some_and(|watch| watch.is_broken());
    let lane = state.share.take().filter(|_| !broken);
    if let (Some(mut lane), Some(polled)) = (lane, flow.and_then(Flow::into_lanes)) {
        lane.lane.watch_by(None);
        engine.lanes.put(members(state), Lanes { blocking: lane.lane, polled });
    }
}

fn members(state: &ModuleState) -> Members {
    (0..state.group.len()).map(|rank| state.comm.peer(rank, false).0).collect()
}

// ---- the decision ----

/// What rank 0 has to offer.
const NOTHING: u64 = 0;
const USED: u64 = 1;
const NEW: u64 = 2;

/// Rank 0's word: what it offers, a lane's number and count of collectives, its pid namespace, the segment's description.
const WORD_BYTES: usize = 4 * 8 + size_of::<Descriptor>();
/// Everybody's word: whether it has the segment, and its process.
const VOTE_BYTES: usize = 16;

/// Settles whether the communicator has a lane; every rank of it is here.
#[cold]
fn decide(plugin: &Plugin, state: &ModuleState) -> Result<(), hetccl_runtime::Error> {
    let group = state.group;
    let kinds: &[SegmentKind] = match plugin.settings.shared_memory {
        SharedMemory::Auto => &[SegmentKind::Anonymous, SegmentKind::Named],
        SharedMemory::Anonymous => &[SegmentKind::Anonymous],
        SharedMemory::File => &[SegmentKind::Named],
        SharedMemory::Off => &[],
    };
    let possible = group.remote_size.is_none()
        && (2..=MAX_RANKS).contains(&group.len())
        && !state.has_any_memory()
        // Only messages through the PML end when a process fails or a communicator is revoked.
        && !hetccl_mca::survives_failures();
    if kinds.is_empty() || !possible {
        state.share.set(&plugin.lock(), None, false, false);
        return Ok(());
    }
    let members = members(state);
    // A lane of an earlier communicator, then a new one of each kind. Every rank comes to the same end of each round.
    let mut trouble = None;
    let mut lane = round(plugin, state, &members, None, &mut trouble)?;
    for &kind in kinds {
        if lane.is_none() {
            lane = round(plugin, state, &members, Some(kind), &mut trouble)?;
        }
    }
    if lane.is_none() {
        tell_trouble(plugin, trouble.as_ref());
    }
    let demanded = Collective::ALL.iter().any(|&c| plugin.settings.is_demanded(c));
    let told = plugin.verbosity >= Verbosity::ALGORITHM;
    if let Some(lane) = &mut lane {
        lane.blocking.watch_by(state.watch.clone());
    }
    let compare = plugin.settings.check_calls != 0;
    state.share.set(&plugin.lock(), lane, !demanded && !told, compare);
    Ok(())
}

/// One offer of rank 0 (`kind` none: a lane from its pool), and what becomes of it.
fn round(
    plugin: &Plugin,
    state: &ModuleState,
    members: &Members,
    kind: Option<SegmentKind>,
    trouble: &mut Option<SegmentError>,
) -> Result<Option<Lanes>, hetccl_runtime::Error> {
    let group = state.group;
    let layout = Layout::new(group.len(), plugin.settings.shared_ring_bytes);
    let folder = Path::new(FOLDER);
    // A lane that is offered is out of the pool, so no other communicator is offered it meanwhile.
    let (mut segment, mut used) = (None, None);
    let mut word = [0u8; WORD_BYTES];
    if group.rank.0 == 0 {
        let mut words = [NOTHING, 0, 0, pid_namespace()];
        match kind {
            None => {
                used = plugin.lock().lanes.take_any(members);
                if let Some(lane) = &used {
                    (words[0], words[1], words[2]) = (USED, lane.id(), lane.finished());
                }
            }
            Some(kind) => match Segment::create(layout, kind, folder) {
                Ok((created, descriptor)) => {
                    (words[0], words[1]) = (NEW, created.id());
                    word[32..].copy_from_slice(&descriptor);
                    segment = Some(created);
                }
                Err(error) => *trouble = Some(error),
            },
        }
        for (i, value) in words.into_iter().enumerate() {
            word[i * 8..i * 8 + 8].copy_from_slice(&value.to_le_bytes());
        }
    }
    spread(plugin, state, &mut word)?;
    let value = |i: usize| u64::from_le_bytes(std::array::from_fn(|b| word[i * 8 + b]));
    let (offer, id, finished, namespace) = (value(0), value(1), value(2), value(3));
    if offer == NOTHING {
        return Ok(None);
    }
    if offer == NEW && segment.is_none() {
        let mut descriptor: Descriptor = [0; size_of::<Descriptor>()];
        descriptor.copy_from_slice(&word[32..]);
        match Segment::open(layout, &descriptor, folder) {
            Ok(opened) => segment = Some(opened),
            Err(error) => *trouble = Some(error),
        }
    }
    if offer == USED && used.is_none() {
        used = plugin.lock().lanes.take(members, id, finished);
    }
    let have = used.is_some() || segment.is_some();
    // Processes of other pid namespaces can't be asked for.
    let pid = if pid_namespace() == namespace { u64::from(std::process::id()) } else { 0 };
    let votes = collect(plugin, state, [u64::from(have), pid])?;
    if let Some(segment) = &mut segment {
        segment.seal();
    }
    if votes.iter().any(|vote| vote[0] == 0) {
        if let Some(lane) = used {
            plugin.lock().lanes.put(members.clone(), lane);
        }
        return Ok(None);
    }
    if used.is_some() {
        return Ok(used);
    }
    let mut pids: Vec<i32> = votes.iter().map(|vote| vote[1] as i32).collect();
    if pids.contains(&0) {
        pids.clear();
    }
    Ok(segment.map(|segment| {
        let (segment, rank) = (Arc::new(segment), group.rank.index());
        let waiter = Waiter::new(progress, is_oversubscribed());
        let polled = polled::Lane::all(&segment, rank, &pids);
        Lanes { blocking: blocking::Lane::new(&segment, rank, pids, waiter), polled }
    }))
}

/// Whether this node has more ranks of the job than cores.
pub(crate) fn is_oversubscribed() -> bool {
    *OVERSUBSCRIBED
}

static OVERSUBSCRIBED: Lazy<bool> = Lazy::new(|| {
    let local = std::env::var("OMPI_COMM_WORLD_LOCAL_SIZE").ok().and_then(|n| n.parse().ok());
    hetccl_runtime::shared::is_oversubscribed(local.unwrap_or(1))
});

/// What tells pid namespaces apart; 0 where it can't be known.
fn pid_namespace() -> u64 {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata("/proc/self/ns/pid").map_or(0, |metadata| metadata.ino())
}

/// Rank 0's bytes for everybody, over the wire.
fn spread(
    plugin: &Plugin,
    state: &ModuleState,
    word: &mut [u8],
) -> Result<(), hetccl_runtime::Error> {
    let mut call = internal(plugin, state.group, Collective::Bcast, word.len());
    call.root = Root::Rank(hetccl_core::Rank(0));
    let buffer = Region::of_bytes_mut(word);
    let (input, output) = match state.group.rank.0 {
        0 => (buffer, Region::default()),
        _ => (Region::default(), buffer),
    };
    over_the_wire(plugin, state, &call, input, output)?;
    std::hint::black_box(word);
    Ok(())
}

/// Everybody's vote for everybody, over the wire.
fn collect(
    plugin: &Plugin,
    state: &ModuleState,
    vote: [u64; 2],
) -> Result<Vec<[u64; 2]>, hetccl_runtime::Error> {
    let mut mine = [0; VOTE_BYTES];
    mine[..8].copy_from_slice(&vote[0].to_le_bytes());
    mine[8..].copy_from_slice(&vote[1].to_le_bytes());
    let mut all = vec![0u8; VOTE_BYTES * state.group.len()];
    let call = internal(plugin, state.group, Collective::Allgather, VOTE_BYTES);
    let (input, output) = (Region::of_bytes(&mine), Region::of_bytes_mut(&mut all));
    over_the_wire(plugin, state, &call, input, output)?;
    let all = std::hint::black_box(all);
    let word = |at: &[u8]| u64::from_le_bytes(std::array::from_fn(|b| at[b]));
    Ok(all.chunks(VOTE_BYTES).map(|vote| [word(vote), word(&vote[8..])]).collect())
}

fn internal(plugin: &Plugin, group: Group, collective: Collective, bytes: usize) -> Call {
    Call {
        collective,
        group,
        root: Root::None,
        layout: Blocks::uniform(bytes),
        in_place: false,
        ordered: false,
        neighbours: None,
        chunk: plugin.settings.chunk(1),
        topology: None,
    }
}

fn over_the_wire(
    plugin: &Plugin,
    state: &ModuleState,
    call: &Call,
    input: Region,
    output: Region,
) -> Result<(), hetccl_runtime::Error> {
    let request = Request {
        call,
        element_bytes: 1,
        reduction: None,
        input,
        output,
        fill_output: false,
        declinable: false,
        average: false,
        mode: Mode::Blocking,
    };
    // SAFETY: the callers' buffers outlive this call, which waits for the end.
    unsafe { execute::run(plugin, state, &request) }
}

// ---- what users hear ----

/// Once per process: why there is no shared memory where there might be.
fn tell_trouble(plugin: &Plugin, trouble: Option<&SegmentError>) {
    static TOLD: AtomicBool = AtomicBool::new(false);
    let Some(trouble) = trouble else { return };
    if plugin.verbosity >= Verbosity::WIRE && !TOLD.swap(true, Ordering::Relaxed) {
        hetccl_mca::tell(&format!(
            "no shared memory for a communicator, its collectives go over the wire: {trouble}"
        ));
    }
}

/// One line at the first use of a kind of call, for those who asked.
#[inline]
pub(crate) fn tell(plugin: &Plugin, state: &ModuleState, request: &Request<'_>) {
    if plugin.verbosity >= Verbosity::ALGORITHM && state.group.rank.0 == 0 {
        let bytes = hetccl_core::payload_bytes(request.call, request.element_bytes);
        let collective = request.call.collective;
        let key = (collective as usize, "slots", "shared", bytes);
        if plugin.lock().told.insert(key) {
            hetccl_mca::tell(&format!(
                "{} algorithm=slots path=shared bytes={bytes} ranks={}",
                collective.name(),
                state.group.size
            ));
        }
    }
}
