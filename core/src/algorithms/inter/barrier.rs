//! Barrier between two groups, by their leaders.
//!
//! - Steps: a token up a binomial tree in each group, one exchange between the leaders, a token down.
//! - Bytes per rank: one per message.
//! - Reduction order: none.
//! - Limits: none. Scratch: one element.
//! - Source: the definition, MPI: A Message-Passing Interface Standard, version 3.1, section 5.3.
//!
//! ```text
//! groups A 0 1, B 0 1    up A0<-A1, B0<-B1    exchange A0<->B0    down A0->A1, B0->B1
//! ```

use super::{is_leader, local_tree, remote_leader};
use crate::algorithms::pieces::tree_bcast;
use crate::algorithms::{Algorithm, Scope, always};
use crate::builder::Builder;
use crate::call::{Call, Collective};
use crate::schedule::Schedule;

/// See the [module documentation](self).
pub const ALGORITHM: Algorithm = Algorithm {
    name: "leaders",
    collectives: &[Collective::Barrier],
    scope: Scope::Inter,
    summary: "tokens up to a leader, across, and down",
    supports: always,
    build,
};

fn build(call: &Call) -> Schedule {
    let mut b = Builder::new(false);
    let tree = local_tree(call);
    // One element, received into and sent from by every step, orders them all.
    let token = b.scratch(1);
    for child in tree.children() {
        b.recv(child, token);
    }
    match tree.parent() {
        Some(parent) => {
            b.send(parent, token);
        }
        None => {
            debug_assert!(is_leader(call));
            b.send(remote_leader(call), token);
            b.recv(remote_leader(call), token);
        }
    }
    tree_bcast(&mut b, &tree, token);
    b.finish()
}
