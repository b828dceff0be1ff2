//! Allreduce by vendor groups: reduce-scatter inside each, exchange between them, allgather inside each; in chunks, so that the
//! three phases run at the same time.
//!
//! - Steps per chunk: a reduce-scatter in the stages of the group (devices of the node, then nodes by factors of at most 4), an exchange
//!   with the owners of the same elements in the other groups, the stages back. Parts are cut by border rates, and cut again
//!   between groups of different sizes.
//! - Bytes over the border of a node, for M equal nodes in a group: n (2 (M - 1) + 1) / M each way for two groups, the least
//!   possible for two equal groups.
//! - Reduction order: every element is added up at one rank of each group, and the groups' sums in one order (or at one rank), so
//!   all results are bitwise equal; commutative operations only.
//! - Limits: commutative operations; the topology must be known. Scratch: about one vector, at most [`WINDOW`] chunks' worth.
//! - Source: H. Kim et al., "HetCCL: Accelerating LLM Training with Heterogeneous GPUs", arXiv 2601.22585, 2026, for the three phases;
//!   the stages are those of R. Rabenseifner, "Optimization of Collective Reduction Operations", ICCS 2004.
//!
//! `hetero` merges nodes that look alike into one unit; `hetero_cells` makes every node a unit of its own, which lets slow
//! borders carry less where there are few nodes. `hetero_library` has the vendor's library do the first and the last phase in the
//! groups that have one: its calls have one order on all ranks, so the first phases of [`AHEAD`] chunks come before the last phase of
//! one.
//!
//! ```text
//! ranks      0 (A)       1 (A)       2 (B)       3 (B)
//! scatter    a: 0<-1     b: 1<-0     a: 2<-3     b: 3<-2
//! exchange   a: 0<->2    b: 1<->3    a           b
//! gather     ab: 0<->1   ab          ab: 2<->3   ab
//! ```

use super::{hierarchy, known_and_commutative, stages, with_library_and_commutative};
use crate::algorithms::patterns::{chunks, whole};
use crate::algorithms::{Algorithm, Scope};
use crate::builder::Builder;
use crate::call::{Block, Call, Collective};
use crate::schedule::{Buffer, Schedule, StepId};
use crate::topology::Division;

/// Chunks under way at a time.
pub const WINDOW: usize = 12;

/// Chunks whose first phase the vendor's library is given before the last phase of one.
const AHEAD: usize = 3;

/// Scratch memory, in vectors, that chunks under way may take together.
const MOST_SCRATCH: usize = 3;

/// Units are vendor groups. See the [module documentation](self).
pub const ALGORITHM: Algorithm = Algorithm {
    name: "hetero",
    collectives: &[Collective::Allreduce],
    scope: Scope::Intra,
    summary: "reduce-scatter, exchange and allgather by vendor groups, in chunks; large vectors",
    supports: known_and_commutative,
    build: |call| build(call, hierarchy(call).by_group()),
};

/// Units are nodes. See the [module documentation](self).
pub const CELLS: Algorithm = Algorithm {
    name: "hetero_cells",
    summary: "as hetero, with every node on its own; few nodes with unequal borders",
    build: |call| build(call, hierarchy(call).by_cell()),
    ..ALGORITHM
};

/// Units are library groups, where the vendor's library does the first and the last phase. See the [module documentation](self).
pub const LIBRARY: Algorithm = Algorithm {
    name: "hetero_library",
    summary: "as hetero, with the vendors' libraries inside their groups; large vectors",
    supports: with_library_and_commutative,
    build: |call| build(call, hierarchy(call).by_library()),
    ..ALGORITHM
};

fn build(call: &Call, division: &Division) -> Schedule {
    let count = call.count();
    let seat = division.seats[call.rank()];
    let me = division.of(call.rank());
    let mut b = Builder::new(call.in_place);
    if call.size() == 1 {
        let (input, output) = whole(count);
        b.copy(input, output);
        return b.finish();
    }
    let need = |block| {
        stages::reduce_scatter_scratch(me, block) + stages::exchange_scratch(division, seat, block)
    };
    let blocks: Vec<Block> =
        chunks(count, call.chunk).map(|(start, len)| Block { start, len }).collect();
    // Chunks have one length, but the last.
    let lengths = [blocks.first(), blocks.last()];
    let scratch = lengths.into_iter().flatten().map(|&block| need(block)).max().unwrap_or(0);
    // Chunks of a few elements need more scratch than their length, for parts are rounded up: fewer of them then.
    let affordable = (MOST_SCRATCH * count / scratch.max(1)).max(1);
    let slots = blocks.len().min(WINDOW).min(affordable);
    let mut arenas: Vec<stages::Arena> =
        (0..slots).map(|_| stages::Arena::new(&mut b, scratch)).collect();
    let mut ends: Vec<Option<StepId>> = vec![None; slots];
    let ahead = if me.0.library { AHEAD.min(slots.saturating_sub(1)) } else { 0 };
    let mut sums = vec![Buffer::Input; slots];
    for i in 0..blocks.len() + ahead {
        if let Some(&block) = blocks.get(i) {
            let (arena, mut first) = (&mut arenas[i % slots], Vec::new());
            arena.clear();
            sums[i % slots] =
                stages::reduce_scatter(&mut b, me, block, Buffer::Input, arena, &mut first);
            // Without this, the first phase of all chunks would stand in line before the later phases of the first chunk.
            if let Some(end) = ends[i % slots] {
                for step in first {
                    b.after(end, step);
                }
            }
        }
        let Some(done) = i.checked_sub(ahead) else { continue };
        let (block, slot, mut last) = (blocks[done], done % slots, Vec::new());
        let sum = stages::exchange(&mut b, division, seat, block, sums[slot], &mut arenas[slot]);
        debug_assert!(sum == Buffer::Output, "more than one rank, so somebody was met");
        stages::allgather(&mut b, me, block, Buffer::Output, &mut last);
        ends[slot] = last.last().copied();
    }
    b.finish()
}
