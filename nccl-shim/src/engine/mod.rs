//! A communicator's thread: it owns the runtime's process, takes tasks in order, and sleeps when there are none.

mod collective;
mod one_sided;
mod replay;
mod slices;
mod task;
mod trouble;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, mpsc};
use std::time::{Duration, Instant};

use hetccl_runtime::gpu::{CaptureMode, Context, LoadedKernels};
use hetccl_runtime::{Communicator, MessageCounts, Process};

use crate::Failure;
use crate::abi::Code;
use crate::log::{self, Level};
use crate::meeting::Meeting;
use crate::mesh::Link;
use crate::operation::Work;
use crate::order::Words;

pub(crate) use one_sided::{Listening, Window, Windows};
pub(crate) use replay::Recorded;
use replay::Replays;
use task::{End, Running};

/// How long a thread that waits looks again and again before it sleeps between looks.
const EAGER: Duration = Duration::from_millis(2);
const PAUSE: Duration = Duration::from_micros(50);
/// How long a thread without tasks looks for the next one before it sleeps until it is woken: small calls that follow each
/// other would each pay for a wake-up.
const LINGER: Duration = Duration::from_micros(200);
/// How long a thread without tasks sleeps that others may put something into the windows of.
const LISTENING_PAUSE: Duration = Duration::from_millis(1);

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
    /// A call in a graph.
    Recorded(Recorded),
    /// The graph with this number has been launched.
    Launched(u64),
    /// The graph with this number is no longer there.
    Gone(u64),
    /// Others may put something into this rank's windows from now on.
    Listen,
    /// Give unused memory back, and say so.
    Trim(mpsc::Sender<()>),
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
    windows: Mutex<Windows>,
    pub(crate) words: Words,
    /// The context that the engine works in.
    pub(crate) context: Context,
    /// Loaded by the program's thread before it lets a stream wait.
    pub(crate) kernels: LoadedKernels,
}

