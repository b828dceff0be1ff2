//! Gather up a binomial tree.
//!
//! - Steps: ceil(log2 p) at the root; a rank sends its whole subtree's blocks at once.
//! - Bytes per rank: its subtree's blocks; the root receives all others.
//! - Reduction order: none.
//! - Limits: blocks are equal. Scratch: the subtree's blocks on ranks between root and leaves.
//! - Source: R. Thakur, R. Rabenseifner, W. Gropp, "Optimization of Collective Communication Operations in MPICH",
//!   International Journal of High Performance Computing Applications 19(1), 2005, section 3.3 (scatter, reversed).
//!
//! ```text
//! ranks    0          1          2          3
//! step 0   0<-1                  2<-3
//! step 1   0<-2 (2, 3)
//! ```

use crate::algorithms::patterns::Tree;
use crate::algorithms::{Algorithm, Scope};
use crate::builder::Builder;
use crate::call::{Call, Collective, Layout};
use crate::schedule::{Buffer, Schedule, Span};
use crate::types::Rank;

/// See the [module documentation](self).
pub const ALGORITHM: Algorithm = Algorithm {
    name: "binomial",
    collectives: &[Collective::Gather],
    scope: Scope::Intra,
    summary: "ceil(log2 p) steps up a tree; small blocks",
    supports: |call| matches!(call.layout, Layout::Uniform { .. }),
    build,
};

fn build(call: &Call) -> Schedule {
    let (rank, size, root, count) = (call.rank(), call.size(), call.root_rank(), call.count());
    let node = (rank + size - root) % size;
    let tree = Tree::new(node, size, 2);
    let mut b = Builder::new(call.in_place);
    let own = Span::new(Buffer::Input, 0, count);
    let rank_of = |node: usize| Rank::from((node + root) % size);
    let Some(parent) = tree.parent() else {
        if !call.in_place {
            b.copy(own, Span::new(Buffer::Output, rank * count, count));
        }
        for child in tree.children() {
            for span in at_root(child, tree.subtree_len(child), root, size, count) {
                b.recv(rank_of(child), span);
            }
        }
        return b.finish();
    };
    let len = tree.subtree_len(node);
    let subtree = if len == 1 {
        own
    } else {
        let subtree = b.scratch(len * count);
        b.copy(own, subtree.part(0, count));
        subtree
    };
    for child in tree.children() {
        let offset = (child - node) * count;
        for part in wrapped(child, tree.subtree_len(child), root, size) {
            b.recv(rank_of(child), subtree.part(offset + part.0 * count, part.1 * count));
        }
    }
    for part in wrapped(node, len, root, size) {
        b.send(rank_of(parent), subtree.part(part.0 * count, part.1 * count));
    }
    b.finish()
}

/// A subtree's nodes `first..first + len` as runs of consecutive ranks, (offset, length): two where the ranks begin
/// again at 0. Both ends of a message cut it the same way.
pub(in crate::algorithms) fn wrapped(
    first: usize,
    len: usize,
    root: usize,
    size: usize,
) -> Vec<(usize, usize)> {
    let before = size.saturating_sub(root + first).min(len);
    [(0, before), (before, len - before)].into_iter().filter(|&(_, len)| len > 0).collect()
}

/// The runs of [`wrapped`] at their places in the root's buffer.
fn at_root(first: usize, len: usize, root: usize, size: usize, count: usize) -> Vec<Span> {
    wrapped(first, len, root, size)
        .into_iter()
        .map(|(offset, len)| {
            Span::new(Buffer::Output, (first + offset + root) % size * count, len * count)
        })
        .collect()
}
