//! A group of ranks that have found each other.

use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde_bytes::ByteBuf;

use crate::config::Config;
use crate::connect::{self, Target};
use crate::error::{Error, Failure, Result};
use crate::hub::{self, Hub};
use crate::id::UniqueId;
use crate::interfaces::{self, Address};
use crate::join::{self, FIRST_CONTEXT, Joining};
use crate::mailbox::Mailbox;
use crate::tree::{self, Stop, Tree};
use crate::watch;
use crate::wire::{self, Member, Operation, Reply, Request};

/// The longest message from one rank to another.
pub const MOST_MESSAGE_BYTES: usize = 64 << 20;

/// How often a receiver looks whether its neighbours are still there.
const LOOK: Duration = Duration::from_millis(100);

/// The ranks of a communicator, connected over TCP.
///
/// Collective calls (allgather, barrier, split) must be made by all ranks in the same order. A failure is final: it is told
/// to the other ranks, and every later call returns it.
///
/// A thread of this process watches over all its groups, so that a rank that goes away is noticed, and told to the others,
/// also while nobody calls anything.
pub struct Bootstrap {
    group: Arc<Group>,
}

/// What a group's owner and the watch share.
pub(crate) struct Group {
    rank: u32,
    members: Arc<Vec<Member>>,
    context: u64,
    door: Arc<Door>,
    tree: Mutex<Tree>,
    failure: Mutex<Option<Failure>>,
    /// Whether there is a failure or an abort: quicker to ask.
    over: AtomicBool,
    abort: AtomicBool,
    config: Config,
}

/// What this process's port leads to for one rank; shared with the groups that are split off.
struct Door {
    mailbox: Arc<Mailbox>,
    hub: Option<Arc<Hub>>,
    member: Member,
}

impl Drop for Door {
    fn drop(&mut self) {
        if let Some(hub) = &self.hub {
            hub.remove_member(self.member.secret);
        }
    }
}

impl Bootstrap {
    /// Joins the group of an id, or of several: ranks are split among their roots in equal parts.
    ///
    /// # Errors
    /// What kept the group from being made, the same on all ranks as far as they can be told: a rank missing, twice, or
    /// gone; ranks that disagree about their number; a process that can't be reached.
    pub fn join(ids: &[UniqueId], rank: u32, size: u32, config: &Config) -> Result<Bootstrap> {
        Bootstrap::join_unless(ids, rank, size, config, &AtomicBool::new(false))
    }

    /// As [`Bootstrap::join`]; ends with [`Error::Aborted`] within a second when `abort` becomes true.
    ///
    /// # Errors
    /// As [`Bootstrap::join`].
    pub fn join_unless(
        ids: &[UniqueId],
        rank: u32,
        size: u32,
        config: &Config,
        abort: &AtomicBool,
    ) -> Result<Bootstrap> {
        if rank >= size {
            return Err(Error::WrongUse(format!("rank {rank} of {size} ranks")));
        }
        if ids.is_empty() || ids.len() > size as usize {
            let count = ids.len();
            return Err(Error::WrongUse(format!(
                "{count} unique ids for {size} ranks: at least one, at most one a rank"
            )));
        }
        let mailbox = Arc::new(Mailbox::default());
        let host = nix::unistd::gethostname();
        let mut member = Member {
            rank,
            host: host.map_or_else(|_| "?".into(), |name| name.to_string_lossy().into_owned()),
            pid: std::process::id(),
            secret: rand::random(),
            port: 0,
            addresses: Vec::new(),
        };
        let group = |door: Door, tree: Tree, members: Vec<Member>| {
            Bootstrap::watched(Group {
                rank,
                members: Arc::new(members),
                context: FIRST_CONTEXT,
                door: Arc::new(door),
                tree: Mutex::new(tree),
                failure: Mutex::new(None),
                over: AtomicBool::new(false),
                abort: AtomicBool::new(false),
                config: config.clone(),
            })
        };
        if size == 1 {
            if !ids[0].fixed {
                Hub::forget_id(ids[0].secret);
            }
            let door = Door { mailbox, hub: None, member: member.clone() };
            return group(door, Tree::default(), vec![member]);
        }
        let hub = Hub::of_this_process(config)?;
        member.port = hub.port();
        member.addresses = interfaces::addresses_towards(config, &ids[0])?;
        hub.add_member(member.secret, Arc::clone(&mailbox));
        let door = Door { mailbox, hub: Some(hub), member };
        let joining = Joining {
            ids,
            size,
            me: &door.member,
            mailbox: &door.mailbox,
            config,
            abort,
            deadline: Instant::now() + config.timeout,
        };
        let (tree, members) = joining.run()?;
        group(door, tree, members)
    }

