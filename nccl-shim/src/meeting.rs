//! The ranks of a communicator, met: they find each other, tell each other what they are, and hear when one goes away.

use std::collections::{BTreeSet, HashMap};
use std::net::TcpStream;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

use hetccl_bootstrap::{self as bootstrap, Bootstrap, Config, Filter};

use crate::abi::{Code, UniqueId};
use crate::log::{self, Level};
use crate::{Failure, settings};

/// How long a rank tries to connect to another for messages.
const CONNECT_PATIENCE: Duration = Duration::from_secs(5);

fn failed(error: bootstrap::Error) -> Failure {
    match error {
        bootstrap::Error::Group(failure) => lost(&failure),
        bootstrap::Error::NotAnId { .. } => Failure::argument(error.to_string()),
        bootstrap::Error::WrongUse(text) => Failure::usage(text),
        bootstrap::Error::Aborted => Failure::usage("the communicator was aborted"),
        other => Failure::new(Code::SystemError, other.to_string()),
    }
}

/// Ranks that have gone away, or never came.
fn lost(failure: &bootstrap::Failure) -> Failure {
    Failure::new(Code::RemoteError, failure.to_string())
}

fn config() -> Result<Config, Failure> {
    Config::from_variables(settings::variable).map_err(failed)
}

/// A new id; this process serves the ranks that come with it.
///
/// # Errors
/// A setting that can't be, no interface, no port.
pub(crate) fn create() -> Result<UniqueId, Failure> {
    let id = bootstrap::UniqueId::create(&config()?).map_err(failed)?;
    Ok(UniqueId { bytes: id.to_bytes() })
}

/// Whether hetccl made an id.
pub(crate) fn is_own(id: &UniqueId) -> bool {
    !matches!(bootstrap::UniqueId::from_bytes(&id.bytes), Err(bootstrap::Error::NotAnId { .. }))
}

/// The ranks of a communicator, met. They stay in touch as long as the communicator lives.
#[derive(Clone, Debug)]
pub(crate) struct Meeting(Option<Arc<Met>>);

#[derive(Debug)]
struct Met {
    group: Bootstrap,
    turns: Mutex<Turns>,
    turned: Condvar,
    /// How often a list of ranks has split off.
    splits: Mutex<HashMap<Vec<u32>, u64>>,
}

/// Whose turn it is to exchange something: calls that make communicators, in the order in which the program makes them.
#[derive(Debug, Default)]
struct Turns {
    /// Tickets given out.
    given: u64,
    /// The number whose turn it is.
    now: u64,
    /// Later numbers that are done with already.
    done: BTreeSet<u64>,
}

/// A place in the order of exchanges, which all ranks take in the same order. One that is dropped gives up its turn.
#[derive(Debug)]
pub(crate) struct Ticket {
    meeting: Meeting,
    number: u64,
}

impl Ticket {
    /// As [`Meeting::gather`], when all that took a ticket before have had their turn.
    ///
    /// # Errors
    /// A rank has gone.
    pub(crate) fn gather(self, own: Vec<u8>) -> Result<Vec<Vec<u8>>, Failure> {
        if let Some(met) = &self.meeting.0 {
            let waited = met.turned.wait_while(met.turns(), |turns| turns.now != self.number);
            drop(waited.unwrap_or_else(|poisoned| poisoned.into_inner()));
        }
        self.meeting.gather(own)
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let Some(met) = &self.meeting.0 else { return };
        let mut turns = met.turns();
        turns.done.insert(self.number);
        while turns.done.first() == Some(&turns.now) {
            turns.done.pop_first();
            turns.now += 1;
        }
        met.turned.notify_all();
    }
}

impl Met {
    fn turns(&self) -> MutexGuard<'_, Turns> {
        self.turns.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

/// Meets all ranks that have the ids. Gives up soon after `abandoned` becomes true.
///
/// # Errors
/// An id that is not hetccl's, no way to its maker, or ranks that do not come.
pub(crate) fn meet(
    ids: &[UniqueId],
    rank: usize,
    size: usize,
    abandoned: &AtomicBool,
) -> Result<Meeting, Failure> {
    if size == 1 {
        return Ok(Meeting(None));
    }
    let ids = ids.iter().map(|id| bootstrap::UniqueId::from_bytes(&id.bytes));
    let ids = ids.collect::<Result<Vec<_>, _>>().map_err(failed)?;
    let (rank, size) = (rank as u32, size as u32);
    let config = config()?;
    let group = Bootstrap::join_unless(&ids, rank, size, &config, abandoned).map_err(failed)?;
    let addresses: Vec<String> = group
        .addresses()
        .iter()
        .map(|address| format!("{} {}", address.interface, address.ip))
        .collect();
    let chosen = match config.interfaces == Filter::default() {
        true => "NCCL_SOCKET_IFNAME is not set".to_owned(),
        false => config.interfaces.to_string(),
    };
    let text =
        format!("rank {rank} of {size}: others reach it by {} ({chosen})", addresses.join(", "));
    log::line(Level::Info, &text);
    Ok(Meeting::of(group))
}

impl Meeting {
    fn of(group: Bootstrap) -> Meeting {
        let (turns, turned, splits) = (Mutex::default(), Condvar::new(), Mutex::default());
        Meeting(Some(Arc::new(Met { group, turns, turned, splits })))
    }

