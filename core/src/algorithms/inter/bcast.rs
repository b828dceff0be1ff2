//! Bcast from a root in one group to all of the other.
//!
//! - Steps: one message from the root to the other group's leader, a binomial bcast there.
//! - Bytes per rank: n received once, sent to at most ceil(log2 p) children.
//! - Reduction order: none.
//! - Limits: none. Scratch: none.
//! - Source: the definition, MPI: A Message-Passing Interface Standard, version 3.1, section 5.4.
//!
//! ```text
//! groups A 0 1, B 0 1, root A1    A1->B0    B0->B1
//! ```

use super::{is_leader, local_tree, remote_leader, remote_root};
use crate::algorithms::patterns::whole;
use crate::algorithms::pieces::tree_bcast;
use crate::algorithms::{Algorithm, Scope, always};
use crate::builder::Builder;
use crate::call::{Call, Collective, Root};
use crate::schedule::Schedule;

/// See the [module documentation](self).
pub const ALGORITHM: Algorithm = Algorithm {
    name: "leaders",
    collectives: &[Collective::Bcast],
    scope: Scope::Inter,
    summary: "the root to the other group's leader, a tree below it",
    supports: always,
    build,
};

fn build(call: &Call) -> Schedule {
    let mut b = Builder::new(false);
    let (input, output) = whole(call.count());
    if call.root == Root::Here {
        b.send(remote_leader(call), input);
    } else if let Some(root) = remote_root(call) {
        if is_leader(call) {
            b.recv(root, output);
        }
        tree_bcast(&mut b, &local_tree(call), output);
    }
    b.finish()
}
