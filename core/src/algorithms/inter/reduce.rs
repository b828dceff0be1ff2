//! Reduce from all of one group to a root in the other.
//!
//! - Steps: a binomial reduce to the group's leader, one message from it to the root.
//! - Bytes per rank: n sent once, received from at most ceil(log2 p) children.
//! - Reduction order: that of the ranks.
//! - Limits: none. Scratch: 3 n elements at most.
//! - Source: the definition, MPI: A Message-Passing Interface Standard, version 3.1, section 5.9.1.
//!
//! ```text
//! groups A 0 1, B 0 1, root A1    B0<-B1    A1<-B0
//! ```

use super::{local_tree, remote_root};
use crate::algorithms::patterns::whole;
use crate::algorithms::pieces::tree_reduce;
use crate::algorithms::{Algorithm, Scope, always};
use crate::builder::Builder;
use crate::call::{Call, Collective, Root};
use crate::schedule::Schedule;

/// See the [module documentation](self).
pub const ALGORITHM: Algorithm = Algorithm {
    name: "leaders",
    collectives: &[Collective::Reduce],
    scope: Scope::Inter,
    summary: "reduce to the other group's leader, which sends to the root",
    supports: always,
    build,
};

fn build(call: &Call) -> Schedule {
    let mut b = Builder::new(false);
    let (input, output) = whole(call.count());
    if call.root == Root::Here {
        b.recv(super::remote_leader(call), output);
    } else if let Some(root) = remote_root(call)
        && let Some(sum) = tree_reduce(&mut b, &local_tree(call), input, None)
    {
        b.send(root, sum);
    }
    b.finish()
}
