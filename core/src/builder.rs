//! Builds a [`Schedule`] from steps in program order and finds out which step must wait for which.
//!
//! An algorithm writes its steps as if they ran one after the other. The builder keeps, for every
//! stretch of every buffer, the step that wrote it last and the steps that have read it since; a new
//! step waits for the writers of what it reads (read after write) and for writers and readers of what
//! it writes (write after write, write after read). Steps that touch different memory run at the same
//! time. [`Builder::after`] adds an order that memory does not show, such as a window of messages.

use std::collections::{BTreeMap, HashMap};

use crate::schedule::{Buffer, GroupCollective, Schedule, Span, Step, StepId};
use crate::types::Rank;

/// What is known about one stretch of a buffer: ends at `end`, starts at its key in the map.
#[derive(Clone, Debug, Default)]
struct Stretch {
    end: usize,
    writer: Option<StepId>,
    readers: Vec<StepId>,
}

/// Collects the steps of one rank. See the [module documentation](self).
#[derive(Debug, Default)]
pub struct Builder {
    steps: Vec<Step>,
    /// Pairs (earlier, later), unsorted.
    edges: Vec<(StepId, StepId)>,
    stretches: HashMap<Buffer, BTreeMap<usize, Stretch>>,
    sent: HashMap<Rank, u32>,
    received: HashMap<Rank, u32>,
    scratch: Vec<usize>,
    in_place: bool,
    /// The last collective of the vendor's library.
    group: Option<StepId>,
}

impl Builder {
    /// An empty schedule. With `in_place`, [`Buffer::Input`] is another name for [`Buffer::Output`].
    pub fn new(in_place: bool) -> Builder {
        Builder { in_place, ..Builder::default() }
    }

    /// Whether [`Buffer::Input`] is another name for [`Buffer::Output`].
    pub fn in_place(&self) -> bool {
        self.in_place
    }

    /// A new scratch buffer of `len` elements, as one span.
    ///
    /// # Panics
    /// When an algorithm asks for more than 256 of them.
    pub fn scratch(&mut self, len: usize) -> Span {
        let number = u8::try_from(self.scratch.len()).expect("at most 256 scratch buffers");
        self.scratch.push(len);
        Span::new(Buffer::Scratch(number), 0, len)
    }

    /// Sends `from` to `peer`.
    pub fn send(&mut self, peer: Rank, from: Span) -> StepId {
        let message = next_message(&mut self.sent, peer);
        let from = self.resolve(from);
        self.push(Step::Send { peer, message, from }, &[from], None)
    }

    /// Receives from `peer` into `into`.
    pub fn recv(&mut self, peer: Rank, into: Span) -> StepId {
        let message = next_message(&mut self.received, peer);
        let into = self.resolve(into);
        self.push(Step::Recv { peer, message, into }, &[], Some(into))
    }

    /// Copies `from` to `into`; nothing where both are the same span or empty.
    ///
    /// # Panics
    /// When the lengths differ or the spans overlap in part.
    pub fn copy(&mut self, from: Span, into: Span) -> Option<StepId> {
        let (from, into) = (self.resolve(from), self.resolve(into));
        assert_eq!(from.len, into.len, "a copy has one length");
        if from == into || from.len == 0 {
            return None;
        }
        assert!(!overlap(&from, &into), "a copy must not overlap itself: {from:?} {into:?}");
        Some(self.push(Step::Copy { from, into }, &[from], Some(into)))
    }

    /// `into = left op right`; `left` holds the lower ranks' contributions. Nothing where empty.
    ///
    /// # Panics
    /// When the lengths differ, or `into` overlaps an operand in part.
    pub fn reduce(&mut self, left: Span, right: Span, into: Span) -> Option<StepId> {
        let (left, right, into) = (self.resolve(left), self.resolve(right), self.resolve(into));
        assert!(left.len == right.len && right.len == into.len, "a reduction has one length");
        if into.len == 0 {
            return None;
        }
        for operand in [&left, &right] {
            assert!(*operand == into || !overlap(operand, &into), "partial overlap in a reduction");
        }
        Some(self.push(Step::Reduce { left, right, into }, &[left, right], Some(into)))
    }

    /// A collective of the vendor's library among the ranks of the group, after those before it. Nothing where both spans are empty.
    pub fn group(
        &mut self,
        collective: GroupCollective,
        root: usize,
        from: Span,
        into: Span,
    ) -> Option<StepId> {
        let (from, into) = (self.resolve(from), self.resolve(into));
        if from.len == 0 && into.len == 0 {
            return None;
        }
        let step = Step::Group { collective, root: root as u32, from, into };
        let id = self.push(step, &[from], Some(into));
        if let Some(before) = self.group.replace(id) {
            self.after(before, id);
        }
        Some(id)
    }

    /// Makes `later` wait for `earlier` although they touch different memory.
    ///
    /// # Panics
    /// When `later` does not come after `earlier` in program order.
    pub fn after(&mut self, earlier: StepId, later: StepId) {
        assert!(earlier < later, "an order that points backwards");
        self.edges.push((earlier, later));
    }

    /// The finished schedule.
    pub fn finish(mut self) -> Schedule {
        self.edges.sort_unstable();
        self.edges.dedup();
        let n = self.steps.len();
        let mut offsets = vec![0u32; n + 1];
        let mut waits_for = vec![0u32; n];
        for &(earlier, later) in &self.edges {
            offsets[earlier.0 as usize + 1] += 1;
            waits_for[later.0 as usize] += 1;
        }
        for i in 0..n {
            offsets[i + 1] += offsets[i];
        }
        Schedule {
            steps: self.steps.into(),
            offsets: offsets.into(),
            successors: self.edges.iter().map(|&(_, later)| later).collect(),
            waits_for: waits_for.into(),
            scratch: self.scratch.into(),
            in_place: self.in_place,
        }
    }

