//! Runs prepared calls: blocking, nonblocking, persistent. They differ only in who polls.

use std::os::raw::c_int;
use std::sync::Arc;

use hetccl_core::Collective;
use hetccl_mca::{Request, RetainedCommunicator, progress, sys};
use hetccl_runtime::shared::LaneError;
use hetccl_runtime::watch::{Ended, Ticket, Trouble};
use hetccl_runtime::{Mode, Operation};

use crate::module::{self, ModuleState};
use crate::prepared::Prepared;
use crate::state::{Engine, Plugin, Verbosity};
use crate::{shared, status, watch};

/// Looks at an operation that has just been started: less than 0.5 us.
const POLLS_AT_START: usize = 16;
/// The same for one in shared memory.
const LOOKS_AT_START: usize = 48;

/// A nonblocking or persistent collective, from its call to the end of its request.
pub(crate) struct Pending {
    module: Arc<ModuleState>,
    prepared: Prepared,
    persistent: bool,
    /// It goes through shared memory.
    shared: bool,
    /// The call under way in the journal.
    ticket: Option<Ticket>,
    /// It has failed: Open MPI may still write to a receive that it can't take back, so its memory stays.
    lost: bool,
    /// The program has freed the request; it goes when the operation ends. Changed with the lock held.
    freed: bool,
    /// A freed communicator lives on until its operations have ended.
    _comm: RetainedCommunicator,
}

/// One operation under way.
pub(crate) struct Active {
    operation: Operation,
    request: Request,
}

// SAFETY: the request's state is touched with the engine's lock held, or by the only owner.
unsafe impl Send for Active {}

/// Runs a collective to its end.
///
/// # Safety
/// `module` is ours and live, and the prepared buffers are as MPI demands.
pub(crate) unsafe fn blocking(
    module: *mut sys::mca_coll_base_module_t,
    mut prepared: Prepared,
) -> c_int {
    // SAFETY: the caller's promise.
    let state = unsafe { module::state(module) };
    let plugin = Plugin::get();
    if let Some(code) = watch::refuse(state, &prepared.request(Mode::Blocking)) {
        return code;
    }
    let ticket = watch::begin(state, &prepared.request(Mode::Blocking));
    if let Err(code) = prepared.begin() {
        watch::end(state, ticket, Ended::Failed);
        return code;
    }
    // SAFETY: the caller's promise.
    if let Some(outcome) = unsafe { shared::run(plugin, state, &prepared) } {
        return match outcome {
            Ok(()) => {
                watch::end(state, ticket, Ended::Well);
                prepared.end().map_or_else(|code| code, |()| status::SUCCESS)
            }
            Err(code) => code,
        };
    }
    // SAFETY: the buffers outlive this call, and it waits for the end.
    let outcome = unsafe { run(plugin, state, &prepared.request(Mode::Blocking)) };
    match outcome {
        Ok(()) => {
            watch::end(state, ticket, Ended::Well);
            prepared.end().map_or_else(|code| code, |()| status::SUCCESS)
        }
        Err(error) => {
            watch::end(state, ticket, watch::how(&error));
            watch::dump();
            // Open MPI may still write to a receive that it can't take back.
            std::mem::forget(prepared);
            status::report(&error)
        }
    }
}

/// Runs a request over the communicator's wire.
///
/// # Safety
/// The request's buffers are as MPI demands until this returns.
pub(crate) unsafe fn run(
    plugin: &Plugin,
    state: &ModuleState,
    request: &hetccl_runtime::Request<'_>,
) -> Result<(), hetccl_runtime::Error> {
    let mut guard = plugin.lock();
    let engine = &mut *guard;
    let communicator = state.communicator(engine);
    // SAFETY: the caller's promise.
    let mut operation = unsafe { engine.process.start(communicator, request) }?;
    tell(plugin, engine, state, &operation, request);
    // Without UCX nothing moves but in Open MPI's own progress.
    let polls = match engine.process.fabric() {
        Some(_) => plugin.settings.polls_before_progress,
        None => 1,
    };
    let mut patience = watch::Glances::new();
    loop {
        let engine = &mut *guard;
        for _ in 0..polls {
            match engine.process.poll(state.communicator(engine), &mut operation) {
                Ok(false) => {}
                ended => {
                    engine.process.recycle(operation);
                    return ended.map(|_| ());
                }
            }
            engine.process.progress();
        }
        drop(guard);
        progress();
        let trouble = watch::look(state, &mut patience);
        guard = plugin.lock();
        if let Some(source) = trouble {
            let engine = &mut *guard;
            let error = engine.process.give_up(state.communicator(engine), &mut operation, source);
            std::mem::forget(operation);
            return Err(error);
        }
    }
}

