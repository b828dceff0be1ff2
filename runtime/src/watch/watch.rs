//! One communicator's members, looked at by a rank that waits.

use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use hetccl_ucx::Process;

use super::call::CallWord;
use super::journal::{BLOCKING, Ended, KINDS, Ticket, Track};
use super::judge::{Policy, Sight, Trouble, Verdict, differs, judge};
use super::reading::OpenJournal;

/// Time between looks.
pub const INTERVAL: Duration = Duration::from_millis(100);
/// A rank that has not looked for so long was held up itself: what it saw before counts no more.
const HELD_UP: Duration = Duration::from_secs(5);

/// What is known of a member, from when the job started.
#[derive(Clone, Debug)]
pub struct Member {
    /// Its process; nobody where that is not known.
    pub process: Process,
    /// The descriptor of its journal there; negative: none.
    pub journal: i32,
    /// Its host's name.
    pub host: String,
}

/// Finds out about all members, in the order of their ranks. Called once, by a rank that waits.
pub type Members = Box<dyn FnMut() -> Vec<Member> + Send>;

/// One member as it is followed.
struct Followed {
    member: Member,
    visible: bool,
    journal: Option<OpenJournal>,
    stopped_since: Option<Instant>,
}

/// A wait: when it began, and what has been said.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    ticket: Option<Ticket>,
    began: Instant,
    last: Instant,
    next_report: Duration,
}

impl Patience {
    /// At the beginning of a wait.
    pub fn new() -> Patience {
        let now = Instant::now();
        Patience { ticket: None, began: now, last: now, next_report: Duration::ZERO }
    }

    /// Whether it is time to look again.
    pub fn is_due(&self) -> bool {
        self.last.elapsed() >= INTERVAL
    }
}

impl Default for Patience {
    fn default() -> Patience {
        Patience::new()
    }
}

/// A communicator's journal, and its other members. See the [module documentation](super).
pub struct Watch {
    track: Track,
    policy: Policy,
    context: u32,
    rank: usize,
    size: usize,
    /// The oldest call of each kind that is waited for here, unless the caller keeps it.
    current: [Mutex<Patience>; KINDS],
    followed: Mutex<(Members, Option<Vec<Followed>>)>,
    tell: fn(&str),
    /// Calls so far, by kind.
    counts: [std::sync::atomic::AtomicU64; KINDS],
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch").field("context", &self.context).field("rank", &self.rank).finish()
    }
}

impl Watch {
    /// A watch over the communicator `context`, in which this rank is `rank` of `size`. `tell` prints a line.
    pub fn new(
        track: Track,
        policy: Policy,
        (context, rank, size): (u32, usize, usize),
        members: Members,
        tell: fn(&str),
    ) -> Watch {
        Watch {
            track,
            policy,
            context,
            rank,
            size,
            current: Default::default(),
            followed: Mutex::new((members, None)),
            tell,
            counts: Default::default(),
        }
    }

    /// Writes down that a call of a kind ([`BLOCKING`](super::BLOCKING) and its like) begins.
    #[inline]
    pub fn begin(&self, kind: u8, call: CallWord, bytes: usize) -> Ticket {
        use std::sync::atomic::Ordering::Relaxed;
        // Calls of a kind come from one thread at a time.
        let count = &self.counts[usize::from(kind) % KINDS];
        let number = count.load(Relaxed);
        count.store(number + 1, Relaxed);
        self.track.begin(kind, number, call, bytes)
    }

    /// Writes down how it ended.
    #[inline]
    pub fn end(&self, ticket: Ticket, ended: Ended) {
        self.track.end(ticket, ended);
    }

    /// Writes down that the call begun last has ended well.
    #[inline]
    pub fn end_last(&self) {
        self.track.end_last();
    }

    /// Whether an earlier call has failed in the middle: nothing more can come of the communicator.
    #[inline]
    pub fn is_broken(&self) -> bool {
        self.track.is_broken()
    }

    /// The last call of a kind.
    pub fn last(&self, kind: u8) -> Option<Ticket> {
        self.track.last(kind)
    }

    /// Whether calls are compared.
    #[inline]
    pub fn compares(&self) -> bool {
        self.policy.compare
    }

