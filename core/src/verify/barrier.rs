//! Whether nobody leaves a barrier before everybody has come.
//!
//! A step knows of the ranks whose arrival it must have waited for: its own, those that the steps before it know of, and
//! for a receive those that the sending step knew of. A rank may leave when all its steps are done, so together they
//! must know of everybody.

use std::collections::{BTreeSet, HashMap};

use super::execute::process_of;
use crate::call::Call;
use crate::schedule::{Schedule, Step, StepId};

type Known = BTreeSet<usize>;

/// # Errors
/// A process that may leave, and one that need not have come.
pub(super) fn check(calls: &[Call], schedules: &[Schedule]) -> Result<(), (usize, String)> {
    for (process, steps) in knowledge(calls, schedules).iter().enumerate() {
        let all: Known = steps.iter().flatten().copied().chain([process]).collect();
        if let Some(missing) = (0..calls.len()).find(|other| !all.contains(other)) {
            return Err((process, format!("it may leave before process {missing} has come")));
        }
    }
    Ok(())
}

/// What each step of each process knows. Steps are taken up as their messages become known.
fn knowledge(calls: &[Call], schedules: &[Schedule]) -> Vec<Vec<Known>> {
    let mut known: Vec<Vec<Known>> =
        schedules.iter().map(|schedule| vec![Known::new(); schedule.steps().len()]).collect();
    let mut messages: HashMap<(usize, usize, u16), Known> = HashMap::new();
    // Knowledge only grows, so rounds come to an end.
    loop {
        let mut grew = false;
        for (process, schedule) in schedules.iter().enumerate() {
            for (index, step) in schedule.steps().iter().enumerate() {
                known[process][index].insert(process);
                match *step {
                    Step::Send { peer, message, .. } => {
                        let key = (process, process_of(calls, process, peer), message);
                        let carried = messages.entry(key).or_default();
                        let before = carried.len();
                        carried.extend(&known[process][index]);
                        grew |= carried.len() > before;
                    }
                    Step::Recv { peer, message, .. } => {
                        let key = (process_of(calls, process, peer), process, message);
                        let arrived = messages.get(&key).cloned().unwrap_or_default();
                        known[process][index].extend(arrived);
                    }
                    Step::Copy { .. } | Step::Reduce { .. } | Step::Group { .. } => {}
                }
                let knows = known[process][index].clone();
                for next in schedule.successors(StepId(index as u32)) {
                    known[process][next.0 as usize].extend(&knows);
                }
            }
        }
        if !grew {
            return known;
        }
    }
}
