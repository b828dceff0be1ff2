//! Who owns which part of a vector while it is reduced: units of ranks with mixed-radix coordinates.
//!
//! The ranks of a communicator are divided into *units*. Inside a unit every rank has a coordinate of one digit per
//! *stage*: which of its vendor group's devices on the node it is, which vendor on the node, which node (in factors, so
//! that a stage has few members). A reduce-scatter goes through the stages in order, each among the ranks that differ
//! in that digit only, and leaves every rank with its own part of the vector; an allgather goes back. Between units, parts
//! are cut again: [`Unit::owners`] says who has what.

use crate::call::Block;
use crate::types::Rank;

/// Part `index` of `len` elements cut in proportion to `weights`; even where all weights are zero.
///
/// Integers only, so that all ranks cut alike.
pub fn weighted_part(len: usize, weights: &[u32], index: usize) -> Block {
    let sum = |weights: &[u32]| weights.iter().map(|&w| u128::from(w)).sum::<u128>();
    let total = sum(weights);
    let edge = |index: usize| match total {
        0 => len * index / weights.len(),
        _ => (len as u128 * sum(&weights[..index]) / total) as usize,
    };
    let start = edge(index);
    Block { start, len: edge(index + 1) - start }
}

/// Part `index` of `len` elements cut into `parts` of one length; what is left over belongs to the last.
fn equal_part(len: usize, parts: usize, index: usize) -> Block {
    let part = len / parts;
    let start = index * part;
    Block { start, len: if index + 1 == parts { len - start } else { part } }
}

/// A set of ranks that reduce-scatters by stages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unit {
    /// Members of each stage; their product is the number of ranks. Stages of one member are left out.
    pub stages: Vec<usize>,
    /// The ranks in the order of their coordinates, first digit most significant.
    pub ranks: Vec<Rank>,
    /// How much of the vector each member of the first stage takes.
    pub weights: Vec<u32>,
    /// How much of what units combine with each other is combined in this one, where there are three or more.
    pub home: u32,
    /// A vendor's library does the collectives inside: one stage, in parts of one length, the rest with the last rank.
    pub library: bool,
}

impl Unit {
    /// The unit of a library group.
    pub fn of_library(ranks: Vec<Rank>) -> Unit {
        Unit { stages: vec![ranks.len()], ranks, weights: Vec::new(), home: 1, library: true }
    }

    /// The digit of coordinate `index` in `stage`.
    pub fn digit(&self, index: usize, stage: usize) -> usize {
        index / self.stride(stage) % self.stages[stage]
    }

    /// The rank that differs from coordinate `index` in having `digit` in `stage`.
    pub fn peer(&self, index: usize, stage: usize, digit: usize) -> Rank {
        let stride = self.stride(stage);
        self.ranks[index - self.digit(index, stage) * stride + digit * stride]
    }

    /// The part of `block` that belongs to `digit` in `stage`.
    pub fn part(&self, stage: usize, block: Block, digit: usize) -> Block {
        let part = if self.library {
            equal_part(block.len, self.stages[stage], digit)
        } else if stage == 0 && !self.weights.is_empty() {
            weighted_part(block.len, &self.weights, digit)
        } else {
            crate::algorithms::patterns::even_part(block.len, self.stages[stage], digit)
        };
        Block { start: block.start + part.start, len: part.len }
    }

    /// What coordinate `index` owns of `whole` after all stages.
    pub fn own(&self, index: usize, whole: Block) -> Block {
        (0..self.stages.len()).fold(whole, |b, stage| self.part(stage, b, self.digit(index, stage)))
    }

    /// Calls `found` with every rank that owns some of `wanted` when the unit has cut `whole`, and with what it owns
    /// there, in the order of elements.
    pub fn owners(&self, whole: Block, wanted: Block, found: &mut impl FnMut(Rank, Block)) {
        self.descend(0, 0, whole, wanted, found);
    }