/// Starts a collective and gives the program a request.
///
/// # Safety
/// As for [`blocking`], until the request has completed; `request` is a place for the result.
pub(crate) unsafe fn nonblocking(
    module: *mut sys::mca_coll_base_module_t,
    prepared: Prepared,
    request: *mut *mut sys::ompi_request_t,
) -> c_int {
    // SAFETY: the caller's promise.
    let state = unsafe { module::state(module) };
    // At once, not by a request: Open MPI 4.1 does not look at the requests' errors when it makes a communicator, and would ask
    // for ever.
    if let Some(code) = watch::refuse(state, &prepared.request(prepared.mode())) {
        return code;
    }
    // SAFETY: as above.
    let created = match unsafe { create(module, prepared, false) } {
        Ok(created) => created,
        Err(code) => return code,
    };
    // SAFETY: the caller's promise about the buffers.
    unsafe { start(created) };
    // SAFETY: a place for the result.
    unsafe { *request = created.as_mpi() };
    status::SUCCESS
}

/// Gives the program an inactive request that starts the collective at each MPI_Start.
///
/// # Safety
/// As for [`blocking`], whenever the request is active.
pub(crate) unsafe fn persistent(
    module: *mut sys::mca_coll_base_module_t,
    prepared: Prepared,
    request: *mut *mut sys::ompi_request_t,
) -> c_int {
    // SAFETY: the caller's promise.
    match unsafe { create(module, prepared, true) } {
        Ok(created) => {
            // SAFETY: a place for the result.
            unsafe { *request = created.as_mpi() };
            status::SUCCESS
        }
        Err(code) => code,
    }
}

/// # Safety
/// As for [`persistent`].
unsafe fn create(
    module: *mut sys::mca_coll_base_module_t,
    mut prepared: Prepared,
    persistent: bool,
) -> Result<Request, c_int> {
    prepared.retain();
    // SAFETY: the caller's promise.
    let module = unsafe { module::share(module) };
    let request = Request::new(module.comm, persistent, Some(start_all), Some(free))
        .ok_or(sys::MPI_ERR_NO_MEM as c_int)?;
    let _comm = module.comm.retain();
    let plugin = Plugin::get();
    let shared = shared::takes_polled(plugin, &module, &prepared);
    if !persistent {
        plugin.note_unclaimed(1);
    }
    let pending = Pending {
        module,
        prepared,
        persistent,
        shared,
        ticket: None,
        lost: false,
        freed: false,
        _comm,
    };
    request.set_state(Box::into_raw(Box::new(pending)).cast());
    Ok(request)
}

/// The state behind a request.
///
/// # Safety
/// The request is ours and not deleted, and nobody else uses the result.
unsafe fn pending<'a>(request: Request) -> &'a mut Pending {
    // SAFETY: the caller's promise; set in `create`.
    unsafe { &mut *request.state().cast::<Pending>() }
}

/// The communicator of a request.
///
/// # Safety
/// The request is ours and not retired.
unsafe fn module_of<'a>(request: Request) -> &'a Arc<ModuleState> {
    // SAFETY: the caller's promise; set in `create`, and the module does not change.
    unsafe { &(*request.state().cast::<Pending>()).module }
}

/// The call of a request that is under way.
///
/// # Safety
/// The request is ours and active.
unsafe fn ticket_of(request: Request) -> Option<Ticket> {
    // SAFETY: the caller's promise; set in `start`, and it stays until the request is inactive.
    unsafe { (*request.state().cast::<Pending>()).ticket }
}

/// Starts the collective of an inactive request. A failure completes it.
///
/// # Safety
/// As for [`nonblocking`].
unsafe fn start(request: Request) {
    request.activate();
    // SAFETY: the request is inactive: nobody else has its state.
    let pending = unsafe { pending(request) };
    let plugin = Plugin::get();
    let asked = pending.prepared.request(pending.prepared.mode());
    if let Some(code) = watch::refuse(&pending.module, &asked) {
        // SAFETY: the request is ours, and its operation has not begun.
        return unsafe { finish(request, code) };
    }
    pending.ticket = watch::begin(&pending.module, &asked);
    if let Err(code) = pending.prepared.begin() {
        watch::end(&pending.module, pending.ticket, Ended::Failed);
        // SAFETY: as above.
        return unsafe { finish(request, code) };
    }
    if pending.shared {
        // SAFETY: the caller's promise.
        return unsafe { start_shared(plugin, request, pending) };
    }
    let outcome = {
        let mut guard = plugin.lock();
        let engine = &mut *guard;
        let state = &*pending.module;
        let communicator = state.communicator(engine);
        // SAFETY: the caller's promise.
        match unsafe {
            engine.process.start(communicator, &pending.prepared.request(pending.prepared.mode()))
        } {
            Ok(mut operation) => {
                let asked = pending.prepared.request(Mode::Blocking);
                tell(plugin, engine, state, &operation, &asked);
                match poll_briefly(engine, state, &mut operation) {
                    Ok(false) => {
                        engine.active.push(Active { operation, request });
                        plugin.note_active(engine);
                        None
                    }
                    ended => {
                        engine.process.recycle(operation);
                        Some(ended.map(|_| ()))
                    }
                }
            }
            Err(error) => Some(Err(error)),
        }
    };
    match outcome {
        None => plugin.listen(),
        // SAFETY: the request is ours, and its operation has ended; the program can't have let go of it yet.
        Some(outcome) => unsafe {
            let code = code_of(request, outcome);
            finish_kept(request, code);
        },
    }
}

