//! Barrier between two groups, by their leaders.
//!
//! - Steps: a signal up a binomial tree in each group, one exchange between the leaders, a signal down.
//! - Bytes: none; every message is empty.
//! - Reduction order: none.
//! - Limits: none. Scratch: none.
//! - Source: the definition, MPI: A Message-Passing Interface Standard, version 3.1, section 5.3.
//!
//! ```text
//! groups A 0 1, B 0 1    up A0<-A1, B0<-B1    exchange A0<->B0    down A0->A1, B0->B1
//! ```

use super::{local_tree, remote_leader};
use crate::algorithms::{Algorithm, Scope, always};
use crate::builder::Builder;
use crate::call::{Call, Collective};
use crate::schedule::{Buffer, Schedule, Span, StepId};

/// See the [module documentation](self).
pub const ALGORITHM: Algorithm = Algorithm {
    name: "leaders",
    collectives: &[Collective::Barrier],
    scope: Scope::Inter,
    summary: "signals up to a leader, across, and down",
    supports: always,
    build,
};

fn build(call: &Call) -> Schedule {
    let mut b = Builder::new(false);
    let tree = local_tree(call);
    let nothing = Span::new(Buffer::Output, 0, 0);
    // Empty messages touch no memory, so their order is said here: up after all from below, down after all of both.
    let mut arrived: Vec<StepId> =
        tree.children().into_iter().map(|child| b.recv(child, nothing)).collect();
    let above = tree.parent().unwrap_or_else(|| remote_leader(call));
    let from_above = b.recv(above, nothing);
    let signal = b.send(above, nothing);
    wait_for(&mut b, &arrived, signal);
    arrived.push(from_above);
    for child in tree.children().into_iter().rev() {
        let release = b.send(child, nothing);
        wait_for(&mut b, &arrived, release);
    }
    b.finish()
}

fn wait_for(b: &mut Builder, earlier: &[StepId], later: StepId) {
    for &step in earlier {
        b.after(step, later);
    }
}
