//! How a rank waits for another: it spins for a while, then lets others have the core, and looks after the front end's own
//! work now and then.

use std::hint::spin_loop;
use std::time::{Duration, Instant};

/// Looks at the memory before the core is given away, where every rank has one.
const SPINS: u32 = 4000;
/// The same where ranks share cores: the one waited for may need this one.
const SPINS_OVERSUBSCRIBED: u32 = 8;
/// Yields between two rounds of the front end's progress.
const YIELDS: u32 = 32;
/// Rounds of progress between two looks at the clock, and the time between looks at whether the peer still lives.
const ROUNDS_PER_CLOCK: u32 = 16;
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// A way of waiting.
#[derive(Clone, Copy, Debug)]
pub struct Waiter {
    spins: u32,
    progress: fn(),
}

impl Waiter {
    /// A waiter that calls `progress` now and then.
    pub fn new(progress: fn(), oversubscribed: bool) -> Waiter {
        Waiter { spins: if oversubscribed { SPINS_OVERSUBSCRIBED } else { SPINS }, progress }
    }

    /// Waits until `ready`. `lost` is asked from time to time whether there is no use in waiting.
    #[inline]
    pub(super) fn until<E>(
        &self,
        ready: impl Fn() -> bool,
        lost: impl Fn() -> Option<E>,
    ) -> Result<(), E> {
        for _ in 0..self.spins {
            if ready() {
                return Ok(());
            }
            spin_loop();
        }
        self.patiently(&ready, &lost)
    }

    #[cold]
    #[inline(never)]
    fn patiently<E>(
        &self,
        ready: &dyn Fn() -> bool,
        lost: &dyn Fn() -> Option<E>,
    ) -> Result<(), E> {
        let mut last = Instant::now();
        loop {
            for _ in 0..ROUNDS_PER_CLOCK {
                for _ in 0..YIELDS {
                    // SAFETY: touches no memory.
                    unsafe { libc::sched_yield() };
                    if ready() {
                        return Ok(());
                    }
                }
                (self.progress)();
                if ready() {
                    return Ok(());
                }
            }
            if last.elapsed() < LOOK_INTERVAL {
                continue;
            }
            last = Instant::now();
            if let Some(error) = lost() {
                return if ready() { Ok(()) } else { Err(error) };
            }
        }
    }
}

/// Whether `processes` on this node have fewer cores than that to run on.
pub fn is_oversubscribed(processes: usize) -> bool {
    // A process may be bound to fewer cores than the node has, as its peers are to others.
    let cores = std::fs::read_to_string("/proc/cpuinfo")
        .map(|text| text.lines().filter(|line| line.starts_with("processor")).count())
        .unwrap_or(0);
    let allowed = std::thread::available_parallelism().map_or(1, |n| n.get());
    processes > cores.max(allowed)
}
