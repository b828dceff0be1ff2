//! The verifier must notice broken schedules: mutants of right ones.

use super::cases::{self, Variant};
use super::{check_schedules, races};
use crate::algorithms::by_name;
use crate::builder::Builder;
use crate::call::{Call, Collective};
use crate::schedule::{Buffer, Schedule, Span, Step, StepId};
use crate::types::Rank;

/// The schedule with step `index` replaced by what `change` makes of it; dependencies stay.
fn changed(schedule: &Schedule, index: usize, change: impl Fn(Step) -> Step) -> Schedule {
    let mut mutant = schedule.clone();
    mutant.steps[index] = change(mutant.steps[index]);
    mutant
}

/// The schedule without the `index`-th dependency.
fn without_dependency(schedule: &Schedule, index: usize) -> Schedule {
    let from = (0..schedule.steps.len())
        .find(|&i| (schedule.offsets[i + 1] as usize) > index)
        .expect("a step owns each dependency");
    let mut mutant = schedule.clone();
    let later: StepId = schedule.successors[index];
    mutant.waits_for[later.0 as usize] -= 1;
    mutant.successors = schedule
        .successors
        .iter()
        .enumerate()
        .filter(|&(i, _)| i != index)
        .map(|(_, &s)| s)
        .collect();
    for offset in &mut mutant.offsets[from + 1..] {
        *offset -= 1;
    }
    mutant
}

fn shifted(step: Step) -> Step {
    let shift = |span: Span| Span { start: span.start + 1, ..span };
    match step {
        Step::Send { peer, message, from } => Step::Send { peer, message, from: shift(from) },
        Step::Recv { peer, message, into } => Step::Recv { peer, message, into: shift(into) },
        Step::Copy { from, into } => Step::Copy { from: shift(from), into },
        Step::Reduce { left, right, into } => Step::Reduce { left: shift(left), right, into },
        Step::Group { collective, root, from, into } => {
            Step::Group { collective, root, from: shift(from), into }
        }
    }
}

fn swapped(step: Step) -> Step {
    match step {
        Step::Reduce { left, right, into } => Step::Reduce { left: right, right: left, into },
        Step::Send { peer, message, from } => Step::Send { peer, message: message + 1, from },
        Step::Recv { peer, message, into } => Step::Recv { peer: Rank(peer.0 ^ 1), message, into },
        Step::Copy { from, into } => Step::Copy { from: into, into: from },
        Step::Group { collective, root, from, into } => {
            Step::Group { collective, root, from: into, into: from }
        }
    }
}

fn build(collective: Collective, name: &str, ordered: bool) -> (Vec<Call>, Vec<Schedule>) {
    let variant = Variant { ordered, ..Variant::plain(6) };
    let calls = cases::intra(collective, 4, &variant);
    let algorithm = by_name(collective, name).expect("the algorithm exists");
    let schedules = calls.iter().map(|call| (algorithm.build)(call)).collect();
    (calls, schedules)
}

/// How many of the mutants of rank 1's schedule are noticed, and how many there are.
fn noticed(
    calls: &[Call],
    schedules: &[Schedule],
    mutants: impl Iterator<Item = Schedule>,
) -> (usize, usize) {
    let (mut killed, mut total) = (0, 0);
    for mutant in mutants {
        let mut all = schedules.to_vec();
        all[1] = mutant;
        killed += usize::from(check_schedules("mutant", calls, &all).is_err());
        total += 1;
    }
    (killed, total)
}

#[test]
fn wrong_spans_peers_and_operands_are_noticed() {
    let originals = [
        (Collective::Allreduce, "recursive_doubling", true),
        (Collective::Allreduce, "ring", false),
        (Collective::Alltoall, "pairwise", false),
        (Collective::Bcast, "scatter_allgather", false),
        (Collective::Gather, "binomial", false),
        (Collective::ReduceScatterBlock, "recursive_halving", false),
        (Collective::Scan, "recursive_doubling", true),
    ];
    for (collective, name, ordered) in originals {
        let (calls, schedules) = build(collective, name, ordered);
        check_schedules(name, &calls, &schedules).expect("the original is right");
        let steps = schedules[1].steps.len();
        let shifts = (0..steps).map(|i| changed(&schedules[1], i, shifted));
        let (killed, total) = noticed(&calls, &schedules, shifts);
        assert_eq!(killed, total, "shifted spans of {} by {name}", collective.name());
        // A swapped sum of a commutative operation is not wrong.
        let mutable = |i: &usize| ordered || !matches!(schedules[1].steps[*i], Step::Reduce { .. });
        let swaps = (0..steps).filter(mutable).map(|i| changed(&schedules[1], i, swapped));
        let (killed, total) = noticed(&calls, &schedules, swaps);
        assert_eq!(
            killed,
            total,
            "swapped operands, peers and numbers of {} by {name}",
            collective.name()
        );
    }
}

#[test]
fn missing_dependencies_are_noticed() {
    let (mut killed, mut total) = (0, 0);
    for (collective, name) in [
        (Collective::Allreduce, "recursive_doubling"),
        (Collective::Allgather, "ring"),
        (Collective::Reduce, "binomial"),
    ] {
        let (calls, schedules) = build(collective, name, false);
        let mutants =
            (0..schedules[1].successors.len()).map(|i| without_dependency(&schedules[1], i));
        let (k, t) = noticed(&calls, &schedules, mutants);
        (killed, total) = (killed + k, total + t);
    }
    println!("{killed} of {total} schedules with a dependency less were noticed");
    // The others order steps that a longer way orders too.
    assert!(killed * 3 >= total * 2 && total >= 9, "{killed} of {total}");
}

mod builder_is_race_free {
    use super::*;
    use proptest::prelude::*;

    fn any_span() -> impl Strategy<Value = Span> {
        let buffer =
            prop_oneof![Just(Buffer::Input), Just(Buffer::Output), Just(Buffer::Scratch(0))];
        (buffer, 0usize..16, 0usize..6).prop_map(|(b, start, len)| Span::new(b, start, len))
    }

    proptest! {
        /// Whatever steps an algorithm writes, the builder orders all that touch the same memory.
        #[test]
        fn for_any_steps(
            in_place: bool,
            steps in prop::collection::vec((0usize..4, any_span(), any_span()), 1..40),
        ) {
            let mut b = Builder::new(in_place);
            b.scratch(32);
            for (kind, x, y) in steps {
                match kind {
                    0 => { b.send(Rank(1), x); }
                    1 => { b.recv(Rank(1), x); }
                    2 => {
                        let from = Span::new(Buffer::Scratch(0), 22, y.len.min(4));
                        let into = Span { len: from.len, ..x };
                        b.copy(from, into);
                    }
                    _ => { b.reduce(x, x, x); }
                }
            }
            prop_assert_eq!(races::check(&b.finish()), Ok(()));
        }
    }
}
