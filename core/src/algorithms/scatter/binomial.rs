//! Scatter down a binomial tree.
//!
//! - Steps: ceil(log2 p) at the root; a rank gets its whole subtree's blocks at once and passes on those of others.
//! - Bytes per rank: its subtree's blocks; the root sends all others.
//! - Reduction order: none.
//! - Limits: blocks are equal. Scratch: the subtree's blocks on ranks between root and leaves.
//! - Source: R. Thakur, R. Rabenseifner, W. Gropp, "Optimization of Collective Communication Operations in MPICH",
//!   International Journal of High Performance Computing Applications 19(1), 2005, section 3.3.
//!
//! ```text
//! ranks    0               1          2          3
//! step 0   0->2 (2, 3)
//! step 1   0->1                       2->3
//! ```

use crate::algorithms::gather::binomial::wrapped;
use crate::algorithms::patterns::Tree;
use crate::algorithms::{Algorithm, Scope};
use crate::builder::Builder;
use crate::call::{Call, Collective, Layout};
use crate::schedule::{Buffer, Schedule, Span};
use crate::types::Rank;

/// See the [module documentation](self).
pub const ALGORITHM: Algorithm = Algorithm {
    name: "binomial",
    collectives: &[Collective::Scatter],
    scope: Scope::Intra,
    summary: "ceil(log2 p) steps down a tree; small blocks",
    supports: |call| matches!(call.layout, Layout::Uniform { .. }),
    build,
};

fn build(call: &Call) -> Schedule {
    let (rank, size, root, count) = (call.rank(), call.size(), call.root_rank(), call.count());
    let node = (rank + size - root) % size;
    let tree = Tree::new(node, size, 2);
    // In place concerns the root's output, which it does not have: Input stays what it is.
    let mut b = Builder::new(false);
    let own = Span::new(Buffer::Output, 0, count);
    let rank_of = |node: usize| Rank::from((node + root) % size);
    let Some(parent) = tree.parent() else {
        for child in tree.children().into_iter().rev() {
            for (offset, len) in wrapped(child, tree.subtree_len(child), root, size) {
                let first = (child + offset + root) % size;
                b.send(rank_of(child), Span::new(Buffer::Input, first * count, len * count));
            }
        }
        if !call.in_place {
            b.copy(Span::new(Buffer::Input, rank * count, count), own);
        }
        return b.finish();
    };
    let len = tree.subtree_len(node);
    let subtree = if len == 1 { own } else { b.scratch(len * count) };
    for (offset, len) in wrapped(node, len, root, size) {
        b.recv(rank_of(parent), subtree.part(offset * count, len * count));
    }
    for child in tree.children().into_iter().rev() {
        let first = (child - node) * count;
        for (offset, len) in wrapped(child, tree.subtree_len(child), root, size) {
            b.send(rank_of(child), subtree.part(first + offset * count, len * count));
        }
    }
    b.copy(subtree.part(0, count), own);
    b.finish()
}
