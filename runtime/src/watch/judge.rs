//! What follows from what a waiting rank sees of the others. No clock, no files.

use std::time::Duration;

use super::call::CallWord;
use super::journal::{NEIGHBOURHOOD, Ticket};
use super::reading::{CommunicatorRecord, OperationState};

/// How long what is put up with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Waiting before the late ranks are named; zero: never.
    pub stall: Duration,
    /// A peer's process may be stopped so long; zero: for ever.
    pub stopped: Duration,
    /// Waiting in one collective before it fails, whatever the reason; zero: for ever.
    pub limit: Duration,
    /// Whether calls are compared.
    pub compare: bool,
}

/// Waiting before anything is concluded from a difference: a message may be on its way.
const SETTLING: Duration = Duration::from_millis(300);

/// What is seen of one other member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sight {
    /// Nothing: it is on another host, or hides.
    Hidden,
    /// The process has ended.
    Ended,
    /// It lives.
    Lives {
        /// How long it has been found stopped.
        stopped: Option<Duration>,
        /// What its journal says of the communicator.
        record: Option<CommunicatorRecord>,
    },
}

/// Why there is no use in waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// A member's process has ended.
    Ended {
        /// Whose.
        peer: usize,
    },
    /// A member's process has been stopped for long.
    Stopped {
        /// Whose.
        peer: usize,
        /// How long.
        seconds: u64,
    },
    /// A member's call of this number has failed, or the communicator had failed there before.
    GaveUp {
        /// Who.
        peer: usize,
        /// What it called, where that is known.
        call: Option<CallWord>,
        /// The number of the call that failed there.
        number: u64,
    },
    /// A member has called something else.
    Mismatch {
        /// Who.
        peer: usize,
        /// Its call.
        call: CallWord,
        /// And bytes.
        bytes: u64,
    },
    /// The time limit of a collective is over.
    Limit {
        /// How long this rank has waited.
        seconds: u64,
    },
}

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Wait on.
    Wait,
    /// Wait on, and tell who is late.
    Report,
    /// Fail.
    Fail(Trouble),
}

/// What follows for the call `mine`, after `waited`, from what is seen of each member (this rank: `Hidden`).
///
/// A process that merely is elsewhere, or computes, is late: that never fails a call.
pub fn judge(policy: &Policy, mine: &Ticket, waited: Duration, sights: &[Sight]) -> Verdict {
    let mut found = None;
    for (peer, sight) in sights.iter().enumerate() {
        // A dead process explains the others' failures, so it is named first.
        match sight {
            Sight::Ended => return Verdict::Fail(Trouble::Ended { peer }),
            Sight::Lives { stopped, record } => {
                let record = record.as_ref();
                let trouble = record
                    .and_then(|record| differs(policy, record, mine, peer))
                    .or_else(|| record.and_then(|record| gave_up(record, mine, peer)))
                    .filter(|_| waited >= SETTLING)
                    .or_else(|| is_stopped(policy, *stopped, peer));
                // What the others' failures come from is named before them.
                if matches!(found, None | Some(Trouble::GaveUp { .. })) {
                    found = trouble.or(found);
                }
            }
            Sight::Hidden => {}
        }
    }
    let over = |limit: Duration| !limit.is_zero() && waited >= limit;
    match found {
        Some(trouble) => Verdict::Fail(trouble),
        None if over(policy.limit) => Verdict::Fail(Trouble::Limit { seconds: waited.as_secs() }),
        None if over(policy.stall) => Verdict::Report,
        None => Verdict::Wait,
    }
}

fn is_stopped(policy: &Policy, stopped: Option<Duration>, peer: usize) -> Option<Trouble> {
    let stopped = stopped.filter(|&time| !policy.stopped.is_zero() && time >= policy.stopped)?;
    Some(Trouble::Stopped { peer, seconds: stopped.as_secs() })
}

fn gave_up(record: &CommunicatorRecord, mine: &Ticket, peer: usize) -> Option<Trouble> {
    let same = record.operations.iter().find(|op| (op.kind, op.number) == (mine.kind, mine.number));
    let call = same.map(|op| op.call);
    let broken = record.broken.filter(|&(kind, number)| kind != mine.kind || number <= mine.number);
    let failed = same.filter(|op| op.state == OperationState::Failed).map(|op| op.number);
    let number = failed.or(broken.map(|(_, number)| number))?;
    Some(Trouble::GaveUp { peer, call, number })
}

