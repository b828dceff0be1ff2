//! Reduce-scatter and allgather through the stages of a unit, and the exchange between units.

use super::inside;
use crate::algorithms::patterns::span;
use crate::builder::Builder;
use crate::call::Block;
use crate::schedule::{Buffer, Span, StepId};
use crate::topology::{Division, Seat, Unit, weighted_part};
use crate::types::Rank;

/// A stretch of scratch memory that is handed out piece by piece.
#[derive(Clone, Copy, Debug)]
pub struct Arena {
    span: Span,
    used: usize,
}

impl Arena {
    /// A new scratch buffer of `len` elements.
    pub fn new(b: &mut Builder, len: usize) -> Arena {
        Arena { span: b.scratch(len), used: 0 }
    }

    /// Everything is free again; the builder makes new users wait for old ones.
    pub fn clear(&mut self) {
        self.used = 0;
    }

    /// The next `len` elements.
    ///
    /// # Panics
    /// When there are not so many left.
    pub fn take(&mut self, len: usize) -> Span {
        let piece = self.span.part(self.used, len);
        self.used += len;
        piece
    }
}

/// Reduces `whole` of the unit's ranks, of which this one's contribution lies in `sum`, so that each has its own part in
/// Output. Where that is now: Output, or still `sum` where no stage has anybody to talk to.
///
/// Own and arriving parts are combined in the order of digits downwards from this rank's.
pub fn reduce_scatter(
    b: &mut Builder,
    (unit, index): (&Unit, usize),
    whole: Block,
    mut sum: Buffer,
    arena: &mut Arena,
    first: &mut Vec<StepId>,
) -> Buffer {
    if unit.library {
        let spans = (span(sum, whole), span(Buffer::Output, unit.own(index, whole)));
        first.extend(inside::library_reduce_scatter(b, unit.ranks.len(), index, spans));
        return Buffer::Output;
    }
    let mut block = whole;
    for (stage, &members) in unit.stages.iter().enumerate() {
        let digit = unit.digit(index, stage);
        let mine = unit.part(stage, block, digit);
        let mut arrived = Vec::with_capacity(members - 1);
        for step in 1..members {
            let (to, from) = ((digit + step) % members, (digit + members - step) % members);
            if mine.len > 0 {
                let place = arena.take(mine.len);
                let recv = b.recv(unit.peer(index, stage, from), place);
                arrived.push(place);
                first.extend((stage == 0).then_some(recv));
            }
            let part = unit.part(stage, block, to);
            if part.len > 0 {
                let send = b.send(unit.peer(index, stage, to), span(sum, part));
                first.extend((stage == 0).then_some(send));
            }
        }
        let result = span(Buffer::Output, mine);
        let mut partial = span(sum, mine);
        for place in arrived {
            b.reduce(partial, place, result);
            partial = result;
        }
        if members > 1 {
            sum = Buffer::Output;
        }
        block = mine;
    }
    sum
}

/// Elements of an arena that [`reduce_scatter`] takes.
pub fn reduce_scatter_scratch((unit, index): (&Unit, usize), whole: Block) -> usize {
    if unit.library {
        return 0;
    }
    let mut block = whole;
    let mut total = 0;
    for (stage, &members) in unit.stages.iter().enumerate() {
        block = unit.part(stage, block, unit.digit(index, stage));
        total += (members - 1) * block.len;
    }
    total
}

/// Spreads every rank's own part of `whole` over the unit, in `data`. The last steps go to `last`.
pub fn allgather(
    b: &mut Builder,
    (unit, index): (&Unit, usize),
    whole: Block,
    data: Buffer,
    last: &mut Vec<StepId>,
) {
    if unit.library {
        let spans = (span(data, whole), span(data, unit.own(index, whole)));
        *last = inside::library_allgather(b, unit.ranks.len(), index, spans);
        return;
    }
    let mut blocks = vec![whole];
    for stage in 0..unit.stages.len() {
        let inner = unit.part(stage, blocks[stage], unit.digit(index, stage));
        blocks.push(inner);
    }
    for (stage, &members) in unit.stages.iter().enumerate().rev() {
        let digit = unit.digit(index, stage);
        last.clear();
        for step in 1..members {
            let (to, from) = ((digit + step) % members, (digit + members - step) % members);
            let part = unit.part(stage, blocks[stage], from);
            if part.len > 0 {
                last.push(b.recv(unit.peer(index, stage, from), span(data, part)));
            }
            if blocks[stage + 1].len > 0 {
                b.send(unit.peer(index, stage, to), span(data, blocks[stage + 1]));
            }
        }
    }
}

