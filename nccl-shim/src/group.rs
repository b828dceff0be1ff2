//! What a thread has said between `ncclGroupStart` and `ncclGroupEnd`.

use std::cell::RefCell;
use std::sync::Arc;

use crate::Failure;
use crate::abi::Code;
use crate::comm::Comm;
use crate::operation::Work;

/// Making a communicator: runs in a thread of its own.
pub(crate) struct Making {
    pub(crate) comm: Arc<Comm>,
    pub(crate) make: Box<dyn FnOnce() + Send>,
}

struct Queued {
    comm: Arc<Comm>,
    streams: Vec<usize>,
    works: Vec<Work>,
}

#[derive(Default)]
struct Group {
    depth: usize,
    making: Vec<Making>,
    queued: Vec<Queued>,
    failure: Option<Failure>,
}

thread_local! {
    static GROUP: RefCell<Group> = RefCell::default();
}

/// Opens a group, or another one inside.
pub(crate) fn start() {
    GROUP.with_borrow_mut(|group| group.depth += 1);
}

/// Closes the innermost group; the outermost one is carried out.
///
/// # Errors
/// No group is open, or the first failure among the group's calls.
pub(crate) fn end() -> Result<(), Failure> {
    let whole = GROUP.with_borrow_mut(|group| {
        if group.depth == 0 {
            return Err(Failure::usage("ncclGroupEnd without ncclGroupStart in this thread"));
        }
        group.depth -= 1;
        Ok((group.depth == 0).then(|| std::mem::take(group)))
    })?;
    let Some(group) = whole else { return Ok(()) };
    if let Some(failure) = group.failure {
        return Err(failure);
    }
    make_all(group.making)?;
    for Queued { comm, works, .. } in &group.queued {
        comm.working()?.load_kernels(works)?;
    }
    group.queued.into_iter().try_for_each(queue)
}

/// Notes a failed call: the group fails as a whole.
pub(crate) fn note(failure: &Failure) {
    GROUP.with_borrow_mut(|group| {
        if group.depth > 0 {
            group.failure.get_or_insert_with(|| failure.clone());
        }
    });
}

/// Makes a communicator now, or at the end of the group.
///
/// # Errors
/// It could not be made; [`Code::InProgress`] where the caller does not wait.
pub(crate) fn make(making: Making) -> Result<(), Failure> {
    let now = GROUP.with_borrow_mut(|group| {
        if group.depth == 0 {
            return Some(making);
        }
        group.making.push(making);
        None
    });
    now.map_or(Ok(()), |making| make_all(vec![making]))
}

/// Queues work now, or at the end of the group.
///
/// # Errors
/// Of the driver.
pub(crate) fn add(comm: Arc<Comm>, stream: usize, work: Option<Work>) -> Result<(), Failure> {
    work.map_or(Ok(()), |work| add_all(comm, stream, vec![work]))
}

/// The same for several works of one call.
///
/// # Errors
/// Of the driver.
pub(crate) fn add_all(comm: Arc<Comm>, stream: usize, works: Vec<Work>) -> Result<(), Failure> {
    let now = GROUP.with_borrow_mut(|group| {
        if group.depth == 0 {
            return Some(Queued { comm, streams: vec![stream], works });
        }
        match group.queued.iter_mut().find(|queued| Arc::ptr_eq(&queued.comm, &comm)) {
            Some(queued) => {
                queued.works.extend(works);
                if !queued.streams.contains(&stream) {
                    queued.streams.push(stream);
                }
            }
            None => group.queued.push(Queued { comm, streams: vec![stream], works }),
        }
        None
    });
    now.map_or(Ok(()), queue)
}

fn queue(queued: Queued) -> Result<(), Failure> {
    let Queued { comm, streams, works } = queued;
    comm.working()?.queue(comm.device.context, &streams, works)
}

/// All at once, because they may wait for each other.
fn make_all(all: Vec<Making>) -> Result<(), Failure> {
    let mut threads = Vec::new();
    for Making { comm, make } in all {
        let thread = std::thread::Builder::new()
            .name("hetccl-init".into())
            .spawn(make)
            .map_err(|error| Failure::system("starting a thread", &error))?;
        threads.push((comm, thread));
    }
    let mut outcome = Ok(());
    for (comm, thread) in threads {
        if comm.nonblocking {
            if outcome.is_ok() {
                outcome = Err(Failure::new(Code::InProgress, "the communicator is being made"));
            }
            continue;
        }
        // A panic there has left `made` empty.
        let _ = thread.join();
        let made = match comm.made.get() {
            Some(Ok(_)) => Ok(()),
            // A rank that took part in a split and is in none of its parts.
            Some(Err(failure)) if failure.code == Code::Success => Ok(()),
            Some(Err(failure)) => Err(failure.clone()),
            None => {
                Err(Failure::new(Code::InternalError, "the making of a communicator ended early"))
            }
        };
        if let Err(failure) = made
            && !matches!(&outcome, Err(before) if before.code != Code::InProgress)
        {
            outcome = Err(failure);
        }
    }
    outcome
}
