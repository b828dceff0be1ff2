//! What a root knows about the ranks that join with its id. No sockets here.

use std::collections::HashMap;

use crate::error::Failure;
use crate::tree::FAN_OUT;
use crate::wire::{CheckIn, Member, Reply, Who};

/// The trees that are made with one id: of the ranks, and, where it is the first of several ids, of the roots' first.
#[derive(Default)]
pub(crate) struct Assemblies {
    levels: [Option<Assembly>; 2],
}

/// One tree in the making.
struct Assembly {
    slots: u32,
    size: u32,
    ids_digest: u64,
    /// In the order of arrival.
    members: Vec<Member>,
    /// Slot to index.
    index_of: HashMap<u32, u32>,
    failure: Option<Failure>,
    /// The first to arrive has ended its connection in good order.
    over: bool,
}

impl Assemblies {
    /// Numbers a rank that has arrived.
    ///
    /// The second value is a failure that has just happened and that the first to arrive must hear of.
    pub(crate) fn check_in(&mut self, check_in: CheckIn) -> (Reply, Option<Failure>) {
        let Some(level) = self.levels.get_mut(usize::from(check_in.level)) else {
            return (Reply::Refused(failure(vec![], "there is no such level".into())), None);
        };
        let assembly = level.get_or_insert_with(|| Assembly::new(&check_in));
        if let Some(failure) = &assembly.failure {
            return (Reply::Refused(failure.clone()), None);
        }
        if let Some(failure) = assembly.mismatch(&check_in) {
            assembly.failure = Some(failure.clone());
            return (Reply::Refused(failure.clone()), Some(failure));
        }
        let index = assembly.members.len() as u32;
        assembly.index_of.insert(check_in.slot, index);
        assembly.members.push(check_in.member);
        let parent = index.checked_sub(1).map(|before| before / FAN_OUT);
        let parent = parent.and_then(|parent| assembly.members.get(parent as usize)).cloned();
        (Reply::Assigned { index, parent }, None)
    }

    /// The slots that have not come, at the most telling number of them.
    pub(crate) fn missing(&self, level: u8) -> Vec<u32> {
        self.get(level).map_or_else(Vec::new, |assembly| {
            (0..assembly.slots).filter(|slot| !assembly.index_of.contains_key(slot)).collect()
        })
    }

    pub(crate) fn arrival(&self, level: u8, index: u32) -> Option<Who> {
        self.get(level)?.members.get(index as usize).map(Member::who)
    }

    /// A failure that a rank reports, or that the root sees. Only the first counts.
    pub(crate) fn fail(&mut self, level: u8, failure: Failure) {
        if let Some(Some(assembly)) = self.levels.get_mut(usize::from(level)) {
            assembly.failure.get_or_insert(failure);
        }
    }

    /// The first to arrive has gone: the tree is complete, or will never be. Returns how the id ended, if it has.
    pub(crate) fn first_has_gone(&mut self, level: u8) -> Option<Option<Failure>> {
        if let Some(Some(assembly)) = self.levels.get_mut(usize::from(level)) {
            assembly.over = true;
            if !assembly.is_complete() && assembly.failure.is_none() {
                let who = assembly.members.first().map(Member::who);
                let reason = who.as_ref().map_or_else(String::new, |who| {
                    format!("{who} went away while the ranks were joining")
                });
                assembly.failure = Some(failure(who.iter().map(|who| who.rank).collect(), reason));
            }
        }
        let over = self.levels.iter().flatten().all(|assembly| assembly.over);
        let first_failure =
            self.levels.iter().flatten().find_map(|assembly| assembly.failure.clone());
        (over && self.levels[0].is_some()).then_some(first_failure)
    }

    fn get(&self, level: u8) -> Option<&Assembly> {
        self.levels.get(usize::from(level))?.as_ref()
    }
}

impl Assembly {
    fn new(first: &CheckIn) -> Assembly {
        Assembly {
            slots: first.slots,
            size: first.size,
            ids_digest: first.ids_digest,
            members: Vec::new(),
            index_of: HashMap::new(),
            failure: None,
            over: false,
        }
    }

    fn is_complete(&self) -> bool {
        self.members.len() == self.slots as usize
    }

    /// Why a rank does not fit to those that came before.
    fn mismatch(&self, check_in: &CheckIn) -> Option<Failure> {
        let who = check_in.member.who();
        let before = self.members.first().map(Member::who)?;
        let ranks = vec![before.rank, who.rank];
        if check_in.size != self.size {
            let (theirs, ours) = (check_in.size, self.size);
            let reason = format!(
                "ranks disagree about their number: {who} says {theirs}, {before} says {ours}"
            );
            return Some(failure(ranks, reason));
        }
        if check_in.ids_digest != self.ids_digest || check_in.slots != self.slots {
            let reason = format!("{who} and {before} joined with different lists of unique ids");
            return Some(failure(ranks, reason));
        }
        let twice = self.index_of.get(&check_in.slot)?;
        let other = self.members.get(*twice as usize)?;
        let reason = format!(
            "rank {} came twice: from process {} on {} and from process {} on {}",
            who.rank, other.pid, other.host, who.pid, who.host
        );
        Some(failure(vec![who.rank], reason))
    }
}

fn failure(ranks: Vec<u32>, reason: String) -> Failure {
    Failure { ranks, noticed_by: None, reason }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_in(slot: u32, size: u32) -> CheckIn {
        let member = Member {
            rank: slot,
            host: "h".into(),
            pid: 100 + slot,
            secret: [0; 16],
            port: 1,
            addresses: Vec::new(),
        };
        CheckIn { level: 0, slot, slots: size, size, ids_digest: 5, member }
    }

    #[test]
    fn ranks_are_numbered_as_they_come() {
        let mut assemblies = Assemblies::default();
        for (n, slot) in (0..20).rev().enumerate() {
            let (reply, news) = assemblies.check_in(check_in(slot, 20));
            let Reply::Assigned { index, parent } = reply else { panic!("{reply:?}") };
            assert_eq!(index as usize, n);
            let expected = n.checked_sub(1).map(|before| 19 - (before as u32) / FAN_OUT);
            assert_eq!(parent.map(|parent| parent.rank), expected);
            assert_eq!(news, None);
        }
        assert_eq!(assemblies.missing(0), []);
        assert_eq!(assemblies.first_has_gone(0), Some(None));
    }

    #[test]
    fn misfits_fail_the_group_and_are_named() {
        let mut twice = Assemblies::default();
        twice.check_in(check_in(3, 4));
        let (_, news) = twice.check_in(check_in(3, 4));
        let reason = news.unwrap().reason;
        assert!(reason.contains("rank 3 came twice"), "{reason}");
        let (late, news) = twice.check_in(check_in(1, 4));
        assert!(matches!(late, Reply::Refused(failure) if failure.reason == reason));
        assert_eq!(news, None);

        let mut sizes = Assemblies::default();
        sizes.check_in(check_in(0, 4));
        let reason = sizes.check_in(check_in(1, 8)).1.unwrap().reason;
        assert!(reason.contains("says 8") && reason.contains("says 4"), "{reason}");
    }

    #[test]
    fn missing_ranks_and_a_first_that_dies_are_known() {
        let mut assemblies = Assemblies::default();
        assemblies.check_in(check_in(2, 5));
        assemblies.check_in(check_in(4, 5));
        assert_eq!(assemblies.missing(0), [0, 1, 3]);
        let ended = assemblies.first_has_gone(0).unwrap().unwrap();
        assert_eq!(ended.ranks, [2]);
    }
}
