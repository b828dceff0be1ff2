//! Cells in turn: who stands in for whom, and the order of the machine.

use crate::topology::Division;
use crate::types::Rank;

/// The cells of a communicator as one of its ranks sees them.
#[derive(Clone, Copy)]
pub(super) struct Cells<'a> {
    division: &'a Division,
    rank: usize,
}

impl<'a> Cells<'a> {
    pub(super) fn new(division: &'a Division, rank: usize) -> Cells<'a> {
        Cells { division, rank }
    }

    /// How many.
    pub(super) fn len(&self) -> usize {
        self.division.units.len()
    }

    /// This rank's cell.
    pub(super) fn own(&self) -> usize {
        self.cell_of(self.rank)
    }

    /// A rank's cell.
    pub(super) fn cell_of(&self, rank: usize) -> usize {
        self.division.seats[rank].unit
    }

    /// The cell `distance` after this rank's.
    pub(super) fn ahead(&self, distance: usize) -> usize {
        (self.own() + distance) % self.len()
    }

    /// The cell `distance` before this rank's.
    pub(super) fn behind(&self, distance: usize) -> usize {
        (self.own() + self.len() - distance) % self.len()
    }

    /// The ranks of a cell.
    pub(super) fn ranks(&self, cell: usize) -> &'a [Rank] {
        &self.division.units[cell].ranks
    }

    /// The others of this rank's cell, those that follow it first: on every rank another one comes first.
    pub(super) fn mates(&self) -> impl Iterator<Item = Rank> + use<'a> {
        let ranks = self.ranks(self.own());
        let index = self.division.seats[self.rank].index;
        (1..ranks.len()).map(move |step| ranks[(index + step) % ranks.len()])
    }

    /// The rank of `cell` that deals with what a rank of another cell sends there or gets from there: the same place, or one in proportion.
    pub(super) fn proxy(&self, cell: usize, rank: usize) -> Rank {
        let (there, here) = (self.ranks(cell), self.ranks(self.cell_of(rank)));
        there[self.division.seats[rank].index * there.len() / here.len()]
    }
}

/// All ranks, cell by cell, the cell and the place of `first` in front.
pub(super) fn from(division: &Division, first: usize) -> Vec<Rank> {
    let seat = division.seats[first];
    let cells = division.units.len();
    let mut order = Vec::with_capacity(division.seats.len());
    for step in 0..cells {
        let ranks = &division.units[(seat.unit + step) % cells].ranks;
        let turn = if step == 0 { seat.index } else { 0 };
        order.extend(ranks[turn..].iter().chain(&ranks[..turn]));
    }
    order
}