/// What a member has called instead of `mine`.
pub(super) fn differs(
    policy: &Policy,
    record: &CommunicatorRecord,
    mine: &Ticket,
    peer: usize,
) -> Option<Trouble> {
    // Ranks without neighbours are never asked, so such calls have no number that all share.
    if !policy.compare || mine.kind == NEIGHBOURHOOD {
        return None;
    }
    let theirs =
        record.operations.iter().find(|op| (op.kind, op.number) == (mine.kind, mine.number))?;
    // A call that failed before it was understood says nothing.
    if theirs.call == CallWord::default() {
        return None;
    }
    let counts = mine.call.has_uniform_bytes() && theirs.bytes != mine.bytes;
    (theirs.call != mine.call || counts).then_some(Trouble::Mismatch {
        peer,
        call: theirs.call,
        bytes: theirs.bytes,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::watch::journal::{Ended, Journal};
    use hetccl_core::{Collective, Datatype, ReductionOp};

    const POLICY: Policy = Policy {
        stall: Duration::from_secs(30),
        stopped: Duration::from_secs(60),
        limit: Duration::ZERO,
        compare: true,
    };

    fn record_of(calls: &[(CallWord, usize, Option<Ended>)]) -> CommunicatorRecord {
        let journal = Journal::create(1, 2, "a-host").unwrap();
        let track = journal.track(7, 1, 2).unwrap();
        for (number, &(call, bytes, ended)) in calls.iter().enumerate() {
            let ticket = track.begin(0, number as u64, call, bytes);
            if let Some(ended) = ended {
                track.end(ticket, ended);
            }
        }
        let mut open =
            super::super::reading::OpenJournal::open(std::process::id(), journal.descriptor())
                .unwrap();
        open.communicator(7, 1, 2).unwrap()
    }

    fn mine(call: CallWord, bytes: usize) -> Ticket {
        let journal = Journal::create(0, 2, "a-host").unwrap();
        journal.track(7, 0, 2).unwrap().begin(0, 0, call, bytes)
    }

    fn verdict(call: CallWord, bytes: usize, waited: u64, record: CommunicatorRecord) -> Verdict {
        let sights = [Sight::Hidden, Sight::Lives { stopped: None, record: Some(record) }];
        judge(&POLICY, &mine(call, bytes), Duration::from_secs(waited), &sights)
    }

    const SUM: CallWord =
        CallWord::new(Collective::Allreduce).reducing(ReductionOp::Sum, Datatype::Float64);
    const MAX: CallWord =
        CallWord::new(Collective::Allreduce).reducing(ReductionOp::Max, Datatype::Float64);

    #[test]
    fn a_late_rank_is_waited_for_and_reported() {
        assert_eq!(verdict(SUM, 8, 5, record_of(&[])), Verdict::Wait);
        assert_eq!(verdict(SUM, 8, 31, record_of(&[])), Verdict::Report);
        assert_eq!(verdict(SUM, 8, 5, record_of(&[(SUM, 8, None)])), Verdict::Wait);
    }

    #[test]
    fn another_call_or_count_fails_both() {
        let other = Trouble::Mismatch { peer: 1, call: MAX, bytes: 8 };
        assert_eq!(verdict(SUM, 8, 1, record_of(&[(MAX, 8, None)])), Verdict::Fail(other));
        let longer = Trouble::Mismatch { peer: 1, call: SUM, bytes: 16 };
        assert_eq!(verdict(SUM, 8, 1, record_of(&[(SUM, 16, None)])), Verdict::Fail(longer));
        let blocks = CallWord::new(Collective::Allgatherv);
        assert_eq!(verdict(blocks, 8, 1, record_of(&[(blocks, 16, None)])), Verdict::Wait);
    }

    #[test]
    fn calls_among_neighbours_are_not_compared() {
        let mut ticket = mine(SUM, 8);
        ticket.kind = NEIGHBOURHOOD;
        let mut record = record_of(&[(MAX, 8, None)]);
        record.operations[0].kind = NEIGHBOURHOOD;
        let sights = [Sight::Hidden, Sight::Lives { stopped: None, record: Some(record) }];
        let verdict = judge(&POLICY, &ticket, Duration::from_secs(1), &sights);
        assert_eq!(verdict, Verdict::Wait);
    }

    #[test]
    fn a_failure_elsewhere_reaches_this_rank() {
        let gave_up = Trouble::GaveUp { peer: 1, call: Some(SUM), number: 0 };
        let failed = record_of(&[(SUM, 8, Some(Ended::Failed))]);
        assert_eq!(verdict(SUM, 8, 1, failed), Verdict::Fail(gave_up));
        let broken = record_of(&[(SUM, 8, Some(Ended::Broken))]);
        assert_eq!(verdict(SUM, 8, 1, broken), Verdict::Fail(gave_up));
        let later = record_of(&[(SUM, 8, Some(Ended::Well)), (SUM, 8, Some(Ended::Broken))]);
        assert_eq!(verdict(SUM, 8, 1, later), Verdict::Wait, "its part of this call was sent");
    }

    #[test]
    fn the_dead_are_named_before_those_who_gave_up_and_the_stopped_after_their_time() {
        let failed = record_of(&[(SUM, 8, Some(Ended::Failed))]);
        let ticket = mine(SUM, 8);
        let given_up = Sight::Lives { stopped: None, record: Some(failed) };
        let sights = [Sight::Hidden, given_up, Sight::Ended];
        let verdict = judge(&POLICY, &ticket, Duration::ZERO, &sights);
        assert_eq!(verdict, Verdict::Fail(Trouble::Ended { peer: 2 }));
        for (seconds, expected) in
            [(59, Verdict::Report), (60, Verdict::Fail(Trouble::Stopped { peer: 1, seconds: 60 }))]
        {
            let stopped = Some(Duration::from_secs(seconds));
            let sights = [Sight::Hidden, Sight::Lives { stopped, record: None }];
            assert_eq!(judge(&POLICY, &ticket, Duration::from_secs(61), &sights), expected);
        }
        let limited = Policy { limit: Duration::from_secs(50), ..POLICY };
        let verdict = judge(&limited, &ticket, Duration::from_secs(50), &[Sight::Hidden]);
        assert_eq!(verdict, Verdict::Fail(Trouble::Limit { seconds: 50 }));
    }
}