/// A stretch of the vector that has one owner in every unit.
struct Segment {
    block: Block,
    owners: Vec<Rank>,
}

/// This rank's own part, cut wherever the owner in some unit changes.
fn segments(division: &Division, seat: Seat, whole: Block) -> Vec<Segment> {
    let own = division.units[seat.unit].own(seat.index, whole);
    let mut segments = vec![Segment { block: own, owners: Vec::new() }];
    for unit in &division.units {
        let mut finer = Vec::with_capacity(segments.len());
        for segment in &segments {
            unit.owners(whole, segment.block, &mut |rank, block| {
                let owners = segment.owners.iter().copied().chain([rank]).collect();
                finer.push(Segment { block, owners });
            });
        }
        segments = finer;
    }
    segments
}

/// Combines the units' sums of what this rank owns, which lies in `sum`, into Output.
///
/// Two units swap their sums, and both combine the first unit's with the second's. Of three and more, one is each
/// stretch's home: the others send it their sums and get the result.
pub fn exchange(
    b: &mut Builder,
    division: &Division,
    seat: Seat,
    whole: Block,
    sum: Buffer,
    arena: &mut Arena,
) -> Buffer {
    if division.units.len() == 1 {
        return sum;
    }
    if division.units.len() == 2 {
        let mut arrived = Vec::new();
        for segment in segments(division, seat, whole) {
            let peer = segment.owners[1 - seat.unit];
            let place = arena.take(segment.block.len);
            b.recv(peer, place);
            b.send(peer, span(sum, segment.block));
            arrived.push((segment.block, place));
        }
        for (block, place) in arrived {
            let mine = span(sum, block);
            let (left, right) = if seat.unit == 0 { (mine, place) } else { (place, mine) };
            b.reduce(left, right, span(Buffer::Output, block));
        }
        return Buffer::Output;
    }
    let homes: Vec<u32> = division.units.iter().map(|unit| unit.home).collect();
    let mut gathered = Vec::new();
    // Sums go home first, so that nobody waits for a result that is made after what it should have sent.
    let segments = segments(division, seat, whole);
    let parts = |segment: &Segment| {
        let block = segment.block;
        let homes = homes.clone();
        (0..homes.len()).filter_map(move |home| {
            let part = weighted_part(block.len, &homes, home);
            let part = Block { start: block.start + part.start, len: part.len };
            (part.len > 0).then_some((home, part))
        })
    };
    for segment in &segments {
        for (home, part) in parts(segment) {
            if home == seat.unit {
                let others = segment.owners.iter().enumerate().filter(|&(unit, _)| unit != home);
                let places: Vec<(Rank, Span)> =
                    others.map(|(_, &rank)| (rank, arena.take(part.len))).collect();
                for &(rank, place) in &places {
                    b.recv(rank, place);
                }
                gathered.push((part, places));
            } else {
                b.send(segment.owners[home], span(sum, part));
            }
        }
    }
    for (part, places) in gathered {
        let result = span(Buffer::Output, part);
        let mut partial = span(sum, part);
        for &(_, place) in &places {
            b.reduce(partial, place, result);
            partial = result;
        }
        for &(rank, _) in &places {
            b.send(rank, result);
        }
    }
    for segment in &segments {
        for (home, part) in parts(segment) {
            if home != seat.unit {
                b.recv(segment.owners[home], span(Buffer::Output, part));
            }
        }
    }
    Buffer::Output
}

/// Elements of an arena that [`exchange`] takes, at most.
pub fn exchange_scratch(division: &Division, seat: Seat, whole: Block) -> usize {
    match division.units.len() {
        1 => 0,
        2 => division.units[seat.unit].own(seat.index, whole).len,
        units => {
            let homes: Vec<u32> = division.units.iter().map(|unit| unit.home).collect();
            let mine = |s: &Segment| weighted_part(s.block.len, &homes, seat.unit).len;
            segments(division, seat, whole).iter().map(mine).sum::<usize>() * (units - 1)
        }
    }
}
