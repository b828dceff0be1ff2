//! The plugin's state: settings, the engine under its lock, and the nonblocking operations under way.

use std::collections::HashSet;
use std::os::raw::c_int;
use std::sync::atomic::{AtomicBool, AtomicIsize, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use hetccl_mca::{coll_verbose, modex_put, register_progress, unregister_progress};
use hetccl_runtime::gpu::Gpus;
use hetccl_runtime::shared::Pool;
use hetccl_runtime::watch::{Journal, Policy};
use hetccl_runtime::{GpuChoice, Process, Settings, TransportChoice};
use once_cell::sync::OnceCell;

use crate::execute::Active;
use crate::module::ModuleState;
use crate::reduction::OpenMpiReducer;
use crate::{watch, wire};

/// How much hetccl tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Verbosity(pub(crate) c_int);

impl Verbosity {
    /// Which wire, and why.
    pub(crate) const WIRE: Verbosity = Verbosity(1);
    /// The algorithm of each kind of call.
    pub(crate) const ALGORITHM: Verbosity = Verbosity(2);
}

/// How long MPI_Finalize waits for UCX to hand over what is still under way. All ranks of the job have met before, so
/// nothing should be; processes of other jobs, such as the parent of spawned ones, may be long busy with other things.
const CLOSE_PATIENCE: Duration = Duration::from_millis(100);

/// Everything that is used under the lock.
pub(crate) struct Engine {
    pub(crate) process: Process,
    /// Nonblocking operations under way, oldest first.
    pub(crate) active: Vec<Active>,
    /// Communicators with collectives to poll in shared memory.
    pub(crate) flowing: Vec<Arc<ModuleState>>,
    /// Shared memory of communicators that are gone.
    pub(crate) lanes: Pool,
    /// What has been told already, at [`Verbosity::ALGORITHM`].
    pub(crate) told: HashSet<(usize, &'static str, &'static str, usize)>,
    /// When to look at the ranks that nonblocking operations wait for.
    pub(crate) rounds: watch::Rounds,
}

/// The process's one plugin.
pub(crate) struct Plugin {
    pub(crate) verbosity: Verbosity,
    pub(crate) settings: Settings,
    engine: Mutex<Engine>,
    /// What this process has called; none where there are no anonymous files.
    journal: OnceCell<Option<Arc<Journal>>>,
    /// Why UCX can't be used here; `None` when it can.
    pub(crate) ucx_trouble: OnceCell<Option<String>>,
    /// What MPI_COMM_WORLD agreed on: whether this job uses UCX.
    pub(crate) job_uses_ucx: OnceCell<bool>,
    /// What MPI_COMM_WORLD agreed on: whether some rank of this job has a GPU.
    pub(crate) job_has_gpus: OnceCell<bool>,
    /// Why UCX can't take the device memory here as it is; `None` when it can.
    pub(crate) direct_trouble: OnceCell<Option<String>>,
    /// What MPI_COMM_WORLD agreed on: whether UCX takes the device memory of all ranks as it is.
    pub(crate) job_is_direct: OnceCell<bool>,
    /// Whether a GPU can be used here, readable without the lock.
    has_gpus: AtomicBool,
    /// Operations in `Engine::active`, readable without the lock.
    active: AtomicUsize,
    /// Requests of nonblocking collectives that the program has not waited for yet.
    unclaimed: AtomicIsize,
    listening: AtomicBool,
}

static PLUGIN: OnceCell<Plugin> = OnceCell::new();

impl Plugin {
    /// Keeps the settings. Later calls in the same process (a second registration) change nothing.
    pub(crate) fn configure(settings: Settings, verbosity: Verbosity) {
        PLUGIN.get_or_init(|| Plugin {
            verbosity,
            engine: Mutex::new(Engine {
                process: Process::new(settings.clone(), Box::new(OpenMpiReducer)),
                active: Vec::new(),
                flowing: Vec::new(),
                lanes: Pool::new(settings.shared_keep_bytes),
                told: HashSet::new(),
                rounds: watch::Rounds::new(),
            }),
            settings,
            journal: OnceCell::new(),
            ucx_trouble: OnceCell::new(),
            job_uses_ucx: OnceCell::new(),
            job_has_gpus: OnceCell::new(),
            direct_trouble: OnceCell::new(),
            job_is_direct: OnceCell::new(),
            has_gpus: AtomicBool::new(false),
            active: AtomicUsize::new(0),
            unclaimed: AtomicIsize::new(0),
            listening: AtomicBool::new(false),
        });
    }

    /// The plugin.
    ///
    /// # Panics
    /// Before the component's parameters are registered; Open MPI does that first.
    #[inline]
    pub(crate) fn get() -> &'static Plugin {
        PLUGIN.get().expect("Open MPI registers a component's parameters before it uses it")
    }

    /// Starts UCX if it may be used and publishes its address. Every rank publishes something.
    pub(crate) fn open() {
        let plugin = Plugin::get();
        plugin.find_gpus();
        let started = match plugin.settings.transport {
            TransportChoice::Pml => Err("coll_hetccl_transport is pml".to_owned()),
            _ => wire::start_ucx(),
        };
        let (address, trouble) = match started {
            Ok((fabric, address)) => {
                plugin.lock().process.use_ucx(fabric);
                (address, None)
            }
            Err(why) => (Vec::new(), Some(why)),
        };
        let published = {
            let mut engine = plugin.lock();
            let trouble = engine.process.device_memory_by_ucx().err();
            let direct = plugin.direct_trouble.get_or_init(|| trouble).is_none();
            let journal = plugin.journal().map_or(-1, |journal| journal.descriptor());
            wire::publish(&address, plugin.has_gpus(), direct, engine.process.gpus(), journal)
        };
        let trouble = match modex_put(wire::ADDRESS_KEY, &published) {
            Ok(()) => trouble,
            Err(status) => Some(format!("its address could not be published (status {status})")),
        };
        let _ = plugin.ucx_trouble.set(trouble);
    }

    /// This process's journal.
    pub(crate) fn journal(&self) -> Option<&Arc<Journal>> {
        let place = |name: &str| std::env::var(name).ok().and_then(|n| n.parse().ok()).unwrap_or(0);
        let create = || {
            let (rank, size) = (place("OMPI_COMM_WORLD_RANK"), place("OMPI_COMM_WORLD_SIZE"));
            Journal::create(rank, size, &wire::host_name()).ok()
        };
        self.journal.get_or_init(create).as_ref()
    }

    /// How long what is put up with.
    pub(crate) fn policy(&self) -> Policy {
        let seconds = |n: usize| Duration::from_secs(n as u64);
        Policy {
            stall: seconds(self.settings.stall_seconds),
            stopped: seconds(self.settings.peer_timeout_seconds),
            limit: seconds(self.settings.wait_limit_seconds),
            compare: self.settings.check_calls != 0,
        }
    }

    /// Loads the GPU drivers that are there.
    fn find_gpus(&self) {
        if self.settings.gpus == GpuChoice::None {
            return;
        }
        let (gpus, missing) = Gpus::discover(self.settings.pinned_keep_bytes);
        for (_, error) in missing {
            coll_verbose(10, &format!("hetccl: {error}"));
        }
        for driver in gpus.drivers() {
            let line = format!(
                "device buffers of {} {}: {} devices",
                driver.vendor().name(),
                driver.version(),
                driver.devices()
            );
            coll_verbose(1, &format!("hetccl: {line}"));
        }
        if !gpus.is_empty() {
            self.lock().process.use_gpus(gpus);
            self.has_gpus.store(true, Ordering::Release);
        }
    }

    /// Whether buffers may be device memory.
    #[inline]
    pub(crate) fn has_gpus(&self) -> bool {
        self.has_gpus.load(Ordering::Acquire)
    }

    /// Ends UCX. Every communicator is gone by now.
    pub(crate) fn close() {
        let Some(plugin) = PLUGIN.get() else { return };
        if plugin.listening.swap(false, Ordering::AcqRel) {
            unregister_progress(crate::execute::progress_callback);
        }
        let mut engine = plugin.lock();
        // What a program left unfinished stays so: its buffers may still be written to.
        for active in engine.active.drain(..) {
            std::mem::forget(active);
        }
        std::mem::forget(std::mem::take(&mut engine.flowing));
        if let Some(fabric) = engine.process.take_fabric() {
            // A peer that is gone already can't be waited for; the process ends anyway.
            let _ = fabric.close(Instant::now() + CLOSE_PATIENCE);
        }
    }

    /// The engine. A panic under the lock has failed its communicator; the others go on.
    #[inline]
    pub(crate) fn lock(&self) -> MutexGuard<'_, Engine> {
        self.engine.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The engine, unless somebody works on it right now.
    #[inline]
    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, Engine>> {
        match self.engine.try_lock() {
            Ok(guard) => Some(guard),
            Err(std::sync::TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(std::sync::TryLockError::WouldBlock) => None,
        }
    }

    /// Lets Open MPI's progress drive hetccl's from now on.
    pub(crate) fn listen(&self) {
        if !self.listening.swap(true, Ordering::AcqRel) {
            register_progress(crate::execute::progress_callback);
        }
    }

    /// Notes how many operations, and communicators with some in shared memory, are active.
    pub(crate) fn note_active(&self, engine: &Engine) {
        self.active.store(engine.active.len() + engine.flowing.len(), Ordering::Release);
    }

    /// Notes that there are so many more requests of nonblocking collectives to wait for.
    #[inline]
    pub(crate) fn note_unclaimed(&self, more: isize) {
        self.unclaimed.fetch_add(more, Ordering::Relaxed);
    }

    /// Requests of nonblocking collectives that the program has not waited for yet.
    #[inline]
    pub(crate) fn unclaimed(&self) -> isize {
        self.unclaimed.load(Ordering::Relaxed)
    }

    /// Whether nonblocking operations are under way.
    pub(crate) fn has_active(&self) -> bool {
        self.active.load(Ordering::Acquire) > 0
    }
}
