//! The module: hetccl's share of one communicator.

use std::cell::UnsafeCell;
use std::ffi::c_void;
use std::os::raw::c_int;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use hetccl_core::Group;
use hetccl_mca::{CommunicatorRef, ModuleRef, new_module, sys};
use hetccl_runtime::{Communicator, Wire};

use crate::collective;
use crate::shared::Share;
use crate::state::{Engine, Plugin};
use crate::{status, wire};
use hetccl_runtime::watch::Watch;

/// A communicator's state. Shared by the module and the operations under way on it.
pub(crate) struct ModuleState {
    pub(crate) comm: CommunicatorRef,
    pub(crate) group: Group,
    pub(crate) share: Share,
    /// Looks after the other ranks; none on inter-communicators and where there is no journal.
    pub(crate) watch: Option<Arc<Watch>>,
    /// Some rank may have device memory; the same on all ranks.
    any_memory: AtomicBool,
    communicator: UnsafeCell<Communicator>,
}

// SAFETY: the cell is reached only with the engine's lock held (`communicator`, `enable`).
unsafe impl Send for ModuleState {}
// SAFETY: as above.
unsafe impl Sync for ModuleState {}

impl ModuleState {
    /// Whether some rank may have device memory.
    pub(crate) fn has_any_memory(&self) -> bool {
        self.any_memory.load(Ordering::Acquire)
    }

    /// The runtime's communicator; the engine shows that the caller holds the lock.
    #[inline]
    #[allow(clippy::mut_from_ref)]
    pub(crate) fn communicator<'a>(&'a self, _engine: &Engine) -> &'a mut Communicator {
        // SAFETY: the lock is held, and every caller uses the result before it calls again.
        unsafe { &mut *self.communicator.get() }
    }
}

/// A module for a new communicator; `None` when there is no memory.
pub(crate) fn create(comm: CommunicatorRef) -> Option<*mut sys::mca_coll_base_module_t> {
    let group = comm.group();
    let state = Arc::new(ModuleState {
        comm,
        group,
        share: Share::default(),
        watch: watch(comm),
        any_memory: AtomicBool::new(true),
        // The wire comes when Open MPI enables the module: then the communicator can be used.
        communicator: UnsafeCell::new(Communicator::new(comm.context(), group, Wire::Alone)),
    });
    let raw = Arc::into_raw(state).cast_mut().cast::<c_void>();
    // SAFETY: `drop_state` takes back the reference that `raw` is.
    let Some(module) = (unsafe { new_module(drop_state, raw) }) else {
        // SAFETY: made by `into_raw` just now.
        drop(unsafe { Arc::from_raw(raw.cast::<ModuleState>()) });
        return None;
    };
    // SAFETY: the table is this new module's, which nobody else knows yet.
    let table = unsafe { &mut *module.table() };
    table.coll_module_enable = Some(enable);
    collective::fill(table, group.remote_size.is_some());
    if !hetccl_mca::survives_failures() {
        module.agree_without_failures();
    }
    Some(module.table())
}

/// A watch over a communicator of several ranks.
fn watch(comm: CommunicatorRef) -> Option<Arc<Watch>> {
    let (plugin, group) = (Plugin::get(), comm.group());
    // Where jobs survive failures, Open MPI finds them, and the ranks that are left go on with the communicator.
    let found_by_others = hetccl_mca::survives_failures();
    if group.remote_size.is_some() || group.len() < 2 || found_by_others {
        return None;
    }
    let track = plugin.journal()?.track(comm.context(), group.rank.0, group.size)?;
    let place = (comm.context(), group.rank.index(), group.len());
    let members = Box::new(move || wire::members(comm));
    Some(Arc::new(Watch::new(track, plugin.policy(), place, members, hetccl_mca::tell)))
}

/// The state behind a module.
///
/// # Safety
/// `module` was made by [`create`] and Open MPI still has it.
#[inline]
pub(crate) unsafe fn state<'a>(module: *mut sys::mca_coll_base_module_t) -> &'a ModuleState {
    // SAFETY: the caller's promise; the module owns a reference.
    unsafe { &*ModuleRef::from_raw(module).state().cast::<ModuleState>() }
}

/// One more reference to the state behind a module.
///
/// # Safety
/// As for [`state`].
pub(crate) unsafe fn share(module: *mut sys::mca_coll_base_module_t) -> Arc<ModuleState> {
    // SAFETY: the caller's promise; the pointer was made by `Arc::into_raw`.
    unsafe {
        let raw = ModuleRef::from_raw(module).state().cast::<ModuleState>().cast_const();
        Arc::increment_strong_count(raw);
        Arc::from_raw(raw)
    }
}

/// Open MPI has let go of the module.
unsafe extern "C" fn drop_state(state: *mut c_void) {
    // SAFETY: the reference that `create` gave to the module.
    let state = unsafe { Arc::from_raw(state.cast::<ModuleState>().cast_const()) };
    // Endpoints and channels belong to the engine.
    let mut engine = Plugin::get().lock();
    // Operations keep their communicator, so only those of one that Open MPI takes down itself, such as
    // MPI_COMM_WORLD at the end, are left. Nothing can finish them any more.
    crate::execute::abandon(&mut engine, &state);
    crate::shared::give_back(&mut engine, &state);
    drop(state);
}

/// The communicator can be used from now on; all its ranks come here.
unsafe extern "C" fn enable(
    module: *mut sys::mca_coll_base_module_t,
    _comm: *mut sys::ompi_communicator_t,
) -> c_int {
    // SAFETY: Open MPI passes the module that `create` made.
    let state = unsafe { state(module) };
    let chosen = {
        let comm = state.comm;
        std::panic::catch_unwind(move || wire::choose(comm))
    };
    match chosen {
        Ok(Ok(wire::Choice { wire, any_memory, direct, one_device, identities })) => {
            let plugin = Plugin::get();
            state.any_memory.store(any_memory, Ordering::Release);
            let uses_ucx = matches!(wire, Wire::Ucx(_));
            {
                let engine = plugin.lock();
                *state.communicator(&engine) =
                    Communicator::new(state.comm.context(), state.group, wire)
                        .with_any_memory(any_memory)
                        .with_direct(direct)
                        .with_one_device(one_device)
                        .with_identities(identities, &plugin.settings);
            }
            if uses_ucx {
                plugin.listen();
            }
            status::SUCCESS
        }
        Ok(Err(code)) => code,
        Err(_) => sys::OMPI_ERROR,
    }
}
