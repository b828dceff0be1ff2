//! Making a group's tree: check in at the root, connect to the parent, wait for the children.

use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use nix::poll::PollFlags;
use serde_bytes::ByteBuf;

use crate::config::Config;
use crate::connect::{self, Target};
use crate::error::{Error, Failure, Result, ranks_in_words};
use crate::hub::Hub;
use crate::id::UniqueId;
use crate::mailbox::Mailbox;
use crate::tree::{self, FAN_OUT, Link, Stop, Tree, noticed};
use crate::wire::{self, CheckIn, Member, Operation, Reply, Request};

/// The context of a group made with ids; those split off it have others.
pub(crate) const FIRST_CONTEXT: u64 = 0;
/// Ranks whose turn comes later wait so long per rank before they connect to the root, above this many ranks.
const STAGGER: (u32, Duration) = (256, Duration::from_micros(100));
/// Others than the first to arrive wait so much longer, so that its list of missing ranks comes first.
const GRACE: Duration = Duration::from_secs(5);
const SLICE: Duration = Duration::from_millis(20);
/// How often a rank that is waited for in a split is looked for: its process may have ended on the way.
const KNOCK_EVERY: Duration = Duration::from_secs(1);

/// One rank in the middle of joining.
pub(crate) struct Joining<'a> {
    pub ids: &'a [UniqueId],
    pub size: u32,
    pub me: &'a Member,
    pub mailbox: &'a Mailbox,
    pub config: &'a Config,
    pub abort: &'a AtomicBool,
    pub deadline: Instant,
}

/// A tree that this rank has a place in.
struct Place {
    level: u8,
    index: u32,
    slots: u32,
    parent: Option<Member>,
    /// To the root, from the first to arrive.
    root: Option<TcpStream>,
    root_buffer: Vec<u8>,
}

/// The ranks that join at root `block` of `roots`.
pub(crate) fn ranks_of_root(block: u32, roots: u32, size: u32) -> std::ops::Range<u32> {
    let start = |block: u32| (u64::from(block) * u64::from(size) / u64::from(roots)) as u32;
    start(block)..start(block + 1)
}

