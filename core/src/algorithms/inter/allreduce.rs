//! Allreduce between two groups, by their leaders.
//!
//! - Steps: a binomial reduce to each leader, one exchange between the leaders, a binomial bcast in each group.
//! - Bytes per rank: n sent up and received down; leaders exchange n more.
//! - Reduction order: that of the ranks of the other group.
//! - Limits: none. Scratch: 4 n elements at most.
//! - Source: the definition, MPI: A Message-Passing Interface Standard, version 3.1, section 5.9.6.
//!
//! ```text
//! groups A 0 1, B 0 1    reduce A0<-A1, B0<-B1    exchange A0<->B0    bcast A0->A1, B0->B1
//! ```

use super::{is_leader, local_tree, remote_leader};
use crate::algorithms::patterns::whole;
use crate::algorithms::pieces::{tree_bcast, tree_reduce};
use crate::algorithms::{Algorithm, Scope, always};
use crate::builder::Builder;
use crate::call::{Call, Collective};
use crate::schedule::Schedule;

/// See the [module documentation](self).
pub const ALGORITHM: Algorithm = Algorithm {
    name: "leaders",
    collectives: &[Collective::Allreduce],
    scope: Scope::Inter,
    summary: "reduce to a leader, exchange, bcast from it",
    supports: always,
    build,
};

fn build(call: &Call) -> Schedule {
    let mut b = Builder::new(false);
    let (input, output) = whole(call.count());
    let tree = local_tree(call);
    if let Some(sum) = tree_reduce(&mut b, &tree, input, None) {
        debug_assert!(is_leader(call));
        b.recv(remote_leader(call), output);
        b.send(remote_leader(call), sum);
    }
    tree_bcast(&mut b, &tree, output);
    b.finish()
}
