//! Where things are in a segment.

/// Most ranks that share a segment; larger communicators use the wire.
pub const MAX_RANKS: usize = 64;

/// Collectives that a rank may be ahead of the slowest one.
pub(super) const SLOTS: usize = 32;

/// Bytes of a cache line; also of a slot.
pub(super) const LINE: usize = 64;

/// Payload bytes that travel in the slot itself.
pub(super) const INLINE_BYTES: usize = LINE - 2 * size_of::<u64>();

/// What all ranks may use of all rings together, and the least that each has.
const RINGS_BYTES: usize = 2 << 20;
const LEAST_RING_BYTES: usize = 32 << 10;

/// Bytes of the segment's head.
const HEAD_BYTES: usize = 4096;

/// Lanes for collectives that are polled: as many may be under way at once without waiting for each other.
const POLLED_LANES: usize = 2;

/// The largest ring of a polled lane.
const POLLED_RING_BYTES: usize = 256 << 10;

/// What of the 64 KiB a rank rings of polled lanes may use; slots and counters of all lanes take the rest.
const POLLED_BYTES_PER_RANK: usize = 40 << 10;

/// Sizes and offsets of a segment for a number of ranks: a lane for blocking collectives, then some for those that are polled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    blocking: Part,
    polled: Part,
    polled_lanes: usize,
}

impl Layout {
    /// A segment for `ranks` ranks (2 to [`MAX_RANKS`]) whose rings have `ring_bytes` each, or less: a power of two, and 2
    /// MiB together, though never under 32 KiB each.
    pub fn new(ranks: usize, ring_bytes: usize) -> Layout {
        assert!((2..=MAX_RANKS).contains(&ranks), "{ranks} ranks can't share a segment");
        let most = (RINGS_BYTES / ranks).min(ring_bytes).max(LEAST_RING_BYTES);
        let blocking = Part { start: HEAD_BYTES, ranks, ring_bytes: 1 << most.ilog2() };
        let left = RINGS_BYTES.saturating_sub(ranks * blocking.ring_bytes);
        let room = left / ranks + POLLED_BYTES_PER_RANK;
        let polled_lanes = (room / LEAST_RING_BYTES).clamp(1, POLLED_LANES);
        let most = (room / polled_lanes).min(ring_bytes).clamp(LEAST_RING_BYTES, POLLED_RING_BYTES);
        let polled = Part { start: blocking.end(), ranks, ring_bytes: 1 << most.ilog2() };
        Layout { blocking, polled, polled_lanes }
    }

    /// Number of ranks.
    pub fn ranks(&self) -> usize {
        self.blocking.ranks
    }

    /// The lane for blocking collectives.
    pub(super) fn blocking(&self) -> Part {
        self.blocking
    }

    /// The lanes for collectives that are polled.
    pub(super) fn polled(&self) -> impl Iterator<Item = Part> + use<> {
        let (first, bytes) = (self.polled, self.polled.end() - self.polled.start);
        (0..self.polled_lanes).map(move |i| Part { start: first.start + i * bytes, ..first })
    }

    /// Bytes of the whole segment.
    pub fn segment_bytes(&self) -> usize {
        self.polled().last().unwrap_or(self.blocking).end()
    }
}

/// A lane's part of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Part {
    start: usize,
    ranks: usize,
    ring_bytes: usize,
}

impl Part {
    /// Number of ranks.
    pub(super) fn ranks(&self) -> usize {
        self.ranks
    }

    /// Bytes of each rank's ring.
    pub(super) fn ring_bytes(&self) -> usize {
        self.ring_bytes
    }

    fn control_bytes(&self) -> usize {
        2 * LINE + (self.ranks * size_of::<u64>()).next_multiple_of(LINE)
    }

    /// Offset of a rank's count of finished collectives.
    pub(super) fn done(&self, rank: usize) -> usize {
        self.start + rank * self.control_bytes()
    }

    /// Offset of the position up to which a rank's ring is filled.
    pub(super) fn produced(&self, rank: usize) -> usize {
        self.done(rank) + LINE
    }

    /// Offset of the position up to which `reader` has read the ring of `writer`.
    pub(super) fn progress(&self, reader: usize, writer: usize) -> usize {
        self.done(reader) + 2 * LINE + writer * size_of::<u64>()
    }

    /// Offset of a rank's first slot.
    pub(super) fn slots(&self, rank: usize) -> usize {
        self.done(self.ranks) + rank * SLOTS * LINE
    }

    /// Offset of a rank's ring.
    pub(super) fn ring(&self, rank: usize) -> usize {
        self.slots(self.ranks).next_multiple_of(4096) + rank * self.ring_bytes
    }

    /// Offset of what follows.
    fn end(&self) -> usize {
        self.ring(self.ranks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_segment_keeps_to_its_bound() {
        for ranks in 2..=MAX_RANKS {
            let layout = Layout::new(ranks, 256 << 10);
            let bound = (2 << 20) + ranks * (64 << 10);
            assert!(layout.segment_bytes() <= bound, "{ranks}: {}", layout.segment_bytes());
            for part in layout.polled().chain([layout.blocking()]) {
                assert!(part.ring_bytes().is_power_of_two() && part.ring_bytes() >= 32 << 10);
            }
            let parts: Vec<Part> = [layout.blocking()].into_iter().chain(layout.polled()).collect();
            assert!(parts.windows(2).all(|pair| pair[0].end() == pair[1].start));
        }
    }

    #[test]
    fn counters_of_different_ranks_share_no_line() {
        let layout = Layout::new(5, 64 << 10).blocking();
        for rank in 0..5 {
            assert_eq!(layout.done(rank) % LINE, 0);
            assert!(layout.progress(rank, 4) + 8 <= layout.done(rank + 1));
        }
        assert!(layout.done(4) < layout.slots(0) && layout.slots(4) < layout.ring(0));
    }
}