impl Joining<'_> {
    /// The tree, and every member by rank.
    pub(crate) fn run(&self) -> Result<(Tree, Vec<Member>)> {
        let roots = self.ids.len() as u32;
        let block = (0..roots)
            .find(|&block| ranks_of_root(block, roots, self.size).contains(&self.me.rank))
            .ok_or_else(|| Error::WrongUse("more unique ids than ranks".into()))?;
        let ranks = ranks_of_root(block, roots, self.size);
        let id = &self.ids[block as usize];
        if id.fixed && ranks.start == self.me.rank {
            self.serve_fixed(id)?;
        }
        if self.size > STAGGER.0 {
            std::thread::sleep(STAGGER.1 * (self.me.rank - ranks.start));
        }
        let mut places =
            vec![self.check_in(id, 0, self.me.rank - ranks.start, ranks.len() as u32)?];
        let mut tree = Tree { silence: self.config.peer_timeout, ..Tree::default() };
        let formed = (|| {
            if roots > 1 && places[0].index == 0 {
                let place = self.check_in(&self.ids[0], 1, block, roots).map_err(stop_of)?;
                places.push(place);
            }
            self.connect_to_parent(&places, &mut tree)?;
            self.wait_for_children(&mut places, &mut tree)?;
            self.exchange_table(&mut tree)
        })();
        match formed {
            Ok(members) => Ok((tree, members)),
            Err(stop) => Err(self.give_up(stop, &places, &mut tree)),
        }
    }

    /// Becomes the root of an NCCL_COMM_ID. The port may still be the one of the communicator before.
    fn serve_fixed(&self, id: &UniqueId) -> Result<()> {
        let hub = Hub::of_this_process(self.config)?;
        loop {
            match hub.serve_fixed(id.secret, id.port) {
                Ok(()) => return Ok(()),
                Err(error) if Instant::now() >= self.deadline => return Err(error),
                Err(_) => std::thread::sleep(Duration::from_millis(50)),
            }
            if self.abort.load(Ordering::Acquire) {
                return Err(Error::Aborted);
            }
        }
    }

    fn check_in(&self, id: &UniqueId, level: u8, slot: u32, slots: u32) -> Result<Place> {
        let mut stream = self.reach_root(id)?;
        let bytes: Vec<u8> = self.ids.iter().flat_map(|id| id.to_bytes()).collect();
        // Two processes may resolve the name in NCCL_COMM_ID differently.
        let ids_digest = if id.fixed { 0 } else { wire::digest(&bytes, 0) };
        let check_in =
            CheckIn { level, slot, slots, size: self.size, ids_digest, member: self.me.clone() };
        match self.ask(&mut stream, &Request::CheckIn(check_in))? {
            Reply::Assigned { index, parent } => {
                let root = (index == 0).then_some(stream);
                if let Some(root) = &root {
                    root.set_nonblocking(true).map_err(|error| system("a connection", &error))?;
                }
                Ok(Place { level, index, slots, parent, root, root_buffer: Vec::new() })
            }
            Reply::Refused(failure) => Err(Error::Group(failure)),
            _ => Err(Error::WrongUse("the root gave an answer that makes no sense".into())),
        }
    }

    fn reach_root(&self, id: &UniqueId) -> Result<TcpStream> {
        let whom = match id.fixed {
            true => "the root named by NCCL_COMM_ID, which the first rank serves",
            false => "the root of the unique id, the process that made it",
        };
        let target = Target::maker(id, whom);
        let patience = if id.fixed { self.deadline } else { self.connect_deadline() };
        connect::reach(&target, patience, self.abort)
    }

    fn ask(&self, stream: &mut TcpStream, request: &Request) -> Result<Reply> {
        let limit = stream.set_read_timeout(Some(self.config.connect_timeout));
        limit.and_then(|()| wire::ask(stream, request)).map_err(|error| Error::System {
            what: "asking another process",
            reason: error.to_string(),
        })
    }

    fn connect_deadline(&self) -> Instant {
        self.deadline.min(Instant::now() + self.config.connect_timeout)
    }

    /// The parent is among the ranks of the root, or, for the first of those, among the first of the others.
    fn connect_to_parent(
        &self,
        places: &[Place],
        tree: &mut Tree,
    ) -> std::result::Result<(), Stop> {
        for place in places {
            let Some(parent) = &place.parent else { continue };
            let at = (FIRST_CONTEXT, place.level, place.index);
            tree.parent = Some(link_to(parent, self.me, at, self.connect_deadline(), self.abort)?);
        }
        // The depth only orders time limits; across roots the first of each counts from its own tree.
        tree.depth = places.iter().map(|place| depth(place.index)).sum();
        Ok(())
    }

    fn wait_for_children(
        &self,
        places: &mut [Place],
        tree: &mut Tree,
    ) -> std::result::Result<(), Stop> {
        let mut missing: Vec<(u8, u32)> = places.iter().flat_map(children).collect();
        let mut notice_at = Some(Instant::now() + self.config.notice_after);
        while !missing.is_empty() {
            for arrived in self.mailbox.take_links(FIRST_CONTEXT, SLICE) {
                missing.retain(|&child| child != (arrived.level, arrived.index));
                tree.children.push(Link::new(arrived.stream, arrived.who));
            }
            if self.abort.load(Ordering::Acquire) {
                return Err(Stop::Aborted);
            }
            tree.check()?;
            for place in places.iter_mut() {
                hear_root(place)?;
            }
            let now = Instant::now();
            let first = places[0].root.is_some();
            if first && notice_at.is_some_and(|at| now >= at) {
                notice_at = None;
                if let Some((_, words)) = self.who_is_missing(places) {
                    (self.config.notice)(&format!(
                        "rank {} waits for {words} to join",
                        self.me.rank
                    ));
                }
            }
            if first
                && now >= self.deadline
                && let Some((ranks, words)) = self.who_is_missing(places)
            {
                let reason = format!(
                    "{words} of {} did not come in {} s",
                    self.size,
                    self.config.timeout.as_secs()
                );
                return Err(noticed(ranks, reason));
            }
            if now >= self.deadline + GRACE {
                return Err(self.child_is_missing(&missing));
            }
        }
        Ok(())
    }

    /// Asks the roots that this rank was first at.
    fn who_is_missing(&self, places: &mut [Place]) -> Option<(Vec<u32>, String)> {
        for place in places.iter_mut().rev() {
            let Some(root) = &mut place.root else { continue };
            let asked = root
                .set_nonblocking(false)
                .and_then(|()| root.set_read_timeout(Some(Duration::from_secs(2))))
                .and_then(|()| wire::ask(root, &Request::Missing));
            let _unchanged = root.set_nonblocking(true);
            let Ok(Reply::Missing { slots }) = asked else { continue };
            let roots = self.ids.len() as u32;
            let ranks: Vec<u32> = match place.level {
                0 => {
                    let mut blocks = (0..roots).map(|block| ranks_of_root(block, roots, self.size));
                    let mine = blocks.find(|ranks| ranks.contains(&self.me.rank));
                    let start = mine.map_or(0, |ranks| ranks.start);
                    slots.iter().map(|slot| start + slot).collect()
                }
                _ => {
                    slots.iter().flat_map(|&block| ranks_of_root(block, roots, self.size)).collect()
                }
            };
            if !ranks.is_empty() {
                let noun = if ranks.len() == 1 { "rank" } else { "ranks" };
                let words = format!("{noun} {}", ranks_in_words(&ranks));
                return Some((ranks, words));
            }
        }
        None
    }

    /// A rank that is known to the root did not connect to this one.
    fn child_is_missing(&self, missing: &[(u8, u32)]) -> Stop {
        let (level, index) = missing[0];
        let roots = self.ids.len() as u32;
        let mine = (0..roots).find(|&b| ranks_of_root(b, roots, self.size).contains(&self.me.rank));
        let id = match level {
            0 => &self.ids[mine.unwrap_or(0) as usize],
            _ => &self.ids[0],
        };
        let soon = Duration::from_secs(2);
        let target = Target::maker(id, "the root");
        let asked = connect::reach(&target, Instant::now() + soon, self.abort).ok();
        let asked =
            asked.and_then(|mut root| self.ask(&mut root, &Request::Arrival { level, index }).ok());
        match asked {
            Some(Reply::Arrival(Some(who))) => {
                let reason =
                    format!("{who} came to the root and never connected to rank {}", self.me.rank);
                noticed(vec![who.rank], reason)
            }
            _ => noticed(
                Vec::new(),
                format!("{} ranks did not connect to rank {}", missing.len(), self.me.rank),
            ),
        }
    }

    fn exchange_table(&self, tree: &mut Tree) -> std::result::Result<Vec<Member>, Stop> {
        let bytes =
            postcard::to_stdvec(self.me).map_err(|error| noticed(vec![], error.to_string()))?;
        let left = self.deadline.saturating_duration_since(Instant::now()) + GRACE;
        let mine = vec![(self.me.rank, ByteBuf::from(bytes))];
        let table = tree.exchange(Operation::Table, mine, left, self.abort)?;
        let mut members = Vec::with_capacity(table.len());
        for (_, bytes) in table {
            let member = postcard::from_bytes::<Member>(&bytes);
            members.push(member.map_err(|error| noticed(vec![], error.to_string()))?);
        }
        members.sort_by_key(|member| member.rank);
        let ranks = members.iter().map(|member| member.rank);
        if !ranks.eq(0..self.size) {
            return Err(noticed(vec![], "the table of ranks is not complete".into()));
        }
        Ok(members)
    }

    /// Tells everybody who can be told.
    fn give_up(&self, stop: Stop, places: &[Place], tree: &mut Tree) -> Error {
        let failure = failure_of(&stop, self.me.rank);
        self.mailbox.fail(FIRST_CONTEXT, failure.clone());
        tree.fail(&failure);
        if !matches!(stop, Stop::Heard(_)) {
            for place in places.iter().filter(|place| place.root.is_none()) {
                let roots = self.ids.len() as u32;
                let block = (0..roots)
                    .find(|&b| ranks_of_root(b, roots, self.size).contains(&self.me.rank));
                let id = &self.ids[if place.level == 0 { block.unwrap_or(0) as usize } else { 0 }];
                let target = Target::maker(id, "the root");
                let soon = Instant::now() + Duration::from_secs(1);
                if let Ok(mut root) = connect::reach(&target, soon, &AtomicBool::new(false)) {
                    let report = Request::Report { level: place.level, failure: failure.clone() };
                    let _unheard = self.ask(&mut root, &report);
                }
            }
        }
        match stop {
            Stop::Aborted => Error::Aborted,
            _ => Error::Group(failure),
        }
    }
}

