//! What a front end asks for: one collective, as this rank sees it.

use std::sync::Arc;

use crate::topology::Hierarchy;
use crate::types::Rank;

/// The collectives, by their MPI names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Collective {
    /// Every rank gets every rank's block.
    Allgather,
    /// Allgather with a block size per rank.
    Allgatherv,
    /// Every rank gets the reduction of all.
    Allreduce,
    /// Every rank sends a block to every rank.
    Alltoall,
    /// Alltoall with a size per pair.
    Alltoallv,
    /// Alltoall with a size and datatype per pair.
    Alltoallw,
    /// Nobody leaves before everybody has come.
    Barrier,
    /// The root's data reaches everyone.
    Bcast,
    /// Reduction of all lower ranks.
    Exscan,
    /// The root gets every rank's block.
    Gather,
    /// Gather with a block size per rank.
    Gatherv,
    /// The root gets the reduction of all.
    Reduce,
    /// Reduction whose result is scattered, with a block size per rank.
    ReduceScatter,
    /// Reduction whose result is scattered in equal blocks.
    ReduceScatterBlock,
    /// Reduction of all lower ranks and oneself.
    Scan,
    /// Every rank gets its block of the root's data.
    Scatter,
    /// Scatter with a block size per rank.
    Scatterv,
    /// Every rank gets a block from each of its sources in a topology.
    NeighborAllgather,
    /// Neighbour allgather with a block size per source.
    NeighborAllgatherv,
    /// Every rank exchanges a block with each neighbour.
    NeighborAlltoall,
    /// Neighbour alltoall with a size per neighbour.
    NeighborAlltoallv,
    /// Neighbour alltoall with a size and datatype per neighbour.
    NeighborAlltoallw,
}

impl Collective {
    /// All of them, in the order of MPI's alphabetical list, neighbourhood collectives last.
    pub const ALL: [Collective; 22] = [
        Collective::Allgather,
        Collective::Allgatherv,
        Collective::Allreduce,
        Collective::Alltoall,
        Collective::Alltoallv,
        Collective::Alltoallw,
        Collective::Barrier,
        Collective::Bcast,
        Collective::Exscan,
        Collective::Gather,
        Collective::Gatherv,
        Collective::Reduce,
        Collective::ReduceScatter,
        Collective::ReduceScatterBlock,
        Collective::Scan,
        Collective::Scatter,
        Collective::Scatterv,
        Collective::NeighborAllgather,
        Collective::NeighborAllgatherv,
        Collective::NeighborAlltoall,
        Collective::NeighborAlltoallv,
        Collective::NeighborAlltoallw,
    ];

    /// The MPI name in lower case, as settings and reports spell it.
    pub const fn name(self) -> &'static str {
        match self {
            Collective::Allgather => "allgather",
            Collective::Allgatherv => "allgatherv",
            Collective::Allreduce => "allreduce",
            Collective::Alltoall => "alltoall",
            Collective::Alltoallv => "alltoallv",
            Collective::Alltoallw => "alltoallw",
            Collective::Barrier => "barrier",
            Collective::Bcast => "bcast",
            Collective::Exscan => "exscan",
            Collective::Gather => "gather",
            Collective::Gatherv => "gatherv",
            Collective::Reduce => "reduce",
            Collective::ReduceScatter => "reduce_scatter",
            Collective::ReduceScatterBlock => "reduce_scatter_block",
            Collective::Scan => "scan",
            Collective::Scatter => "scatter",
            Collective::Scatterv => "scatterv",
            Collective::NeighborAllgather => "neighbor_allgather",
            Collective::NeighborAllgatherv => "neighbor_allgatherv",
            Collective::NeighborAlltoall => "neighbor_alltoall",
            Collective::NeighborAlltoallv => "neighbor_alltoallv",
            Collective::NeighborAlltoallw => "neighbor_alltoallw",
        }
    }

    /// Whether the collective combines contributions with a reduction operation.
    pub const fn reduces(self) -> bool {
        matches!(
            self,
            Collective::Allreduce
                | Collective::Exscan
                | Collective::Reduce
                | Collective::ReduceScatter
                | Collective::ReduceScatterBlock
                | Collective::Scan
        )
    }

    /// Whether one rank is the root.
    pub const fn rooted(self) -> bool {
        matches!(
            self,
            Collective::Bcast
                | Collective::Gather
                | Collective::Gatherv
                | Collective::Reduce
                | Collective::Scatter
                | Collective::Scatterv
        )
    }
}

/// This rank's place in the communicator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Group {
    /// This rank in its own (local) group.
    pub rank: Rank,
    /// Ranks in the local group.
    pub size: u32,
    /// Ranks in the remote group, for an inter-communicator.
    pub remote_size: Option<u32>,
}

impl Group {
    /// Ranks in the local group, for indexing.
    #[inline]
    pub const fn len(&self) -> usize {
        self.size as usize
    }

    /// Whether the group has no ranks; it never has.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.size == 0
    }

    /// Ranks in the remote group (0 on an intra-communicator).
    #[inline]
    pub fn remote_len(&self) -> usize {
        self.remote_size.unwrap_or(0) as usize
    }

    /// The engine's number for rank `index` of the remote group.
    #[inline]
    pub fn remote(&self, index: usize) -> Rank {
        Rank::from(self.len() + index)
    }
}

