//! A communicator's thread: it owns the runtime's process, takes tasks in order, and sleeps when there are none.

mod exchange;
mod task;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use hetccl_runtime::gpu::{Context, LoadedKernels};
use hetccl_runtime::{Communicator, MessageCounts, Process};

use crate::Failure;
use crate::abi::Code;
use crate::log::{self, Level};
use crate::mesh::Link;
use crate::operation::Work;
use crate::order::Words;

pub(crate) use exchange::Exchange;
use exchange::Exchanging;
use task::Running;

/// How long a thread that waits looks again and again before it sleeps between looks.
const EAGER: Duration = Duration::from_millis(2);
const PAUSE: Duration = Duration::from_micros(50);

/// Work of one call or group.
#[derive(Debug)]
pub(crate) struct Task {
    pub(crate) number: u32,
    /// Words that streams write before it may start.
    pub(crate) slots: Vec<usize>,
    pub(crate) works: Vec<Work>,
}

/// What an engine is told.
#[derive(Debug)]
pub(crate) enum Command {
    Task(Task),
    Exchange(Exchange),
    /// End when all tasks have.
    Close,
}

/// What the engine's thread and the program's share.
#[derive(Debug)]
pub(crate) struct Shared {
    commands: Mutex<VecDeque<Command>>,
    wake: Condvar,
    /// The program gives up.
    pub(crate) abort: AtomicBool,
    /// Number of the last task that has ended.
    pub(crate) ended: AtomicU32,
    /// The first failure.
    failure: Mutex<Option<Failure>>,
    pub(crate) words: Words,
    /// Loaded by the program's thread before it lets a stream wait.
    pub(crate) kernels: LoadedKernels,
}

impl Shared {
    pub(crate) fn new(words: Words, kernels: LoadedKernels) -> Shared {
        Shared {
            commands: Mutex::default(),
            wake: Condvar::new(),
            abort: AtomicBool::new(false),
            ended: AtomicU32::new(words.first),
            failure: Mutex::new(None),
            words,
            kernels,
        }
    }

    pub(crate) fn tell(&self, command: Command) {
        lock(&self.commands).push_back(command);
        self.wake.notify_one();
    }

    /// Ends everything soon, and lets streams go on.
    pub(crate) fn give_up(&self) {
        self.abort.store(true, Ordering::Release);
        let _commands = lock(&self.commands);
        self.wake.notify_one();
    }

    pub(crate) fn failure(&self) -> Option<Failure> {
        lock(&self.failure).clone()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// The thread's own.
pub(crate) struct Engine {
    pub(crate) shared: Arc<Shared>,
    /// Before the process: a vendor's communicator ends before the memory that it may use is given back.
    pub(crate) communicator: Communicator,
    pub(crate) process: Process,
    pub(crate) context: Context,
    pub(crate) link: Option<Link>,
    pub(crate) rank: usize,
    pub(crate) size: usize,
    pub(crate) messages: MessageCounts,
    pub(crate) own_messages: MessageCounts,
}

impl Engine {
    /// Runs until it is closed or aborted.
    pub(crate) fn run(mut self) {
        let drivers = self.process.gpus().drivers();
        if let Some(Err(error)) = drivers.first().map(|driver| driver.adopt(self.context)) {
            self.fail(error.into());
        }
        let mut tasks: VecDeque<Task> = VecDeque::new();
        let mut running: Option<Running> = None;
        let mut exchanges: Vec<Exchanging> = Vec::new();
        let mut closing = false;
        let mut active = Instant::now();
        while !self.shared.abort.load(Ordering::Acquire) {
            let idle = tasks.is_empty() && running.is_none() && exchanges.is_empty();
            if idle && closing {
                break;
            }
            let mut moved = false;
            for command in self.commands(idle) {
                moved = true;
                match command {
                    Command::Task(task) => tasks.push_back(task),
                    Command::Exchange(exchange) => exchanges.push(self.begin_exchange(exchange)),
                    Command::Close => closing = true,
                }
            }
            moved |= self.link.as_ref().is_some_and(Link::progress);
            if self.shared.failure().is_some() {
                // Streams stay held back until the program aborts or destroys the communicator.
                tasks.clear();
            }
            if running.is_none()
                && let Some(task) = tasks.front()
                && self.is_ready(task)
            {
                moved = true;
                running = tasks.pop_front().map(Running::new);
            }
            if let Some(task) = &mut running {
                match self.advance(task) {
                    Ok(false) => {}
                    Ok(true) => {
                        self.end(task.number);
                        running = None;
                        moved = true;
                    }
                    Err(failure) => {
                        self.fail(failure);
                        if let Some(task) = running.take() {
                            self.give_up(task);
                        }
                    }
                }
            }
            let before = exchanges.len();
            exchanges.retain_mut(|exchange| !self.advance_exchange(exchange));
            moved |= exchanges.len() != before;
            if moved {
                active = Instant::now();
            } else if active.elapsed() > EAGER {
                std::thread::sleep(PAUSE);
            } else {
                std::thread::yield_now();
            }
        }
        if let Some(task) = running.take() {
            self.give_up(task);
        }
        for mut exchange in exchanges {
            self.give_up_exchange(&mut exchange);
        }
    }

    /// What has been said since the last time; waits for something where there is nothing to do.
    fn commands(&self, idle: bool) -> VecDeque<Command> {
        let mut commands = lock(&self.shared.commands);
        while idle && commands.is_empty() && !self.shared.abort.load(Ordering::Acquire) {
            commands =
                self.shared.wake.wait(commands).unwrap_or_else(|poisoned| poisoned.into_inner());
        }
        std::mem::take(&mut *commands)
    }

    fn is_ready(&self, task: &Task) -> bool {
        let words = &self.shared.words;
        task.slots.iter().all(|&slot| words.ready(slot).load(Ordering::Acquire) == task.number)
    }

    /// Lets the streams go on that wait for a task.
    fn end(&self, number: u32) {
        self.shared.words.done().store(number, Ordering::Release);
        self.shared.ended.store(number, Ordering::Release);
    }

    fn fail(&self, failure: Failure) {
        log::line(Level::Warn, &format!("rank {} of {}: {}", self.rank, self.size, failure.text));
        log::failed("collective", &failure.text);
        let code = if failure.code == Code::Success { Code::InternalError } else { failure.code };
        lock(&self.shared.failure).get_or_insert(Failure { code, ..failure });
    }
}