/// What the others are told.
pub(crate) fn failure_of(stop: &Stop, rank: u32) -> Failure {
    match stop {
        Stop::Heard(failure) => failure.clone(),
        Stop::Noticed(failure) => Failure { noticed_by: Some(rank), ..failure.clone() },
        Stop::Aborted => Failure {
            ranks: vec![rank],
            noticed_by: None,
            reason: format!("rank {rank} aborted the communicator"),
        },
    }
}

fn stop_of(error: Error) -> Stop {
    match error {
        Error::Group(failure) => Stop::Heard(failure),
        Error::Aborted => Stop::Aborted,
        other => noticed(Vec::new(), other.to_string()),
    }
}

/// A link to a parent.
pub(crate) fn link_to(
    parent: &Member,
    me: &Member,
    (context, level, index): (u64, u8, u32),
    until: Instant,
    abort: &AtomicBool,
) -> std::result::Result<Link, Stop> {
    let whom = format!("{} from {}", parent.who(), me.who());
    let mut stream =
        connect::reach(&Target::of(parent, &whom), until, abort).map_err(|error| match error {
            Error::Aborted => Stop::Aborted,
            other => noticed(vec![parent.rank], other.to_string()),
        })?;
    let request = Request::Link { context, level, index, who: me.who() };
    let limit = until.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
    let lost = |error: std::io::Error| {
        noticed(vec![parent.rank], format!("{} is gone ({error})", parent.who()))
    };
    stream.set_read_timeout(Some(limit)).map_err(lost)?;
    wire::ask(&mut stream, &request).map_err(lost)?;
    tree::link_over(stream, parent.who()).map_err(lost)
}