/// Starts a collective in shared memory.
///
/// # Safety
/// As for [`start`]; `pending` is the request's.
unsafe fn start_shared(plugin: &Plugin, request: Request, pending: &Pending) {
    let asked = pending.prepared.request(Mode::Nonblocking);
    shared::tell(plugin, &pending.module, &asked);
    // SAFETY: what is prepared lives and stays as it is until the request is deleted, which comes after the collective's end.
    let asked = unsafe {
        std::mem::transmute::<hetccl_runtime::Request<'_>, hetccl_runtime::Request<'static>>(asked)
    };
    // A program that has others to wait for hardly waits for this one at once.
    let patient = !shared::is_oversubscribed() && plugin.unclaimed() <= 1;
    let looks = if patient { LOOKS_AT_START } else { 1 };
    let mut ended = shared::Ended::new();
    {
        let mut guard = plugin.lock();
        let engine = &mut *guard;
        // SAFETY: as above, and the caller's promise about the buffers.
        unsafe {
            shared::start_polled(engine, &pending.module, asked, request, looks, &mut ended);
        }
        plugin.note_active(engine);
    }
    plugin.listen();
    for (over, outcome) in ended {
        // SAFETY: these requests are ours, and their collectives have ended; the program can't have let go of this one yet.
        unsafe {
            let code = code_of_lane(over, outcome);
            if over == request { finish_kept(over, code) } else { finish(over, code) }
        }
    }
}

/// # Safety
/// The request is ours, and its collective has ended.
unsafe fn code_of_lane(request: Request, outcome: Result<(), LaneError>) -> c_int {
    // SAFETY: the caller's promise.
    let pending = unsafe { pending(request) };
    match outcome {
        Ok(()) => {
            watch::end(&pending.module, pending.ticket, Ended::Well);
            status::SUCCESS
        }
        Err(error) => {
            let asked = pending.prepared.request(Mode::Nonblocking);
            shared::failed_polled(&pending.module, &asked, pending.ticket, &error)
        }
    }
}

/// Looks a few times whether an operation is over already: peers on the same node often have sent their part. To be found
/// out by Open MPI's progress takes longer.
fn poll_briefly(
    engine: &mut Engine,
    state: &ModuleState,
    operation: &mut Operation,
) -> Result<bool, hetccl_runtime::Error> {
    // Without UCX nothing moves but in Open MPI's own progress, and where ranks share cores the peer may need this one.
    let alone_on_its_core = engine.process.fabric().is_some() && !shared::is_oversubscribed();
    let polls = if alone_on_its_core { POLLS_AT_START } else { 1 };
    for _ in 1..polls {
        if engine.process.poll(state.communicator(engine), operation)? {
            return Ok(true);
        }
        engine.process.progress();
    }
    engine.process.poll(state.communicator(engine), operation)
}

/// # Safety
/// The request is ours, and its operation is over and no longer in the engine.
unsafe fn code_of(request: Request, outcome: Result<(), hetccl_runtime::Error>) -> c_int {
    // SAFETY: the caller's promise.
    let pending = unsafe { pending(request) };
    match outcome {
        Ok(()) => {
            watch::end(&pending.module, pending.ticket, Ended::Well);
            status::SUCCESS
        }
        Err(error) => {
            pending.lost = true;
            watch::end(&pending.module, pending.ticket, watch::how(&error));
            watch::dump();
            status::report(&error)
        }
    }
}