    fn resolve(&self, mut span: Span) -> Span {
        if self.in_place && span.buffer == Buffer::Input {
            span.buffer = Buffer::Output;
        }
        if let Buffer::Scratch(number) = span.buffer {
            let len = self.scratch[number as usize];
            assert!(span.end() <= len, "{span:?} outside a scratch buffer of {len} elements");
        }
        span
    }

    fn push(&mut self, step: Step, reads: &[Span], writes: Option<Span>) -> StepId {
        let id = StepId(u32::try_from(self.steps.len()).expect("fewer than 2^32 steps"));
        self.steps.push(step);
        for span in reads {
            self.touch(span, id, false);
        }
        if let Some(span) = writes {
            self.touch(&span, id, true);
        }
        id
    }

    /// Records that step `id` reads or writes `span`, and the dependencies that follow.
    fn touch(&mut self, span: &Span, id: StepId, write: bool) {
        if span.len == 0 {
            return;
        }
        let map = self.stretches.entry(span.buffer).or_default();
        split_at(map, span.start);
        split_at(map, span.end());
        fill_gaps(map, span.start, span.end());
        for stretch in map.range_mut(span.start..span.end()).map(|(_, s)| s) {
            let writer = stretch.writer.filter(|&w| w != id);
            self.edges.extend(writer.map(|w| (w, id)));
            if write {
                let readers = stretch.readers.drain(..).filter(|&r| r != id);
                self.edges.extend(readers.map(|r| (r, id)));
                stretch.writer = Some(id);
            } else if stretch.readers.last() != Some(&id) {
                stretch.readers.push(id);
            }
        }
    }
}

fn next_message(counters: &mut HashMap<Rank, u32>, peer: Rank) -> u16 {
    let counter = counters.entry(peer).or_default();
    let message = (*counter & 0xffff) as u16;
    *counter += 1;
    message
}

fn overlap(a: &Span, b: &Span) -> bool {
    a.buffer == b.buffer && a.start < b.end() && b.start < a.end()
}

/// Cuts the stretch around `at`, if there is one, in two.
fn split_at(map: &mut BTreeMap<usize, Stretch>, at: usize) {
    let Some((&start, stretch)) = map.range_mut(..at).next_back() else { return };
    debug_assert!(start < at);
    if stretch.end > at {
        let right = stretch.clone();
        stretch.end = at;
        map.insert(at, right);
    }
}

/// Makes `start..end` covered without a gap; the neighbours are cut at both ends already.
fn fill_gaps(map: &mut BTreeMap<usize, Stretch>, start: usize, end: usize) {
    let mut gaps = Vec::new();
    let mut at = start;
    for (&key, stretch) in map.range(start..end) {
        if key > at {
            gaps.push((at, key));
        }
        at = stretch.end;
    }
    if at < end {
        gaps.push((at, end));
    }
    for (from, to) in gaps {
        map.insert(from, Stretch { end: to, ..Stretch::default() });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn input(start: usize, len: usize) -> Span {
        Span::new(Buffer::Input, start, len)
    }

    fn output(start: usize, len: usize) -> Span {
        Span::new(Buffer::Output, start, len)
    }

    #[test]
    fn independent_steps_do_not_wait() {
        let mut b = Builder::new(false);
        b.send(Rank(1), input(0, 4));
        b.recv(Rank(1), output(0, 4));
        let s = b.finish();
        assert_eq!(s.waits_for(), &[0, 0]);
    }

    #[test]
    fn in_place_send_then_receive_waits() {
        let mut b = Builder::new(true);
        let send = b.send(Rank(1), input(0, 4));
        let recv = b.recv(Rank(1), output(2, 4));
        let s = b.finish();
        assert_eq!(s.successors(send), &[recv]);
    }

    #[test]
    fn read_after_write_and_write_after_read() {
        let mut b = Builder::new(false);
        let t = b.scratch(8);
        let r0 = b.recv(Rank(1), t.part(0, 4));
        let r1 = b.recv(Rank(1), t.part(4, 4));
        let sum = b.reduce(input(0, 6), t.part(0, 6), output(0, 6)).unwrap();
        let again = b.recv(Rank(1), t.part(2, 4));
        let s = b.finish();
        assert_eq!(s.successors(r0), &[sum, again]);
        assert_eq!(s.successors(r1), &[sum, again]);
        assert_eq!(s.successors(sum), &[again]);
        assert_eq!(s.waits_for(), &[0, 0, 2, 3]);
    }

    #[test]
    fn an_accumulator_is_a_chain() {
        let mut b = Builder::new(false);
        let t = b.scratch(2);
        let r = b.recv(Rank(1), t);
        let sum = b.reduce(input(0, 2), t, t).unwrap();
        let send = b.send(Rank(2), t);
        let s = b.finish();
        assert_eq!(s.successors(r), &[sum, send][..1]);
        assert_eq!(s.successors(sum), &[send]);
    }

    #[test]
    fn messages_are_numbered_per_direction() {
        let mut b = Builder::new(false);
        b.send(Rank(1), input(0, 1));
        b.send(Rank(2), input(0, 1));
        b.send(Rank(1), input(0, 1));
        let s = b.finish();
        let numbers: Vec<u16> = s
            .steps()
            .iter()
            .map(|step| match step {
                Step::Send { message, .. } => *message,
                other => panic!("unexpected {other:?}"),
            })
            .collect();
        assert_eq!(numbers, [0, 0, 1]);
    }

    #[test]
    #[should_panic(expected = "overlap")]
    fn a_copy_onto_itself_shifted_is_refused() {
        Builder::new(false).copy(output(0, 4), output(2, 4));
    }
}