    /// Gives `own` to all ranks and returns everybody's, in the order of ranks.
    ///
    /// # Errors
    /// A rank has gone.
    pub(crate) fn gather(&self, own: Vec<u8>) -> Result<Vec<Vec<u8>>, Failure> {
        match &self.0 {
            None => Ok(vec![own]),
            Some(met) => met.group.allgather(&own).map_err(failed),
        }
    }

    /// The next place in the order of exchanges.
    pub(crate) fn ticket(&self) -> Ticket {
        let number = self.0.as_ref().map_or(0, |met| {
            let mut turns = met.turns();
            turns.given += 1;
            turns.given - 1
        });
        Ticket { meeting: self.clone(), number }
    }

    /// Returns when all ranks have come to it.
    ///
    /// # Errors
    /// A rank has gone.
    pub(crate) fn part(&self) -> Result<(), Failure> {
        self.0.as_ref().map_or(Ok(()), |met| met.group.barrier().map_err(failed))
    }

    /// A meeting of some of the ranks, in this order, this one among them; the same list on all of them. Also when others
    /// have gone.
    ///
    /// # Errors
    /// One of them does not come.
    pub(crate) fn split(&self, members: &[usize]) -> Result<Meeting, Failure> {
        let (Some(met), true) = (&self.0, members.len() > 1) else { return Ok(Meeting(None)) };
        let list: Vec<u32> = members.iter().map(|&rank| rank as u32).collect();
        let mut splits = met.splits.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let count = splits.entry(list.clone()).or_default();
        let tag = *count;
        *count += 1;
        drop(splits);
        if let Some(failure) = met.group.failure()
            && let Some(gone) = list.iter().find(|rank| failure.ranks.contains(rank))
        {
            let text = format!("rank {gone} is to be in the new communicator, but {failure}");
            return Err(Failure::new(Code::RemoteError, text));
        }
        met.group.split(&list, tag).map(Meeting::of).map_err(failed)
    }

    /// What has ended the meeting: a rank that has gone, or one that has aborted.
    pub(crate) fn failure(&self) -> Option<Failure> {
        self.0.as_ref().and_then(|met| met.group.failure()).as_ref().map(lost)
    }

    /// A rank as errors name it: its number, process and host.
    pub(crate) fn describe(&self, rank: usize) -> String {
        match &self.0 {
            Some(met) => met.group.describe(rank as u32),
            None => format!("rank {rank}"),
        }
    }

    /// A connection to another rank, which gets it from [`Meeting::streams`].
    ///
    /// # Errors
    /// What kept it from being made, in words.
    pub(crate) fn connect(&self, rank: usize) -> Result<TcpStream, String> {
        let met = self.0.as_ref().ok_or("there are no other ranks")?;
        met.group.connect(rank as u32, CONNECT_PATIENCE).map_err(|error| error.to_string())
    }

    /// Connections that other ranks have made since the last time.
    pub(crate) fn streams(&self) -> Vec<(usize, TcpStream)> {
        let streams = self.0.as_ref().map(|met| met.group.streams()).unwrap_or_default();
        streams.into_iter().map(|(rank, stream)| (rank as usize, stream)).collect()
    }

    /// Leaves in good order: the others do not take it for a failure.
    pub(crate) fn leave(&self) {
        if let Some(met) = &self.0 {
            met.group.leave();
        }
    }

    /// Tells the others that this rank has failed, and why: they would wait for it.
    pub(crate) fn give_up(&self, rank: usize, why: &str) {
        if let Some(met) = &self.0 {
            met.group.give_up(format!("{} has failed: {why}", self.describe(rank)));
        }
    }

    /// Ends what this rank does in the meeting, and tells the others.
    pub(crate) fn abort(&self) {
        if let Some(met) = &self.0 {
            met.group.abort();
        }
    }
}