/// Ends an operation: writes the output and completes the request. Never under the lock.
///
/// # Safety
/// The request is ours and active, and its operation is no longer in the engine.
unsafe fn finish(request: Request, code: c_int) {
    // SAFETY: the caller's promise.
    let code = unsafe { spread_output(request, code) };
    let freed = {
        let _engine = Plugin::get().lock();
        // SAFETY: the lock is held.
        unsafe { pending(request) }.freed
    };
    if freed {
        // SAFETY: the program has let go of it.
        return unsafe { delete(request) };
    }
    // From here on the program may free the request.
    request.complete(code);
}

/// As [`finish`], for a request that the program has not let go of.
///
/// # Safety
/// As for [`finish`].
unsafe fn finish_kept(request: Request, code: c_int) {
    // SAFETY: the caller's promise.
    let code = unsafe { spread_output(request, code) };
    request.complete(code);
}

/// # Safety
/// As for [`finish`].
unsafe fn spread_output(request: Request, code: c_int) -> c_int {
    if code != status::SUCCESS {
        return code;
    }
    // SAFETY: the operation has ended: nobody else has the state.
    unsafe { pending(request) }.prepared.end().map_or_else(|code| code, |()| code)
}

/// # Safety
/// Nobody uses the request any more, and it is not active.
unsafe fn delete(request: Request) {
    // SAFETY: the caller's promise; made in `create`.
    unsafe {
        let pending = Box::from_raw(request.state().cast::<Pending>());
        if !pending.persistent {
            Plugin::get().note_unclaimed(-1);
        }
        let Pending { prepared, lost, .. } = *pending;
        if lost {
            std::mem::forget(prepared);
        }
        request.retire();
    }
}

/// MPI_Start and MPI_Startall.
unsafe extern "C" fn start_all(count: usize, requests: *mut *mut sys::ompi_request_t) -> c_int {
    for i in 0..count {
        // SAFETY: Open MPI passes `count` requests of ours, inactive and persistent.
        unsafe { start(Request::from_raw(*requests.add(i))) };
    }
    status::SUCCESS
}

/// MPI_Request_free, and the end of a nonblocking request that was waited for.
unsafe extern "C" fn free(request: *mut *mut sys::ompi_request_t) -> c_int {
    // SAFETY: Open MPI passes a request of ours.
    let ours = unsafe { Request::from_raw(*request) };
    // A request that is complete stays so; only one that is not may be completed by somebody else meanwhile.
    let complete = ours.is_complete() || {
        let _engine = Plugin::get().lock();
        let complete = ours.is_complete();
        if !complete {
            // SAFETY: an operation under way keeps its state, and looks at other parts of it; the lock is held.
            unsafe { (*ours.state().cast::<Pending>()).freed = true };
        }
        complete
    };
    if complete {
        std::sync::atomic::fence(std::sync::atomic::Ordering::Acquire);
        // SAFETY: complete or never started, and the program lets go of it here.
        unsafe { delete(ours) };
    }
    // SAFETY: Open MPI's place for the handle.
    unsafe { *request = Request::null() };
    status::SUCCESS
}

/// Lets go of the operations of a communicator that is going away; their buffers and requests stay as they are.
pub(crate) fn abandon(engine: &mut Engine, module: &Arc<ModuleState>) {
    let (left, kept) = std::mem::take(&mut engine.active).into_iter().partition(|active| {
        // SAFETY: the operation is in the engine and the lock is held; only the module is looked at.
        let owner = unsafe { module_of(active.request) };
        Arc::ptr_eq(owner, module)
    });
    engine.active = kept;
    let left: Vec<Active> = left;
    left.into_iter().for_each(std::mem::forget);
    engine.flowing.retain(|state| !Arc::ptr_eq(state, module));
    Plugin::get().note_active(engine);
}

/// Called by Open MPI's progress: drives UCX and every nonblocking operation. The number of events.
pub(crate) unsafe extern "C" fn progress_callback() -> c_int {
    std::panic::catch_unwind(progress_all).unwrap_or(0)
}