/// Has the root pushed a failure?
fn hear_root(place: &mut Place) -> std::result::Result<(), Stop> {
    let Some(root) = &mut place.root else { return Ok(()) };
    if !tree::wait_for(&[root], PollFlags::POLLIN, Duration::ZERO)[0] {
        return Ok(());
    }
    match wire::read_reply(root, &mut place.root_buffer) {
        Ok(Reply::Refused(failure)) => Err(Stop::Heard(failure)),
        Ok(_) => Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => Ok(()),
        Err(_) => {
            let reason = "the process that made the unique id is gone".to_owned();
            Err(noticed(Vec::new(), reason))
        }
    }
}

/// The children that will connect: level and index.
fn children(place: &Place) -> impl Iterator<Item = (u8, u32)> + use<> {
    let level = place.level;
    let first = u64::from(place.index) * u64::from(FAN_OUT) + 1;
    let slots = u64::from(place.slots);
    (first..(first + u64::from(FAN_OUT)).min(slots.max(first)))
        .map(move |index| (level, index as u32))
}

/// Edges from a place to the top of its tree.
pub(crate) fn depth(index: u32) -> u32 {
    let mut depth = 0;
    let mut at = index;
    while at > 0 {
        at = (at - 1) / FAN_OUT;
        depth += 1;
    }
    depth
}

/// Waits for the children of a group that is split off another one, all of whose members are known.
pub(crate) fn split_tree(
    members: &[Member],
    rank: u32,
    context: u64,
    mailbox: &Arc<Mailbox>,
    config: &Config,
    abort: &AtomicBool,
) -> std::result::Result<Tree, Stop> {
    let timeout = config.timeout;
    let until = Instant::now() + timeout;
    let me = &members[rank as usize];
    let silence = config.peer_timeout;
    let mut tree = Tree { depth: depth(rank), silence, ..Tree::default() };
    let formed = (|| {
        if rank > 0 {
            let parent = &members[((rank - 1) / FAN_OUT) as usize];
            tree.parent = Some(link_to(parent, me, (context, 0, rank), until, abort)?);
        }
        let place = Place {
            level: 0,
            index: rank,
            slots: members.len() as u32,
            parent: None,
            root: None,
            root_buffer: Vec::new(),
        };
        let mut missing: Vec<u32> = children(&place).map(|(_, index)| index).collect();
        let mut knock_at = Instant::now() + KNOCK_EVERY;
        while !missing.is_empty() {
            for arrived in mailbox.take_links(context, SLICE) {
                missing.retain(|&child| child != arrived.index);
                tree.children.push(Link::new(arrived.stream, arrived.who));
            }
            tree.check()?;
            if abort.load(Ordering::Acquire) {
                return Err(Stop::Aborted);
            }
            if Instant::now() >= knock_at {
                if let Some(&child) = missing.iter().find(|&&child| {
                    let member = &members[child as usize];
                    connect::has_ended(&Target::of(member, ""), abort)
                }) {
                    let who = members[child as usize].who();
                    return Err(noticed(vec![child], format!("{who} ended before the split")));
                }
                knock_at = Instant::now() + KNOCK_EVERY;
            }
            if Instant::now() >= until {
                let who: Vec<String> = missing
                    .iter()
                    .map(|&child| members[child as usize].who().to_string())
                    .collect();
                let reason = format!(
                    "{} did not come to the split in {} s",
                    who.join(", "),
                    timeout.as_secs()
                );
                return Err(noticed(missing, reason));
            }
        }
        Ok(())
    })();
    match formed {
        Ok(()) => Ok(tree),
        Err(stop) => {
            let failure = failure_of(&stop, rank);
            mailbox.fail(context, failure.clone());
            tree.fail(&failure);
            Err(match stop {
                Stop::Noticed(_) => Stop::Noticed(failure),
                other => other,
            })
        }
    }
}

fn system(what: &'static str, error: &std::io::Error) -> Error {
    Error::System { what, reason: error.to_string() }
}
