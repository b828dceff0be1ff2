//! Bytes from one process of a host to another, through memory that both map: what a connection is for ranks that are near.
//!
//! ```text
//! byte 0      the segment's own
//! byte 64     written: bytes so far, counted by the sender
//! byte 128    read: bytes so far, counted by the receiver
//! byte 4096   the bytes; number n is at n modulo the length
//! ```

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use hetccl_runtime::shared::{Descriptor, Segment, SegmentError, SegmentKind};

const WRITTEN_AT: usize = 64;
const READ_AT: usize = 128;
const BYTES_AT: usize = 4096;
/// Where segments with names would be; these have none.
const FOLDER: &str = "/dev/shm";

/// One end.
#[derive(Debug)]
struct Ring {
    segment: Segment<usize>,
    /// What this end has written or read.
    own: u64,
    /// What the other end was last seen to have done.
    seen: u64,
}

impl Ring {
    fn new(segment: Segment<usize>) -> Ring {
        Ring { segment, own: 0, seen: 0 }
    }

    fn len(&self) -> usize {
        self.segment.layout() - BYTES_AT
    }

    fn counter(&self, at: usize) -> &AtomicU64 {
        // SAFETY: inside the segment, which lives as long as `self`; aligned, and only used as an atomic.
        unsafe { &*self.segment.base().add(at).cast::<AtomicU64>() }
    }

    /// Where byte `number` is, and how many follow it there before the ring goes round.
    fn place(&self, number: u64) -> (*mut u8, usize) {
        let offset = (number % self.len() as u64) as usize;
        // SAFETY: inside the segment.
        (unsafe { self.segment.base().add(BYTES_AT + offset) }, self.len() - offset)
    }
}

/// The sender's end.
#[derive(Debug)]
pub(super) struct Writer(Ring);

impl Writer {
    /// A ring of `len` bytes, and what the other end needs to open it.
    ///
    /// # Errors
    /// No memory or no file.
    pub(super) fn new(len: usize) -> Result<(Writer, Descriptor), SegmentError> {
        let (kind, folder) = (SegmentKind::Anonymous, Path::new(FOLDER));
        let (segment, descriptor) = Segment::create(BYTES_AT + len, kind, folder)?;
        Ok((Writer(Ring::new(segment)), descriptor))
    }

    /// The other end is open.
    pub(super) fn seal(&mut self) {
        self.0.segment.seal();
    }

    /// Writes what there is room for; how much that was.
    pub(super) fn write(&mut self, bytes: &[u8]) -> usize {
        let ring = &mut self.0;
        let len = ring.len();
        let mut room = len - (ring.own - ring.seen) as usize;
        if room < bytes.len() {
            ring.seen = ring.counter(READ_AT).load(Ordering::Acquire);
            room = len - (ring.own - ring.seen) as usize;
        }
        let mut rest = &bytes[..bytes.len().min(room)];
        let written = rest.len();
        while !rest.is_empty() {
            let (place, most) = ring.place(ring.own);
            let (now, later) = rest.split_at(rest.len().min(most));
            // SAFETY: room that the reader has left, inside the segment.
            unsafe { std::ptr::copy_nonoverlapping(now.as_ptr(), place, now.len()) };
            ring.own += now.len() as u64;
            rest = later;
        }
        if written > 0 {
            ring.counter(WRITTEN_AT).store(ring.own, Ordering::Release);
        }
        written
    }
}

/// The receiver's end.
#[derive(Debug)]
pub(super) struct Reader(Ring);

impl Reader {
    /// Opens the ring of `len` bytes that another process has described.
    ///
    /// # Errors
    /// It can't be opened, or is another one.
    pub(super) fn open(len: usize, descriptor: &Descriptor) -> Result<Reader, SegmentError> {
        let segment = Segment::open(BYTES_AT + len, descriptor, Path::new(FOLDER))?;
        Ok(Reader(Ring::new(segment)))
    }

    /// Gives the bytes that have arrived to `take`, in pieces; whether there were any.
    pub(super) fn read(&mut self, mut take: impl FnMut(&[u8])) -> bool {
        let ring = &mut self.0;
        ring.seen = ring.counter(WRITTEN_AT).load(Ordering::Acquire);
        let any = ring.seen != ring.own;
        while ring.seen != ring.own {
            let (place, most) = ring.place(ring.own);
            let len = most.min((ring.seen - ring.own) as usize);
            // SAFETY: bytes that the writer has written and leaves alone until they are counted as read.
            take(unsafe { std::slice::from_raw_parts(place, len) });
            ring.own += len as u64;
            ring.counter(READ_AT).store(ring.own, Ordering::Release);
        }
        any
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_go_round_in_order() {
        let (mut writer, descriptor) = Writer::new(64).unwrap();
        let mut reader = Reader::open(64, &descriptor).unwrap();
        writer.seal();
        let (mut sent, mut got) = (0u32, Vec::new());
        while sent < 1000 {
            let bytes: Vec<u8> = (sent..sent + 37).map(|i| i as u8).collect();
            sent += writer.write(&bytes) as u32;
            if sent % 3 == 0 || writer.write(&[]) == 0 && bytes.len() > 30 {
                reader.read(|bytes| got.extend_from_slice(bytes));
            }
        }
        reader.read(|bytes| got.extend_from_slice(bytes));
        assert!(!reader.read(|_| unreachable!("all has been read")));
        assert_eq!(got, (0..sent).map(|i| i as u8).collect::<Vec<_>>());
    }

    #[test]
    fn a_full_ring_takes_no_more() {
        let (mut writer, descriptor) = Writer::new(8).unwrap();
        let mut reader = Reader::open(8, &descriptor).unwrap();
        assert_eq!(writer.write(&[1; 20]), 8);
        assert_eq!(writer.write(&[2; 20]), 0);
        assert!(reader.read(|bytes| assert_eq!(bytes, [1; 8])));
        assert_eq!(writer.write(&[2; 3]), 3);
        assert!(Reader::open(9, &descriptor).is_err(), "another length is another ring");
    }
}