    /// The journal's share.
    pub fn track(&self) -> &Track {
        &self.track
    }

    /// Looks at the others for a rank that waits in `ticket`, for `peer` where that is known.
    ///
    /// # Errors
    /// Why there is no use in waiting.
    pub fn look(
        &self,
        ticket: Ticket,
        patience: &mut Patience,
        peer: Option<usize>,
    ) -> Result<(), Trouble> {
        let now = Instant::now();
        if patience.ticket != Some(ticket) {
            *patience = self.patience_for(ticket);
        }
        let held_up = now.duration_since(patience.last) >= HELD_UP;
        patience.last = now;
        let waited = now.duration_since(patience.began);
        let mut guard = self.followed.lock().unwrap_or_else(PoisonError::into_inner);
        let (members, followed) = &mut *guard;
        let followed = followed.get_or_insert_with(|| follow(members()));
        let sights: Vec<Sight> = followed
            .iter_mut()
            .enumerate()
            .map(|(rank, other)| {
                if held_up {
                    other.stopped_since = None;
                }
                if rank == self.rank { Sight::Hidden } else { self.see(rank, other, now) }
            })
            .collect();
        match judge(&self.policy, &ticket, waited, &sights) {
            Verdict::Wait => Ok(()),
            Verdict::Report => {
                if waited >= patience.next_report {
                    patience.next_report = waited * 2;
                    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
                    let since = since.unwrap_or_default().saturating_sub(waited);
                    self.track.note_waiting(since.as_millis() as u64, peer);
                    (self.tell)(&self.report(ticket, waited, peer, followed, &sights));
                }
                Ok(())
            }
            Verdict::Fail(trouble) => Err(trouble),
        }
    }

    /// As [`look`](Watch::look), for the blocking call under way.
    ///
    /// # Errors
    /// Why there is no use in waiting.
    pub fn look_in_call(&self, peer: usize) -> Result<(), Trouble> {
        let Some(ticket) = self.track.last(BLOCKING) else { return Ok(()) };
        let mut patience = self.patience(ticket);
        self.look(ticket, &mut patience, Some(peer))
    }

    /// As [`look`](Watch::look), for a nonblocking call that is polled: the oldest of its kind, each time that [`INTERVAL`] is
    /// over. The first time it is only noted: most calls are over by the next.
    ///
    /// # Errors
    /// Why there is no use in waiting.
    pub fn look_at_polled(&self, ticket: Ticket) -> Result<(), Trouble> {
        let mut patience = self.patience(ticket);
        if patience.ticket != Some(ticket) {
            *patience = self.patience_for(ticket);
            return Ok(());
        }
        self.look(ticket, &mut patience, None)
    }

    /// What a member has called instead of `ticket`, when shared memory has told that it was something else; `None` where it
    /// can't be seen any more.
    pub fn difference(&self, ticket: Ticket, peer: usize) -> Option<Trouble> {
        let mut guard = self.followed.lock().unwrap_or_else(PoisonError::into_inner);
        let (members, followed) = &mut *guard;
        let other = followed.get_or_insert_with(|| follow(members())).get_mut(peer)?;
        let Sight::Lives { record, .. } = self.see(peer, other, Instant::now()) else {
            return None;
        };
        differs(&self.policy, &record?, &ticket, peer)
    }

    fn patience(&self, ticket: Ticket) -> MutexGuard<'_, Patience> {
        let current = &self.current[usize::from(ticket.kind) % KINDS];
        current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn patience_for(&self, ticket: Ticket) -> Patience {
        Patience { ticket: Some(ticket), next_report: self.policy.stall, ..Patience::new() }
    }

    fn see(&self, rank: usize, other: &mut Followed, now: Instant) -> Sight {
        if !other.visible {
            return Sight::Hidden;
        }
        let Some(state) = other.member.process.state() else { return Sight::Ended };
        other.stopped_since = match state {
            'T' => other.stopped_since.or(Some(now)),
            _ => None,
        };
        let stopped = other.stopped_since.map(|since| now.duration_since(since));
        let (rank, size) = (rank as u32, self.size as u32);
        let record = other.journal.as_mut().and_then(|j| j.communicator(self.context, rank, size));
        Sight::Lives { stopped, record }
    }