fn progress_all() -> c_int {
    let plugin = Plugin::get();
    let Some(mut guard) = plugin.try_lock() else { return 0 };
    let engine = &mut *guard;
    let moved = engine.process.progress();
    if !plugin.has_active() {
        return c_int::from(moved);
    }
    let mut ended = Vec::new();
    let mut kept = 0;
    for i in 0..engine.active.len() {
        match poll_active(engine, i) {
            Ok(false) => {
                engine.active.swap(kept, i);
                kept += 1;
            }
            Ok(true) => ended.push((engine.active[i].request, Ok(()))),
            Err(error) => ended.push((engine.active[i].request, Err(error))),
        }
    }
    for over in engine.active.drain(kept..) {
        engine.process.recycle(over.operation);
    }
    let mut ended_shared = shared::Ended::new();
    shared::poll_all(engine, &mut ended_shared);
    plugin.note_active(engine);
    let waiting = if engine.rounds.is_time() { oldest(engine) } else { Vec::new() };
    drop(guard);
    let events = (ended.len() + ended_shared.len()) as c_int + c_int::from(moved);
    for (request, outcome) in ended_shared {
        // SAFETY: the request is ours and active until here; its collective has ended.
        unsafe { finish(request, code_of_lane(request, outcome)) };
    }
    for (request, outcome) in ended {
        // SAFETY: the request is ours and active until here; its operation was taken out of the engine.
        unsafe {
            let code = code_of(request, outcome);
            finish(request, code);
        }
    }
    for (state, ticket) in waiting {
        let trouble = state.watch.as_ref().and_then(|watch| watch.look_at_polled(ticket).err());
        if let Some(trouble) = trouble {
            give_up(plugin, &state, ticket, trouble);
        }
    }
    events
}

/// The oldest operation of each kind on each communicator.
fn oldest(engine: &Engine) -> Vec<(Arc<ModuleState>, Ticket)> {
    let mut oldest: Vec<(Arc<ModuleState>, Ticket)> = Vec::new();
    let on_wire = engine.active.iter().map(|active| active.request);
    let shared = engine.flowing.iter().flat_map(|state| shared::oldest_polled(engine, state));
    for request in on_wire.chain(shared) {
        // SAFETY: the operation is in the engine and the lock is held; what is looked at stays as it is meanwhile.
        let (state, ticket) = unsafe { (module_of(request), ticket_of(request)) };
        let Some(ticket) = ticket else { continue };
        let same = |(known, old): &&mut (Arc<ModuleState>, Ticket)| {
            Arc::ptr_eq(known, state) && old.kind == ticket.kind
        };
        match oldest.iter_mut().find(same) {
            Some((_, old)) if old.number > ticket.number => *old = ticket,
            Some(_) => {}
            None => oldest.push((Arc::clone(state), ticket)),
        }
    }
    oldest
}

/// Ends every operation on a communicator: there is no use in waiting for `ticket`.
#[cold]
fn give_up(plugin: &Plugin, state: &Arc<ModuleState>, ticket: Ticket, trouble: Trouble) {
    let source = watch::given_up(state, Some(ticket), trouble);
    let (mut ended, mut ended_shared) = (Vec::new(), shared::Ended::new());
    {
        let mut guard = plugin.lock();
        let engine = &mut *guard;
        let (lost, kept) = std::mem::take(&mut engine.active).into_iter().partition(|active| {
            // SAFETY: the operation is in the engine and the lock is held.
            Arc::ptr_eq(unsafe { module_of(active.request) }, state)
        });
        engine.active = kept;
        let lost: Vec<Active> = lost;
        for Active { mut operation, request } in lost {
            let communicator = state.communicator(engine);
            let error = engine.process.give_up(communicator, &mut operation, source.clone());
            std::mem::forget(operation);
            ended.push((request, Err(error)));
        }
        shared::give_up_polled(engine, state, trouble, &mut ended_shared);
        plugin.note_active(engine);
    }
    // SAFETY: the requests are ours and active until here; their operations were taken out of the engine.
    unsafe {
        for (request, outcome) in ended_shared {
            finish(request, code_of_lane(request, outcome));
        }
        for (request, outcome) in ended {
            finish(request, code_of(request, outcome));
        }
    }
}

fn poll_active(engine: &mut Engine, index: usize) -> Result<bool, hetccl_runtime::Error> {
    let request = engine.active[index].request;
    // SAFETY: the operation is in the engine and the lock is held; only the module is looked at.
    let state = unsafe { module_of(request) };
    let communicator = state.communicator(engine);
    engine.process.poll(communicator, &mut engine.active[index].operation)
}

/// One line at the first use of a kind of call, for those who asked.
#[inline]
fn tell(
    plugin: &Plugin,
    engine: &mut Engine,
    state: &ModuleState,
    operation: &Operation,
    request: &hetccl_runtime::Request<'_>,
) {
    if plugin.verbosity >= Verbosity::ALGORITHM && state.group.rank.0 == 0 {
        let bytes = hetccl_core::payload_bytes(request.call, request.element_bytes);
        let collective: Collective = request.call.collective;
        let path = state.communicator(engine).path();
        let algorithm = operation.algorithm().name;
        if engine.told.insert((collective as usize, algorithm, path, bytes)) {
            hetccl_mca::tell(&format!(
                "{} algorithm={algorithm} path={path} bytes={bytes} ranks={}",
                collective.name(),
                state.group.size + state.group.remote_size.unwrap_or(0),
            ));
        }
    }
}