impl Shared {
    pub(crate) fn new(words: Words, context: Context, kernels: LoadedKernels) -> Shared {
        Shared {
            commands: Mutex::default(),
            wake: Condvar::new(),
            abort: AtomicBool::new(false),
            ended: AtomicU32::new(words.first),
            failure: Mutex::new(None),
            windows: Mutex::default(),
            words,
            context,
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

    /// The rank's windows, by number.
    pub(crate) fn windows(&self) -> MutexGuard<'_, Windows> {
        lock(&self.windows)
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
    pub(crate) link: Option<Link>,
    pub(crate) rank: usize,
    pub(crate) size: usize,
    pub(crate) messages: MessageCounts,
    /// Tasks in which rank 0 has declined something since it last did what it might have declined.
    pub(crate) declined_in_a_row: u32,
    pub(crate) meeting: Meeting,
    /// When it was noticed that the meeting is over, while a task still runs.
    pub(crate) noticed: Option<Instant>,
    pub(crate) listening: Option<Box<Listening>>,
}

impl Engine {
    /// Runs until it is closed or aborted.
    pub(crate) fn run(mut self) {
        let drivers = self.process.gpus().drivers();
        // Graphs that the program records have nothing to do with this thread's calls.
        let prepared = drivers.first().map_or(Ok(()), |driver| {
            driver.adopt(self.shared.context)?;
            driver.exchange_capture_mode(CaptureMode::Relaxed).map(drop)
        });
        if let Err(error) = prepared {
            self.fail(error.into());
        }
        let mut tasks: VecDeque<Task> = VecDeque::new();
        let mut running: Option<Running> = None;
        let mut replays = Replays::default();
        let mut closing = false;
        let mut active = Instant::now();
        while !self.shared.abort.load(Ordering::Acquire) {
            let idle = tasks.is_empty() && running.is_none() && !replays.are_awaited();
            if idle && closing {
                break;
            }
            let mut moved = false;
            for command in self.commands(idle && active.elapsed() > LINGER) {
                moved = true;
                match command {
                    Command::Task(task) => tasks.push_back(task),
                    Command::Recorded(recorded) => replays.record(recorded),
                    Command::Launched(graph) => replays.launched(graph),
                    Command::Gone(graph) => replays.gone(graph),
                    Command::Listen => self.listen(),
                    Command::Trim(done) => {
                        self.process.gpus().trim();
                        // The asker may have gone.
                        let _ = done.send(());
                    }
                    Command::Close => closing = true,
                }
            }
            moved |= self.link.as_ref().is_some_and(Link::progress);
            moved |= self.take_puts();
            if self.shared.failure().is_some() {
                // What the tasks would have done is not there, which the next call and the asynchronous error say; a stream
                // that waits for ever would say nothing.
                tasks.drain(..).for_each(|task| self.end(task.number));
                replays.dismiss();
            } else if running.is_none() {
                running = replays.next();
                if running.is_none() && tasks.front().is_some_and(|task| self.is_ready(task)) {
                    running = tasks.pop_front().map(Running::new);
                }
                moved |= running.is_some();
            }
            if let Some(task) = &mut running {
                let advanced = self.advance(task);
                match self.with_meeting(task, advanced) {
                    Ok(false) => {}
                    Ok(true) => {
                        self.let_go(task.end, &mut replays);
                        running = None;
                        moved = true;
                    }
                    Err(failure) => {
                        // What an abort ends is no failure.
                        if !self.shared.abort.load(Ordering::Acquire) {
                            self.fail(failure);
                        }
                        if let Some(task) = running.take() {
                            let end = task.end;
                            self.give_up(task);
                            self.let_go(end, &mut replays);
                        }
                    }
                }
            }
            if moved {
                active = Instant::now();
            } else if active.elapsed() > EAGER {
                std::thread::sleep(PAUSE);
            } else {
                std::thread::yield_now();
            }
        }
        if self.shared.abort.load(Ordering::Acquire) {
            replays.release();
        }
        if let Some(task) = running.take() {
            self.give_up(task);
        }
        self.stop_listening();
        let is_over = self.shared.failure().is_some() || self.meeting.failure().is_some();
        if is_over || self.shared.abort.load(Ordering::Acquire) {
            self.communicator.end_library();
        }
        let usage = self.process.gpus().usage();
        log::line(
            Level::Info,
            &format!(
                "rank {} of {}: had at most {} KiB of device memory and {} KiB of pinned host memory",
                self.rank,
                self.size,
                usage.most_device_bytes >> 10,
                usage.most_pinned_bytes >> 10
            ),
        );
    }

    /// Takes in what others have put into this rank's windows; whether anything has come.
    fn take_puts(&mut self) -> bool {
        self.serve_puts().unwrap_or_else(|failure| {
            self.fail(failure);
            self.stop_listening();
            true
        })
    }

    /// What has been said since the last time; where the thread may sleep, it waits for something.
    fn commands(&self, may_sleep: bool) -> VecDeque<Command> {
        let mut commands = lock(&self.shared.commands);
        while may_sleep && commands.is_empty() && !self.shared.abort.load(Ordering::Acquire) {
            let wake = &self.shared.wake;
            if self.listening.is_some() {
                let waited = wake.wait_timeout(commands, LISTENING_PAUSE);
                commands = waited.unwrap_or_else(|poisoned| poisoned.into_inner()).0;
                break;
            }
            commands = wake.wait(commands).unwrap_or_else(|poisoned| poisoned.into_inner());
        }
        std::mem::take(&mut *commands)
    }

    fn is_ready(&self, task: &Task) -> bool {
        let words = &self.shared.words;
        task.slots.iter().all(|&slot| words.ready(slot).load(Ordering::Acquire) == task.number)
    }

    /// Lets the streams go on that wait for what has ended.
    fn let_go(&self, end: End, replays: &mut Replays) {
        match end {
            End::Task(number) => self.end(number),
            End::Graph(place) => replays.end(place),
        }
    }

    /// Lets the streams go on that wait for a task.
    fn end(&self, number: u32) {
        self.shared.words.done().store(number, Ordering::Release);
        self.shared.ended.store(number, Ordering::Release);
    }

    fn fail(&mut self, failure: Failure) {
        log::broken(&format!("rank {} of {}: {}", self.rank, self.size, failure.text));
        let code = if failure.code == Code::Success { Code::InternalError } else { failure.code };
        lock(&self.shared.failure).get_or_insert(Failure { code, ..failure.clone() });
        // Its kernels may wait for a rank that has failed.
        self.communicator.end_library();
        if failure.code != Code::RemoteError {
            // The others would wait for this rank.
            self.meeting.give_up(self.rank, &failure.text);
        }
    }
}