    fn watched(group: Group) -> Result<Bootstrap> {
        let group = Arc::new(group);
        watch::over(&group)?;
        Ok(Bootstrap { group })
    }

    /// This rank.
    pub fn rank(&self) -> u32 {
        self.group.rank
    }

    /// The number of ranks.
    pub fn size(&self) -> u32 {
        self.group.members.len() as u32
    }

    /// A rank as errors name it: its number, process and host.
    pub fn describe(&self, rank: u32) -> String {
        match self.group.members.get(rank as usize) {
            Some(member) => member.who().to_string(),
            None => format!("rank {rank}, which is not in the group"),
        }
    }

    /// Where others reach this rank, in the order in which they try it.
    pub fn addresses(&self) -> &[Address] {
        &self.group.door.member.addresses
    }

    /// Sockets that this rank holds for the group: at most 18, 9 with one unique id.
    pub fn sockets(&self) -> usize {
        self.group.lock_tree().links().count()
    }

    /// Everybody's bytes, by rank. They may differ in length.
    ///
    /// # Errors
    /// [`Error::Group`] or [`Error::Aborted`].
    pub fn allgather(&self, mine: &[u8]) -> Result<Vec<Vec<u8>>> {
        let entries = self
            .group
            .exchange(Operation::Allgather, vec![(self.group.rank, ByteBuf::from(mine))])?;
        let mut all = vec![Vec::new(); self.group.members.len()];
        for (rank, bytes) in entries {
            if let Some(place) = all.get_mut(rank as usize) {
                *place = bytes.into_vec();
            }
        }
        Ok(all)
    }

    /// Returns when all ranks have called it.
    ///
    /// # Errors
    /// [`Error::Group`] or [`Error::Aborted`].
    pub fn barrier(&self) -> Result<()> {
        self.group.exchange(Operation::Barrier, Vec::new()).map(drop)
    }

    /// Sends a message, at most [`MOST_MESSAGE_BYTES`]; returns when the other process has it, whether it receives or not.
    ///
    /// # Errors
    /// [`Error::Unreachable`] when the other process is gone, [`Error::Group`] when it refuses.
    pub fn send(&self, to: u32, tag: u64, payload: &[u8]) -> Result<()> {
        self.group.usable()?;
        let member = self.group.member(to)?;
        if payload.len() > MOST_MESSAGE_BYTES {
            let bytes = payload.len();
            return Err(Error::WrongUse(format!(
                "a message of {bytes} bytes, at most {MOST_MESSAGE_BYTES}"
            )));
        }
        if to == self.group.rank {
            let key = (self.group.context, self.group.rank, tag);
            return self
                .group
                .door
                .mailbox
                .put_message(key, payload.to_vec())
                .map_err(Error::Group);
        }
        let whom = member.who().to_string();
        let target = Target::of(member, &whom);
        let until = Instant::now() + self.group.config.connect_timeout;
        let mut stream = connect::reach(&target, until, &self.group.abort)?;
        let payload = ByteBuf::from(payload);
        let request =
            Request::Message { context: self.group.context, from: self.group.rank, tag, payload };
        let limited = stream
            .set_read_timeout(Some(self.group.config.timeout))
            .and_then(|()| stream.set_write_timeout(Some(self.group.config.timeout)));
        match limited.and_then(|()| wire::ask(&mut stream, &request)) {
            Ok(Reply::Refused(failure)) => Err(Error::Group(failure)),
            Ok(_) => Ok(()),
            Err(error) => {
                let reason = format!("{whom} did not take a message ({error})");
                Err(Error::Group(Failure {
                    ranks: vec![to],
                    noticed_by: Some(self.group.rank),
                    reason,
                }))
            }
        }
    }

