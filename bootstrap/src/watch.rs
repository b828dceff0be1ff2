//! One thread of the process that looks after the neighbours of all its groups.
//!
//! It sleeps until a connection has something to say or a neighbour is to hear that this process is there. The connections
//! belong to the groups' trees: here are only their entries in an epoll set, which go when they are closed.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::eventfd::{EfdFlags, EventFd};

use crate::error::{Error, Result};
use crate::group::Group;

/// A group in the middle of a call is looked at again after this long.
const AGAIN: Duration = Duration::from_millis(20);
/// The number of the event that a new group makes.
const WAKE: u64 = 0;
const EVENTS_AT_ONCE: usize = 64;

static WATCH: Mutex<Option<Arc<Watch>>> = Mutex::new(None);

struct Watch {
    process: u32,
    epoll: Epoll,
    wake: EventFd,
    groups: Mutex<HashMap<u64, Watched>>,
    last: AtomicU64,
}

#[derive(Clone)]
struct Watched {
    group: Weak<Group>,
    /// How often its neighbours are to hear of this process.
    every: Option<Duration>,
}

/// Looks after a group from now on, as long as its owner has it.
///
/// # Errors
/// Of the system.
pub(crate) fn over(group: &Arc<Group>) -> Result<()> {
    let tree = group.lock_tree();
    if tree.streams().next().is_none() {
        return Ok(());
    }
    let watch = Watch::of_this_process()?;
    let number = watch.last.fetch_add(1, Ordering::Relaxed) + 1;
    let watched = Watched { group: Arc::downgrade(group), every: tree.pulse_every() };
    watch.lock().insert(number, watched);
    // Once for each change; what comes while a call of the group reads is looked for again.
    let flags = EpollFlags::EPOLLIN | EpollFlags::EPOLLRDHUP | EpollFlags::EPOLLET;
    for stream in tree.streams() {
        watch.epoll.add(stream, EpollEvent::new(flags, number)).map_err(system)?;
    }
    watch.wake.write(1).map_err(system)?;
    Ok(())
}

impl Watch {
    /// The watch, which is made at the first call, and again in a child of `fork`.
    fn of_this_process() -> Result<Arc<Watch>> {
        let mut slot = WATCH.lock().unwrap_or_else(PoisonError::into_inner);
        let process = std::process::id();
        if let Some(watch) = slot.as_ref().filter(|watch| watch.process == process) {
            return Ok(Arc::clone(watch));
        }
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).map_err(system)?;
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        let wake = EventFd::from_flags(flags).map_err(system)?;
        epoll.add(&wake, EpollEvent::new(EpollFlags::EPOLLIN, WAKE)).map_err(system)?;
        let groups = Mutex::default();
        let watch = Arc::new(Watch { process, epoll, wake, groups, last: AtomicU64::new(WAKE) });
        let thread = std::thread::Builder::new().name("hetccl-watch".into()).stack_size(256 << 10);
        let running = Arc::clone(&watch);
        thread.spawn(move || running.run()).map_err(|error| Error::System {
            what: "starting a thread",
            reason: error.to_string(),
        })?;
        *slot = Some(Arc::clone(&watch));
        Ok(watch)
    }

    fn run(&self) {
        let mut again: HashSet<u64> = HashSet::new();
        let mut events = [EpollEvent::empty(); EVENTS_AT_ONCE];
        let mut last_round = Instant::now();
        loop {
            let every = self.lock().values().filter_map(|watched| watched.every).min();
            let pause = every.map(|every| every.saturating_sub(last_round.elapsed()));
            let pause = if again.is_empty() { pause } else { Some(AGAIN) };
            let timeout = pause.map_or(EpollTimeout::NONE, |pause| {
                EpollTimeout::try_from(pause.as_millis() + 1).unwrap_or(EpollTimeout::MAX)
            });
            let count = self.epoll.wait(&mut events, timeout).unwrap_or_else(|_| {
                // Interrupted, or no memory.
                std::thread::sleep(Duration::from_millis(1));
                0
            });
            again.extend(events[..count].iter().map(EpollEvent::data));
            if again.remove(&WAKE) {
                let _read = self.wake.read();
            }
            if every.is_some_and(|every| last_round.elapsed() >= every) {
                last_round = Instant::now();
                again.extend(self.lock().keys().copied());
            }
            again.retain(|&number| !self.look(number));
        }
    }

    /// Whether it is done with a group for now.
    fn look(&self, number: u64) -> bool {
        let watched = self.lock().get(&number).cloned();
        match watched.and_then(|watched| watched.group.upgrade()) {
            Some(group) => group.look(),
            None => {
                self.lock().remove(&number);
                true
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Watched>> {
        self.groups.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn system(error: nix::Error) -> Error {
    Error::System { what: "watching over a group's connections", reason: error.to_string() }
}
