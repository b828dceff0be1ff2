//! A collective on a cluster over sizes: what the cost model picks, next to the lower bound and to other schedules.

pub mod bound;
mod plot;
mod rivals;

use std::sync::Arc;

use hetccl_core::topology::Hierarchy;
use hetccl_core::{Call, Collective, cost};

pub use plot::plot;

use crate::cluster::Cluster;
use crate::timed::{Program, Timing, run};

/// Bytes of an element: a float.
pub const ELEMENT_BYTES: usize = 4;

/// Up to so many ranks the comparisons are simulated; a flat ring of p ranks has 2 p (p - 1) messages.
pub const MOST_COMPARED_RANKS: usize = 1024;

/// Times of one size, in microseconds.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Row {
    /// The vector (allreduce, bcast, reduce, reduce_scatter), or what the ranks or the root have together.
    pub bytes: u64,
    /// What the cost model picked.
    pub time_us: f64,
    /// What no schedule can beat.
    pub lower_bound_us: f64,
    /// The flat ring, where it was simulated.
    pub flat_ring_us: Option<f64>,
    /// The relay through host memory, for allreduce.
    pub host_relay_us: Option<f64>,
    /// The single-owner scheme, for allreduce.
    pub single_owner_us: Option<f64>,
    /// What the cost model picked.
    pub algorithm: String,
}

/// The collectives that can be studied.
pub const COLLECTIVES: [Collective; 9] = [
    Collective::Allreduce,
    Collective::ReduceScatterBlock,
    Collective::Allgather,
    Collective::Bcast,
    Collective::Reduce,
    Collective::Gather,
    Collective::Scatter,
    Collective::Alltoall,
    Collective::Barrier,
];

/// A collective on a cluster.
pub struct Study {
    cluster: Cluster,
    hierarchy: Arc<Hierarchy>,
    collective: Collective,
}

impl Study {
    /// Prepares.
    pub fn new(cluster: Cluster, collective: Collective) -> Study {
        let hierarchy = Arc::new(Hierarchy::new(cluster.topology.clone()));
        Study { cluster, hierarchy, collective }
    }

    /// Simulates one size. `tick` gets the part of the steps done.
    pub fn row(&self, bytes: u64, compare: bool, tick: impl FnMut(f64)) -> Row {
        let topology = &self.cluster.topology;
        let count = self.count(bytes);
        let bytes = (count * self.blocks() * ELEMENT_BYTES) as u64;
        let (algorithm, chunk) = self.choice(count);
        let timing = self.time(algorithm, chunk, count, tick);
        let compare = compare && topology.len() <= MOST_COMPARED_RANKS;
        let reduces_all = self.collective == Collective::Allreduce;
        let calls = |rank: usize, chunk: usize| Call { chunk, ..self.call(rank, count) };
        Row {
            bytes,
            time_us: timing.us(),
            lower_bound_us: bound::lower_bound_us(topology, self.collective, bytes as f64),
            flat_ring_us: compare
                .then(|| rivals::flat_us(topology, &calls, self.collective))
                .flatten(),
            host_relay_us: (compare && reduces_all)
                .then(|| rivals::host_relay_us(topology, count, self.cluster.host_reduce_mb_s)),
            single_owner_us: (compare && reduces_all)
                .then(|| rivals::single_owner_us(&self.hierarchy, count)),
            algorithm: algorithm.to_owned(),
        }
    }

    /// What the cost model picks for a count: name and chunk.
    ///
    /// # Panics
    /// Never: every collective has an algorithm for every commutative call.
    pub fn choice(&self, count: usize) -> (&'static str, usize) {
        let choice = cost::choose(&self.call(0, count), ELEMENT_BYTES);
        let choice = choice.expect("every commutative call has an algorithm");
        (choice.algorithm.name, choice.chunk)
    }

    /// Simulates an algorithm with a chunk.
    ///
    /// # Panics
    /// When the collective has no algorithm of that name.
    pub fn time(
        &self,
        name: &str,
        chunk: usize,
        count: usize,
        mut tick: impl FnMut(f64),
    ) -> Timing {
        let algorithm = hetccl_core::algorithms::by_name(self.collective, name)
            .unwrap_or_else(|| panic!("{} has no algorithm {name}", self.collective.name()));
        let build = |rank: usize| (algorithm.build)(&Call { chunk, ..self.call(rank, count) });
        let (ranks, libraries) = (self.cluster.topology.len(), self.hierarchy.library_groups());
        let program = Program::with_libraries(ranks, libraries, ELEMENT_BYTES, build);
        let steps = program.steps().max(1) as f64;
        run(program, &self.cluster.topology, |done| tick(done as f64 / steps))
    }

    /// Elements of the call for so many bytes.
    pub fn count(&self, bytes: u64) -> usize {
        (bytes as usize / ELEMENT_BYTES / self.blocks().max(1)).max(usize::from(self.blocks() > 0))
    }

    /// Blocks whose size the call's count is.
    fn blocks(&self) -> usize {
        use Collective::*;
        match self.collective {
            Allreduce | Bcast | Reduce => 1,
            Barrier => 0,
            // What all have: each rank has a block for each.
            Alltoall => self.cluster.topology.len() * self.cluster.topology.len(),
            _ => self.cluster.topology.len(),
        }
    }

    fn call(&self, rank: usize, count: usize) -> Call {
        rivals::call(self.collective, &self.hierarchy, rank, count)
    }
}