    /// The next message from a rank with a tag.
    ///
    /// # Errors
    /// [`Error::Group`] when it does not come in time or a neighbour has gone, [`Error::Aborted`].
    pub fn recv(&self, from: u32, tag: u64) -> Result<Vec<u8>> {
        self.group.usable()?;
        let who = self.group.member(from)?.who();
        let key = (self.group.context, from, tag);
        let until = Instant::now() + self.group.config.timeout;
        loop {
            if let Some(payload) = self.group.door.mailbox.wait_for_message(key, LOOK) {
                return Ok(payload);
            }
            self.check()?;
            if Instant::now() >= until {
                let seconds = self.group.config.timeout.as_secs();
                let reason = format!("{who} sent nothing with tag {tag} for {seconds} s");
                return Err(Error::Group(Failure {
                    ranks: vec![from],
                    noticed_by: Some(self.group.rank),
                    reason,
                }));
            }
        }
    }

    /// A group of some of the ranks, in this order; all of them must call it with the same list and tag, the others not
    /// at all. It works also when this group has failed, so that those who are left can go on. A tag may be used once for
    /// a list.
    ///
    /// # Errors
    /// [`Error::Group`] names who did not come.
    pub fn split(&self, ranks: &[u32], tag: u64) -> Result<Bootstrap> {
        let place = ranks.iter().position(|&rank| rank == self.group.rank);
        let rank = place.ok_or_else(|| {
            Error::WrongUse(format!(
                "rank {} splits off a group that it is not in",
                self.group.rank
            ))
        })? as u32;
        let members: Result<Vec<Member>> = ranks
            .iter()
            .enumerate()
            .map(|(new, &old)| Ok(Member { rank: new as u32, ..self.group.member(old)?.clone() }))
            .collect();
        let members = members?;
        let listed: Vec<u8> = ranks.iter().flat_map(|rank| rank.to_be_bytes()).collect();
        let context =
            wire::digest(&listed, wire::digest(&tag.to_be_bytes(), self.group.context)) | 1;
        let mailbox = &self.group.door.mailbox;
        let config = &self.group.config;
        let tree = join::split_tree(&members, rank, context, mailbox, config, &self.group.abort)?;
        Bootstrap::watched(Group {
            rank,
            members: Arc::new(members),
            context,
            door: Arc::clone(&self.group.door),
            tree: Mutex::new(tree),
            failure: Mutex::new(None),
            over: AtomicBool::new(false),
            abort: AtomicBool::new(false),
            config: config.clone(),
        })
    }

    /// Whether the neighbours in the tree are there; tells the others when one is not. Takes microseconds: for whoever
    /// watches over a communicator.
    ///
    /// # Errors
    /// [`Error::Group`] that names the rank that has gone, [`Error::Aborted`].
    pub fn check(&self) -> Result<()> {
        self.group.usable()?;
        self.group.look();
        self.group.usable()
    }

    /// What has ended the group, if anything has. Costs one load while nothing has.
    pub fn failure(&self) -> Option<Failure> {
        if !self.group.over.load(Ordering::Acquire) {
            return None;
        }
        self.group.lock_failure().clone()
    }

    /// A connection to another rank for the caller's own use, which does not block; the other one gets it from
    /// [`Bootstrap::streams`]. Ends early when the group fails.
    ///
    /// # Errors
    /// [`Error::Unreachable`], [`Error::Group`], [`Error::Aborted`].
    pub fn connect(&self, to: u32, patience: Duration) -> Result<TcpStream> {
        self.group.usable()?;
        let member = self.group.member(to)?;
        let whom = member.who().to_string();
        let until = Instant::now() + patience;
        let reached = connect::reach(&Target::of(member, &whom), until, &self.group.over);
        let mut stream = match reached {
            Err(Error::Aborted) => return Err(self.group.usable().err().unwrap_or(Error::Aborted)),
            other => other?,
        };
        let (context, from) = (self.group.context, self.group.rank);
        let asked = stream.set_read_timeout(Some(patience)).and_then(|()| {
            wire::ask(&mut stream, &Request::Stream { context, from })?;
            stream.set_read_timeout(None)?;
            hub::as_link(stream)
        });
        asked.map_err(|error| {
            let reason = format!("{whom} did not take a connection ({error})");
            Error::Group(Failure { ranks: vec![to], noticed_by: Some(self.group.rank), reason })
        })
    }

