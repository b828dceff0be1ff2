//! Device buffers as host memory: a copy of each in pinned memory, read before a collective runs and written back after.
//!
//! Which buffers of a call are device memory is this rank's affair: the schedule and its messages are the same as for
//! host buffers, so ranks with different memory need not know of each other.

use hetccl_core::{Handle, MemoryType, Region};
use hetccl_gpu::{Block, Error, Gpus, Lane, Order};

use crate::waiting::all_finished;

/// A user's buffer and its copy.
#[derive(Debug)]
struct Mirror {
    user: Region,
    lane: Lane,
    block: Block,
}

impl Mirror {
    /// A mirror for a device buffer; `None` for one of the host or an empty one.
    fn new(gpus: &mut Gpus, user: Region) -> Result<Option<Mirror>, Error> {
        if user.memory == MemoryType::Host || user.len_bytes == 0 {
            return Ok(None);
        }
        let lane = gpus.lane(user)?;
        let block = gpus.take_pinned(lane, user.len_bytes)?;
        Ok(Some(Mirror { user, lane, block }))
    }

    fn region(&self) -> Region {
        self.block.region(self.user.len_bytes)
    }
}

/// The mirrors of one operation.
#[derive(Debug, Default)]
pub(crate) struct Staging {
    input: Option<Mirror>,
    output: Option<Mirror>,
    under_way: Vec<Handle>,
}

impl Staging {
    /// Mirrors of the device buffers among `input` and `output`, and starts to fill them. The output is read where
    /// `fill_output` says that what it holds matters.
    ///
    /// # Errors
    /// A driver's, with nothing left behind.
    pub(crate) fn begin(
        gpus: &mut Gpus,
        input: Region,
        output: Region,
        fill_output: bool,
    ) -> Result<Staging, Error> {
        let mut staging = Staging::default();
        match staging.fill(gpus, input, output, fill_output) {
            Ok(()) => Ok(staging),
            Err(error) => {
                staging.release(gpus);
                Err(error)
            }
        }
    }

    fn fill(
        &mut self,
        gpus: &mut Gpus,
        input: Region,
        output: Region,
        fill_output: bool,
    ) -> Result<(), Error> {
        self.input = Mirror::new(gpus, input)?;
        self.output = Mirror::new(gpus, output)?;
        let filled = self.output.iter().filter(|_| fill_output);
        for mirror in self.input.iter().chain(filled) {
            let copy =
                gpus.copy(mirror.lane, Order::AfterApplication, mirror.user, mirror.region())?;
            self.under_way.push(copy);
        }
        if let (Some(mirror), false) = (&self.output, fill_output) {
            // The program may still read or write the output; the result comes after that.
            self.under_way.extend(gpus.after_application(mirror.lane)?);
        }
        Ok(())
    }

    /// What the schedule works on instead of `(input, output)`.
    pub(crate) fn regions(&self, input: Region, output: Region) -> (Region, Region) {
        let or = |mirror: &Option<Mirror>, user| mirror.as_ref().map_or(user, Mirror::region);
        (or(&self.input, input), or(&self.output, output))
    }

    /// Starts to write the result back.
    ///
    /// # Errors
    /// A driver's.
    pub(crate) fn store(&mut self, gpus: &mut Gpus) -> Result<(), Error> {
        if let Some(mirror) = &self.output {
            let copy = gpus.copy(mirror.lane, Order::Own, mirror.region(), mirror.user)?;
            self.under_way.push(copy);
        }
        Ok(())
    }

    /// Whether the copies started last have finished.
    ///
    /// # Errors
    /// A driver's.
    pub(crate) fn test(&mut self, gpus: &mut Gpus) -> Result<bool, Error> {
        all_finished(&mut self.under_way, |handle| gpus.test(handle))
    }

    /// Gives the mirrors back, after the copies that use them.
    pub(crate) fn release(mut self, gpus: &mut Gpus) {
        for handle in self.under_way.drain(..) {
            // A device that failed copies nothing any more.
            let _ = gpus.finish(handle);
        }
        for mirror in [self.input.take(), self.output.take()].into_iter().flatten() {
            gpus.put(mirror.block);
        }
    }
}
