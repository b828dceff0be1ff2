//! Bcast as a scatter and an allgather (van de Geijn).
//!
//! - Steps: ceil(log2 p) down a binomial tree, which leaves each rank one part in p, then p - 1 around a ring.
//! - Bytes per rank: about 2 n, whatever p.
//! - Reduction order: none.
//! - Limits: none. Scratch: none.
//! - Source: M. Barnett, L. Shuler, R. van de Geijn, S. Gupta, D. Payne, J. Watts, "Interprocessor Collective Communication
//!   Library (InterCom)", Scalable High Performance Computing Conference 1994.
//!
//! ```text
//! ranks      0               1          2          3
//! scatter    0->2 (c, d)
//! scatter    0->1 (b)                   2->3 (d)
//! ring       a: 0->1         b: 1->2    c: 2->3    d: 3->0
//! ring       d: 0->1         a: 1->2    b: 2->3    c: 3->0
//! ring       c: 0->1         d: 1->2    a: 2->3    b: 3->0
//! ```

use crate::algorithms::patterns::{Tree, even_part, even_range};
use crate::algorithms::{Algorithm, Scope, always};
use crate::builder::Builder;
use crate::call::{Call, Collective};
use crate::schedule::{Schedule, Span};
use crate::types::Rank;

/// See the [module documentation](self).
pub const ALGORITHM: Algorithm = Algorithm {
    name: "scatter_allgather",
    collectives: &[Collective::Bcast],
    scope: Scope::Intra,
    summary: "a scatter and a ring allgather; large messages, many ranks",
    supports: always,
    build,
};

fn build(call: &Call) -> Schedule {
    let (rank, size, root, count) = (call.rank(), call.size(), call.root_rank(), call.count());
    let node = (rank + size - root) % size;
    let data = super::data(call);
    let part = |node: usize| {
        let block = even_part(count, size, node);
        data.part(block.start, block.len)
    };
    let mut b = Builder::new(false);
    scatter(&mut b, node, size, root, data);
    if size == 1 {
        return b.finish();
    }
    let (left, right) = (Rank::from((rank + size - 1) % size), Rank::from((rank + 1) % size));
    // The root has everything: nobody sends to it.
    for step in 0..size - 1 {
        let (leaving, arriving) = (node + size - step, node + size - step - 1);
        if node != 0 {
            b.recv(left, part(arriving % size));
        }
        if node + 1 != size {
            b.send(right, part(leaving % size));
        }
    }
    b.finish()
}

/// Parts `node..node + subtree` reach each node, parts numbered from the root on.
fn scatter(b: &mut Builder, node: usize, size: usize, root: usize, data: Span) {
    let tree = Tree::new(node, size, 2);
    let rank_of = |node: usize| Rank::from((node + root) % size);
    let subtree = |first: usize| {
        let block = even_range(data.len, size, first, first + tree.subtree_len(first));
        data.part(block.start, block.len)
    };
    if let Some(parent) = tree.parent() {
        b.recv(rank_of(parent), subtree(node));
    }
    for child in tree.children().into_iter().rev() {
        b.send(rank_of(child), subtree(child));
    }
}