/// Who the root is, as MPI's rooted collectives say it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Root {
    /// The collective has no root.
    #[default]
    None,
    /// This rank of the local group; on an inter-communicator: of the remote group.
    Rank(Rank),
    /// Inter-communicator: this process is the root (`MPI_ROOT`).
    Here,
    /// Inter-communicator: another process of this group is the root (`MPI_PROC_NULL`).
    Elsewhere,
}

/// A block of a buffer, in elements.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Block {
    /// First element.
    pub start: usize,
    /// Number of elements.
    pub len: usize,
}

/// How the buffers are divided. Counts are in elements; data movement may take one byte as its element.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Layout {
    /// `count` elements for allreduce, bcast, reduce, scan and exscan (the whole vector); `count`
    /// elements *per block* for allgather, alltoall, gather, scatter, reduce_scatter_block and the
    /// neighbour forms, block i at `i * count`. 0 for barrier.
    ///
    /// On an inter-communicator `count` describes what this rank sends, `remote_count` what it receives from
    /// each remote rank (allgather and alltoall may differ by direction); both are equal elsewhere.
    Uniform {
        /// Elements sent (per block).
        count: usize,
        /// Elements received (per block); equal to `count` on intra-communicators.
        remote_count: usize,
    },
    /// Explicit blocks, for the v-variants: `send[i]` in the input goes to peer i, `recv[i]` in the
    /// output comes from peer i. A buffer that holds one block (the input of allgatherv and gatherv, the output
    /// of scatterv) has one entry. Where a side does not matter on this rank, it is empty.
    /// reduce_scatter has the blocks of all (local) ranks in `send`, which tile the input from 0 on, in order.
    Blocks {
        /// Parts of the input.
        send: Arc<[Block]>,
        /// Parts of the output.
        recv: Arc<[Block]>,
    },
}

impl Layout {
    /// A uniform layout with the same count in both directions.
    pub const fn uniform(count: usize) -> Layout {
        Layout::Uniform { count, remote_count: count }
    }
}

/// A rank's neighbours in a topology; `None` is MPI_PROC_NULL: its block is left alone.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Neighbours {
    /// Ranks that this rank receives from, in MPI's order.
    pub sources: Arc<[Option<Rank>]>,
    /// Ranks that this rank sends to, in MPI's order.
    pub destinations: Arc<[Option<Rank>]>,
    /// A cartesian grid: neighbours come in pairs (minus, plus), one pair a dimension, and what is sent to the minus
    /// neighbour is what that one receives from its plus neighbour. Elsewhere the n-th block sent to a rank is the
    /// n-th one it receives from here.
    pub cartesian: bool,
}

/// One collective as this rank sees it: all that an algorithm may depend on.
///
/// Bcast's one buffer is Input at the root and Output elsewhere; the root has no Output, the others no Input.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Call {
    /// Which collective.
    pub collective: Collective,
    /// This rank's place.
    pub group: Group,
    /// The root, where there is one.
    pub root: Root,
    /// Sizes and places of the blocks.
    pub layout: Layout,
    /// `MPI_IN_PLACE`: the contribution lies in the output buffer, where the collective's result (or this
    /// rank's block of it) goes; the input buffer does not exist.
    ///
    /// For gather and scatter it concerns the root only (scatter: the root's output does not exist and its own
    /// block stays in the input). For alltoall(v,w) the data in the output is replaced.
    pub in_place: bool,
    /// The operation is not commutative: contributions are combined in rank order.
    pub ordered: bool,
    /// Neighbours, for the neighbourhood collectives.
    pub neighbours: Option<Neighbours>,
    /// Elements per chunk for algorithms that pipeline; at least 1.
    pub chunk: usize,
    /// The machine under the communicator, the same on all ranks; `None` where it is not known.
    pub topology: Option<Arc<Hierarchy>>,
}

impl Call {
    /// A call on an intra-communicator with no root, not in place, commutative, one chunk.
    pub fn new(collective: Collective, rank: usize, size: usize, layout: Layout) -> Call {
        Call {
            collective,
            group: Group { rank: Rank::from(rank), size: Rank::from(size).0, remote_size: None },
            root: Root::None,
            layout,
            in_place: false,
            ordered: false,
            neighbours: None,
            chunk: usize::MAX,
            topology: None,
        }
    }

    /// This rank, as an index.
    #[inline]
    pub const fn rank(&self) -> usize {
        self.group.rank.index()
    }

    /// Ranks in the local group.
    #[inline]
    pub const fn size(&self) -> usize {
        self.group.len()
    }

    /// The root's rank in the local group of an intra-communicator (0 where there is none).
    #[inline]
    pub const fn root_rank(&self) -> usize {
        match self.root {
            Root::Rank(rank) => rank.index(),
            _ => 0,
        }
    }

    /// The uniform count (of what this rank sends); 0 for explicit blocks.
    #[inline]
    pub const fn count(&self) -> usize {
        match self.layout {
            Layout::Uniform { count, .. } => count,
            Layout::Blocks { .. } => 0,
        }
    }

    /// Block `index` of the input under either layout.
    pub fn send_block(&self, index: usize) -> Block {
        match &self.layout {
            Layout::Uniform { count, .. } => Block { start: index * count, len: *count },
            Layout::Blocks { send, .. } => send[index],
        }
    }

    /// Block `index` of the output under either layout.
    pub fn recv_block(&self, index: usize) -> Block {
        match &self.layout {
            Layout::Uniform { remote_count, .. } => {
                Block { start: index * remote_count, len: *remote_count }
            }
            Layout::Blocks { recv, .. } => recv[index],
        }
    }
}