    fn descend(
        &self,
        stage: usize,
        index: usize,
        block: Block,
        wanted: Block,
        found: &mut impl FnMut(Rank, Block),
    ) {
        let start = block.start.max(wanted.start);
        let end = (block.start + block.len).min(wanted.start + wanted.len);
        if start >= end {
            return;
        }
        if stage == self.stages.len() {
            found(self.ranks[index], Block { start, len: end - start });
            return;
        }
        for digit in 0..self.stages[stage] {
            let part = self.part(stage, block, digit);
            self.descend(stage + 1, index * self.stages[stage] + digit, part, wanted, found);
        }
    }

    fn stride(&self, stage: usize) -> usize {
        self.stages[stage + 1..].iter().product()
    }
}

/// Where a rank is in a [`Division`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seat {
    /// Its unit.
    pub unit: usize,
    /// Its coordinate there.
    pub index: usize,
}

/// All units of a communicator.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Division {
    /// The units, in the order of their lowest ranks.
    pub units: Vec<Unit>,
    /// Each rank's place among them.
    pub seats: Vec<Seat>,
}

impl Division {
    /// Seats every rank.
    pub fn new(units: Vec<Unit>, size: usize) -> Division {
        let mut seats = vec![Seat::default(); size];
        for (unit, ranks) in units.iter().map(|unit| &unit.ranks).enumerate() {
            for (index, rank) in ranks.iter().enumerate() {
                seats[rank.index()] = Seat { unit, index };
            }
        }
        Division { units, seats }
    }

    /// The unit of a rank and its coordinate there.
    pub fn of(&self, rank: usize) -> (&Unit, usize) {
        let Seat { unit, index } = self.seats[rank];
        (&self.units[unit], index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unit(stages: &[usize], weights: &[u32]) -> Unit {
        let size: usize = stages.iter().product();
        Unit {
            stages: stages.to_vec(),
            ranks: (0..size).map(Rank::from).collect(),
            weights: weights.to_vec(),
            home: 1,
            library: false,
        }
    }

    #[test]
    fn weighted_parts_tile_the_whole() {
        for (len, weights) in
            [(10, &[1, 1, 2][..]), (7, &[0, 3]), (5, &[0, 0, 0]), (0, &[4, 1]), (3, &[9])]
        {
            let mut at = 0;
            for index in 0..weights.len() {
                let part = weighted_part(len, weights, index);
                assert_eq!(part.start, at);
                at += part.len;
            }
            assert_eq!(at, len);
        }
        assert_eq!(weighted_part(40, &[1, 3], 1), Block { start: 10, len: 30 });
    }

    #[test]
    fn own_parts_tile_the_whole_in_the_order_of_coordinates() {
        let library = Unit::of_library((0..3).map(Rank::from).collect());
        for unit in [
            unit(&[], &[]),
            unit(&[3], &[2, 1, 1]),
            unit(&[2, 3, 2], &[1, 3]),
            unit(&[4, 4], &[]),
            library,
        ] {
            for whole in [Block { start: 5, len: 100 }, Block { start: 0, len: 7 }] {
                let mut at = whole.start;
                for index in 0..unit.ranks.len() {
                    let own = unit.own(index, whole);
                    assert_eq!(own.start, at);
                    at += own.len;
                    for stage in 0..unit.stages.len() {
                        assert_eq!(
                            unit.peer(index, stage, unit.digit(index, stage)).index(),
                            index
                        );
                    }
                }
                assert_eq!(at, whole.start + whole.len);
                let mut covered = whole.start + 1;
                let wanted = Block { start: whole.start + 1, len: whole.len - 2 };
                unit.owners(whole, wanted, &mut |rank, block| {
                    assert_eq!(block.start, covered);
                    let own = unit.own(rank.index(), whole);
                    assert!(
                        block.start >= own.start && block.start + block.len <= own.start + own.len
                    );
                    covered += block.len;
                });
                assert_eq!(covered, wanted.start + wanted.len);
            }
        }
    }
}