    /// Connections that others have made to this rank since the last time, each with the other's rank.
    pub fn streams(&self) -> Vec<(u32, TcpStream)> {
        self.group.door.mailbox.take_streams(self.group.context)
    }

    /// Leaves the group in good order, as at the end of its use: the others are told that it is no failure.
    pub fn leave(&self) {
        self.group.lock_tree().leave();
    }

    /// Tells the others that this rank can't go on, in words; the group has failed then.
    pub fn give_up(&self, reason: String) {
        // Whoever holds the lock is in a call, which ends by an abort.
        let Ok(mut tree) = self.group.tree.try_lock() else { return self.abort() };
        if self.group.usable().is_ok() {
            self.group.fail(tree::noticed(Vec::new(), reason), &mut tree);
        }
    }

    /// Ends every call of this group in this process, from any thread, and tells the others.
    pub fn abort(&self) {
        self.group.abort.store(true, Ordering::Release);
        self.group.over.store(true, Ordering::Release);
        self.group.door.mailbox.wake();
        if let Ok(mut tree) = self.group.tree.try_lock() {
            self.group.fail(Stop::Aborted, &mut tree);
        }
    }
}

impl Group {
    /// Looks after the neighbours. Whether it could: whoever holds the lock is in a call that notices by itself.
    pub(crate) fn look(&self) -> bool {
        if self.over.load(Ordering::Acquire) {
            return true;
        }
        let Ok(mut tree) = self.tree.try_lock() else { return false };
        if let Err(stop) = tree.check() {
            self.fail(stop, &mut tree);
        }
        true
    }

    fn exchange(
        &self,
        operation: Operation,
        entries: Vec<(u32, ByteBuf)>,
    ) -> Result<Vec<(u32, ByteBuf)>> {
        let mut tree = self.lock_tree();
        self.usable()?;
        let done = tree.exchange(operation, entries, self.config.timeout, &self.abort);
        done.map_err(|stop| self.fail(stop, &mut tree))
    }

    /// Records the failure and passes it on.
    fn fail(&self, stop: Stop, tree: &mut Tree) -> Error {
        let failure = join::failure_of(&stop, self.rank);
        self.lock_failure().get_or_insert_with(|| failure.clone());
        self.over.store(true, Ordering::Release);
        self.door.mailbox.fail(self.context, failure.clone());
        tree.fail(&failure);
        match stop {
            Stop::Aborted => Error::Aborted,
            _ => Error::Group(failure),
        }
    }

    fn usable(&self) -> Result<()> {
        if self.abort.load(Ordering::Acquire) {
            return Err(Error::Aborted);
        }
        self.lock_failure().clone().map_or(Ok(()), |failure| Err(Error::Group(failure)))
    }

    fn member(&self, rank: u32) -> Result<&Member> {
        let size = self.members.len();
        self.members
            .get(rank as usize)
            .ok_or_else(|| Error::WrongUse(format!("rank {rank} of {size} ranks")))
    }

    pub(crate) fn lock_tree(&self) -> MutexGuard<'_, Tree> {
        self.tree.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_failure(&self) -> MutexGuard<'_, Option<Failure>> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Bootstrap {
    fn drop(&mut self) {
        self.leave();
        self.group.door.mailbox.forget(self.group.context);
    }
}

impl std::fmt::Debug for Bootstrap {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Bootstrap")
            .field("rank", &self.group.rank)
            .field("size", &self.size())
            .finish_non_exhaustive()
    }
}
