//! The vendor library's collectives, on symbolic memory: what each rank of a group gets when all have come.

use std::collections::HashMap;

use super::value::{Value, Values};
use crate::call::Call;
use crate::schedule::{GroupCollective, Span, Step};

/// A rank's part in a collective of its library group.
#[derive(Clone, Debug)]
struct Part {
    collective: GroupCollective,
    root: usize,
    input: Vec<Value>,
    into: Span,
}

/// One collective: the parts that are there, and what those get that have not been asked since all were.
#[derive(Debug, Default)]
struct Meeting {
    parts: Vec<Option<Part>>,
    results: Option<Vec<Vec<Value>>>,
}

/// The collectives under way, by group and how many there were before.
#[derive(Debug, Default)]
pub(super) struct Groups {
    meetings: HashMap<(usize, usize), Meeting>,
    /// By process: collectives behind it.
    behind: HashMap<usize, usize>,
}

impl Groups {
    /// A process comes to a collective, or asks again: what it gets, when all ranks of its group have come.
    ///
    /// # Errors
    /// A rank without a library group, or parts that do not fit together.
    pub(super) fn come(
        &mut self,
        call: &Call,
        process: usize,
        step: Step,
        input: &[Value],
        values: &mut Values,
    ) -> Result<Option<Vec<Value>>, String> {
        let Step::Group { collective, root, into, .. } = step else { return Ok(None) };
        let groups = call.topology.as_ref().and_then(|h| Some((h, h.library_group(process)?)));
        let Some((hierarchy, group)) = groups else {
            return Err("a collective of a library group that this rank is not in".into());
        };
        let members = &hierarchy.library_groups()[group];
        let place = members.iter().position(|rank| rank.index() == process).unwrap_or(0);
        let behind = self.behind.entry(process).or_default();
        let meeting = self.meetings.entry((group, *behind)).or_default();
        meeting.parts.resize(members.len(), None);
        let root = root as usize;
        let part = Part { collective, root, input: input.to_vec(), into };
        meeting.parts[place].get_or_insert(part);
        if meeting.results.is_none() {
            let Some(parts) = meeting.parts.iter().cloned().collect::<Option<Vec<Part>>>() else {
                return Ok(None);
            };
            meeting.results = Some(results(&parts, values)?);
        }
        *behind += 1;
        Ok(meeting.results.as_mut().map(|results| std::mem::take(&mut results[place])))
    }
}

/// What each rank gets.
fn results(parts: &[Part], values: &mut Values) -> Result<Vec<Vec<Value>>, String> {
    let (collective, root) = (parts[0].collective, parts[0].root);
    if let Some(other) = parts.iter().find(|p| p.collective != collective || p.root != root) {
        return Err(format!(
            "a group's ranks do not do the same: {collective:?} with root {root}, and {:?} with root {}",
            other.collective, other.root
        ));
    }
    let lengths = |wanted: &dyn Fn(usize) -> (usize, usize)| {
        let wrong =
            (0..parts.len()).find(|&i| wanted(i) != (parts[i].input.len(), parts[i].into.len));
        wrong.map_or(Ok(()), |i| {
            let (input, output) = wanted(i);
            let (has, into) = (parts[i].input.len(), parts[i].into.len);
            Err(format!(
                "place {i} of the group has {has} elements in and {into} out where {collective:?} wants {input} and {output}"
            ))
        })
    };
    let size = parts.len();
    match collective {
        GroupCollective::ReduceScatter => {
            let part = parts[0].into.len;
            lengths(&|_| (size * part, part))?;
            (0..size).map(|i| combine(parts, i * part, part, values)).collect()
        }
        GroupCollective::Allgather => {
            let part = parts[0].input.len();
            lengths(&|_| (part, size * part))?;
            let all: Vec<Value> = parts.iter().flat_map(|p| p.input.iter().copied()).collect();
            Ok(vec![all; size])
        }
        GroupCollective::Reduce => {
            let len = parts[0].input.len();
            lengths(&|i| (len, if i == root { len } else { 0 }))?;
            let sum = combine(parts, 0, len, values)?;
            Ok((0..size).map(|i| if i == root { sum.clone() } else { Vec::new() }).collect())
        }
        GroupCollective::Bcast => {
            let len = parts[root].input.len();
            lengths(&|i| if i == root { (len, parts[i].into.len) } else { (0, len) })?;
            let data = &parts[root].input;
            Ok(parts.iter().map(|p| data[..p.into.len.min(len)].to_vec()).collect())
        }
    }
}

/// Elements `start..start + len` of all inputs, combined in the order of the group.
fn combine(
    parts: &[Part],
    start: usize,
    len: usize,
    values: &mut Values,
) -> Result<Vec<Value>, String> {
    let mut sum = parts[0].input[start..start + len].to_vec();
    for part in &parts[1..] {
        for (sum, &value) in sum.iter_mut().zip(&part.input[start..start + len]) {
            *sum = values.reduce(*sum, value)?;
        }
    }
    Ok(sum)
}
