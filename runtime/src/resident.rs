//! Operations that stay in device memory: buffers where they are, scratch memory on the same device.
//!
//! Worth it for large buffers, which the device reduces and copies faster than the host. Small ones are quicker through
//! host memory ([`staging`](crate::staging)): a step on a device takes microseconds whatever its size.

use hetccl_core::{Handle, MemoryType, Reduction, Region};
use hetccl_gpu::{Block, Error, Gpus, Lane};

/// What an operation in device memory needs.
#[derive(Debug)]
pub(crate) struct Resident {
    scratch: Option<Block>,
    /// The program's own work on the buffers.
    before: Option<Handle>,
}

impl Resident {
    /// Whether the device can do an operation's reductions.
    pub(crate) fn can_reduce(gpus: &mut Gpus, lane: Lane, reduction: Option<Reduction>) -> bool {
        match reduction {
            None => true,
            Some(Reduction::Predefined(op, datatype)) => gpus.can_reduce(lane, op, datatype),
            Some(Reduction::External(_)) => false,
        }
    }

    /// Takes scratch memory, and waits for the program's work on the buffers from here on.
    ///
    /// # Errors
    /// A driver's, such as too little memory; nothing is left behind.
    pub(crate) fn begin(
        gpus: &mut Gpus,
        lane: Lane,
        scratch_bytes: usize,
    ) -> Result<Resident, Error> {
        let scratch = match scratch_bytes {
            0 => None,
            bytes => Some(gpus.take_device(lane, bytes)?),
        };
        match gpus.after_application(lane) {
            Ok(before) => Ok(Resident { scratch, before }),
            Err(error) => {
                if let Some(block) = scratch {
                    gpus.put(block);
                }
                Err(error)
            }
        }
    }

    /// The scratch memory.
    pub(crate) fn scratch(&self) -> Region {
        self.scratch.as_ref().map_or_else(Region::default, Block::whole)
    }

    /// Whether the program's work on the buffers has finished.
    ///
    /// # Errors
    /// A driver's, also for the failure of that work.
    pub(crate) fn test(&mut self, gpus: &mut Gpus) -> Result<bool, Error> {
        let Some(before) = self.before else { return Ok(true) };
        let tested = gpus.test(before);
        if !matches!(tested, Ok(false)) {
            self.before = None;
        }
        tested
    }

    /// Gives the scratch memory back; nothing under way uses it.
    pub(crate) fn release(self, gpus: &mut Gpus) {
        if let Some(before) = self.before {
            let _ = gpus.finish(before);
        }
        if let Some(block) = self.scratch {
            gpus.put(block);
        }
    }
}

/// The lane of buffers that are all in memory of one device; `None` where they are not, or are all empty.
///
/// # Errors
/// A driver's, such as for memory that has been freed.
pub(crate) fn common_lane(gpus: &mut Gpus, buffers: [Region; 2]) -> Result<Option<Lane>, Error> {
    let mut common = None;
    for buffer in buffers.into_iter().filter(|buffer| buffer.len_bytes > 0) {
        if buffer.memory == MemoryType::Host {
            return Ok(None);
        }
        let lane = gpus.lane(buffer)?;
        if *common.get_or_insert(lane) != lane {
            return Ok(None);
        }
    }
    Ok(common)
}