    /// The words for a trouble of the call `ticket`.
    pub fn describe(&self, ticket: Ticket, trouble: Trouble) -> String {
        let mut guard = self.followed.lock().unwrap_or_else(PoisonError::into_inner);
        let (members, followed) = &mut *guard;
        let followed = followed.get_or_insert_with(|| follow(members()));
        let who = |peer: usize| match followed.get(peer) {
            Some(other) => name(peer, &other.member),
            None => format!("rank {peer}"),
        };
        let number = ticket.number;
        match trouble {
            Trouble::Ended { peer } => format!("{} has ended in the middle of the job", who(peer)),
            Trouble::Stopped { peer, seconds } => format!(
                "{} has been stopped for {seconds} s (coll_hetccl_peer_timeout_seconds); continue it (kill -CONT), or look why",
                who(peer)
            ),
            Trouble::GaveUp { peer, number: there, .. } if there == number => {
                format!("{} has failed in the same call; it says why", who(peer))
            }
            Trouble::GaveUp { peer, number: there, .. } => {
                format!("{} has failed in call number {there} on this communicator", who(peer))
            }
            Trouble::Mismatch { peer, call, bytes } => format!(
                "the ranks differ: {} called {}, this rank {} as number {number}",
                who(peer),
                with_bytes(call, bytes),
                with_bytes(ticket.call, ticket.bytes)
            ),
            Trouble::Limit { seconds } => {
                format!("{seconds} s are over (coll_hetccl_wait_limit_seconds)")
            }
        }
    }

    fn report(
        &self,
        ticket: Ticket,
        waited: Duration,
        peer: Option<usize>,
        followed: &[Followed],
        sights: &[Sight],
    ) -> String {
        let me = followed.get(self.rank).map_or_else(String::new, |me| name(self.rank, &me.member));
        let mut text = format!(
            "{me} waits since {} s in {}, number {} on communicator {}",
            waited.as_secs(),
            with_bytes(ticket.call, ticket.bytes),
            ticket.number,
            self.context
        );
        if let Some(peer) = peer {
            text.push_str(&format!(", for rank {peer}"));
        }
        let mut hidden = 0;
        for (rank, sight) in sights.iter().enumerate().filter(|(rank, _)| *rank != self.rank) {
            let Sight::Lives { stopped, record } = sight else {
                hidden += 1;
                continue;
            };
            let last = record.as_ref().and_then(|record| {
                record.operations.iter().rfind(|op| op.kind == ticket.kind).copied()
            });
            if last.is_some_and(|op| op.number >= ticket.number) && stopped.is_none() {
                continue;
            }
            let place = match last {
                Some(op) => format!(
                    "last in {}, number {}, {}",
                    with_bytes(op.call, op.bytes),
                    op.number,
                    op.state.name()
                ),
                None => "has called nothing on it yet".to_owned(),
            };
            let stopped = if stopped.is_some() { "stopped, " } else { "" };
            text.push_str(&format!(
                "\n  not there: {}: {stopped}{place}",
                name(rank, &followed[rank].member)
            ));
        }
        if hidden > 0 {
            text.push_str(&format!("\n  not to be seen from here: {hidden} ranks of other hosts"));
        }
        text
    }
}

fn with_bytes(call: CallWord, bytes: u64) -> String {
    if call.has_uniform_bytes() { format!("{call} ({bytes} bytes)") } else { call.to_string() }
}

fn name(rank: usize, member: &Member) -> String {
    match member.process.pid() {
        0 => format!("rank {rank}"),
        pid => format!("rank {rank} (host {}, pid {pid})", member.host),
    }
}

fn follow(members: Vec<Member>) -> Vec<Followed> {
    let this = Process::this();
    members
        .into_iter()
        .map(|member| {
            let visible = this.sees(&member.process);
            let journal = if visible && member.journal >= 0 {
                OpenJournal::open(member.process.pid(), member.journal)
            } else {
                None
            };
            Followed { member, visible, journal, stopped_since: None }
        })
        .collect()
}
