//! Executes the schedules of all ranks on symbolic memory.

use std::collections::HashMap;

use super::expected::sizes;
use super::group::Groups;
use super::value::{Value, Values};
use crate::call::Call;
use crate::schedule::{Buffer, Schedule, Span, Step, StepId};
use crate::types::Rank;

/// The memory of all processes at the end.
pub(super) struct Outcome {
    pub(super) values: Values,
    pub(super) memory: Vec<Memory>,
    pub(super) messages: usize,
}

/// One process's buffers.
#[derive(Debug)]
pub(super) struct Memory {
    pub(super) input: Vec<Value>,
    pub(super) output: Vec<Value>,
    scratch: Vec<Vec<Value>>,
}

impl Memory {
    fn new(values: &mut Values, process: usize, call: &Call, schedule: &Schedule) -> Memory {
        let (input, output) = sizes(call);
        let mut fill = |buffer, len| (0..len).map(|i| values.initial(process, buffer, i)).collect();
        Memory {
            input: fill(Buffer::Input, input),
            output: fill(Buffer::Output, output),
            scratch: schedule.scratch().iter().map(|&len| vec![Value::POISON; len]).collect(),
        }
    }

    fn buffer(&mut self, buffer: Buffer) -> &mut Vec<Value> {
        match buffer {
            Buffer::Input => &mut self.input,
            Buffer::Output => &mut self.output,
            Buffer::Scratch(number) => &mut self.scratch[number as usize],
        }
    }

    fn slice(&mut self, span: Span) -> Result<&mut [Value], String> {
        let buffer = self.buffer(span.buffer);
        let len = buffer.len();
        if span.len == 0 {
            return Ok(&mut []);
        }
        buffer
            .get_mut(span.start..span.end())
            .ok_or_else(|| format!("{span:?} lies outside a buffer of {len} elements"))
    }
}

/// Messages under way, by sender, receiver and number.
type Messages = HashMap<(usize, usize, u16), Vec<Value>>;

/// The process, by its place in `calls`, that process `process` calls `rank`: on inter-communicators the first group's
/// ranks come first in `calls`, and each process counts its own group first.
pub fn process_of(calls: &[Call], process: usize, rank: Rank) -> usize {
    let call = &calls[process];
    let (local, Some(_)) = (call.size(), call.group.remote_size) else { return rank.index() };
    let first = calls.len() - calls[calls.len() - 1].size();
    let in_first = process < first;
    match (in_first, rank.index() < local) {
        (true, _) => rank.index(),
        (false, true) => first + rank.index(),
        (false, false) => rank.index() - local,
    }
}

/// Runs everything; the error names the process where it shows.
pub(super) fn run(calls: &[Call], schedules: &[Schedule]) -> Result<Outcome, (usize, String)> {
    let mut values = Values::new(calls[0].ordered);
    let mut memory: Vec<Memory> =
        (0..calls.len()).map(|p| Memory::new(&mut values, p, &calls[p], &schedules[p])).collect();
    let mut waiting: Vec<Vec<u32>> = schedules.iter().map(|s| s.waits_for().to_vec()).collect();
    let mut ready: Vec<Vec<StepId>> = waiting
        .iter()
        .map(|counts| {
            (0..counts.len()).filter(|&i| counts[i] == 0).map(|i| StepId(i as u32)).collect()
        })
        .collect();
    let mut unfinished: usize = schedules.iter().map(|s| s.steps().len()).sum();
    let mut messages = Messages::new();
    let mut groups = Groups::default();
    let mut sent = 0;
    while unfinished > 0 {
        let before = unfinished;
        for process in 0..calls.len() {
            let mut later = Vec::new();
            while let Some(id) = ready[process].pop() {
                let step = schedules[process].steps()[id.0 as usize];
                let memory = &mut memory[process];
                let done = match step {
                    Step::Group { .. } => {
                        meet(&calls[process], process, step, memory, &mut values, &mut groups)
                    }
                    _ => execute(calls, process, step, memory, &mut values, &mut messages),
                };
                let done = done.map_err(|what| (process, format!("step {}: {what}", id.0)))?;
                if !done {
                    later.push(id);
                    continue;
                }
                sent += usize::from(matches!(step, Step::Send { .. }));
                unfinished -= 1;
                for &next in schedules[process].successors(id) {
                    waiting[process][next.0 as usize] -= 1;
                    if waiting[process][next.0 as usize] == 0 {
                        ready[process].push(next);
                    }
                }
            }
            ready[process] = later;
        }
        if unfinished == before {
            return Err(stuck(schedules, &ready));
        }
    }
    if let Some(&(from, to, number)) = messages.keys().next() {
        return Err((to, format!("message {number} from process {from} is never received")));
    }
    Ok(Outcome { values, memory, messages: sent })
}

/// Whether the step could be done.
fn execute(
    calls: &[Call],
    process: usize,
    step: Step,
    memory: &mut Memory,
    values: &mut Values,
    messages: &mut Messages,
) -> Result<bool, String> {
    match step {
        Step::Send { peer, message, from } => {
            let key = (process, process_of(calls, process, peer), message);
            let data = memory.slice(from)?.to_vec();
            if messages.insert(key, data).is_some() {
                return Err(format!("two messages {message} to rank {peer} are under way"));
            }
        }
        Step::Recv { peer, message, into } => {
            let key = (process_of(calls, process, peer), process, message);
            let Some(data) = messages.remove(&key) else { return Ok(false) };
            if data.len() != into.len {
                return Err(format!(
                    "message {message} from rank {peer} has {} elements, {} were expected",
                    data.len(),
                    into.len
                ));
            }
            memory.slice(into)?.copy_from_slice(&data);
        }
        Step::Copy { from, into } => {
            let data = memory.slice(from)?.to_vec();
            memory.slice(into)?.copy_from_slice(&data);
        }
        Step::Reduce { left, right, into } => {
            let (a, b) = (memory.slice(left)?.to_vec(), memory.slice(right)?.to_vec());
            let sums: Result<Vec<Value>, String> =
                a.into_iter().zip(b).map(|(a, b)| values.reduce(a, b)).collect();
            memory.slice(into)?.copy_from_slice(&sums?);
        }
        Step::Group { .. } => return Err("a collective of a group has no meeting".into()),
    }
    Ok(true)
}

/// A collective of the vendor's library: whether all ranks of the group have come.
fn meet(
    call: &Call,
    process: usize,
    step: Step,
    memory: &mut Memory,
    values: &mut Values,
    groups: &mut Groups,
) -> Result<bool, String> {
    let Step::Group { from, into, .. } = step else { return Ok(true) };
    let input = memory.slice(from)?.to_vec();
    let Some(result) = groups.come(call, process, step, &input, values)? else { return Ok(false) };
    memory.slice(into)?.copy_from_slice(&result);
    Ok(true)
}

/// A process that waits for something that never comes.
fn stuck(schedules: &[Schedule], ready: &[Vec<StepId>]) -> (usize, String) {
    for (process, steps) in ready.iter().enumerate() {
        if let Some(id) = steps.first() {
            let step = schedules[process].steps()[id.0 as usize];
            return (process, format!("deadlock: step {} waits for ever: {step:?}", id.0));
        }
    }
    (0, "deadlock: steps wait for each other in a circle".into())
}
