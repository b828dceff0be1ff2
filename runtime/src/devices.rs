//! All memory as a [`Device`]: the CPU's by the CPU, a GPU's by the GPU.

use std::cell::RefCell;

use hetccl_core::{Device, Handle, MemoryType, Posted, Reduction, Region, TransportError};
use hetccl_gpu::{Gpus, Order};

use crate::host::HostDevice;

/// The CPU, and the GPUs of this process.
pub(crate) struct Devices<'a> {
    pub(crate) host: &'a mut HostDevice,
    pub(crate) gpus: &'a RefCell<Gpus>,
}

impl Device for Devices<'_> {
    #[inline]
    fn copy(&mut self, from: Region, into: Region) -> Result<Posted, TransportError> {
        if from.memory == MemoryType::Host && into.memory == MemoryType::Host {
            return self.host.copy(from, into);
        }
        let near = if from.memory == MemoryType::Host { into } else { from };
        let mut gpus = self.gpus.borrow_mut();
        let lane = gpus.lane(near)?;
        Ok(Posted::Pending(gpus.copy(lane, Order::Own, from, into)?))
    }

    #[inline]
    fn reduce(
        &mut self,
        reduction: &Reduction,
        left: Region,
        right: Region,
        into: Region,
        count: usize,
    ) -> Result<Posted, TransportError> {
        if into.memory == MemoryType::Host {
            return self.host.reduce(reduction, left, right, into, count);
        }
        let Reduction::Predefined(op, datatype) = *reduction else {
            return Err(TransportError::Failed {
                operation: "reduce",
                native_code: 0,
                reason: "a device can't compute the front end's own operations".into(),
            });
        };
        let mut gpus = self.gpus.borrow_mut();
        let lane = gpus.lane(into)?;
        Ok(Posted::Pending(gpus.reduce(lane, (op, datatype), [left, right, into], count)?))
    }

    fn test(&mut self, handle: Handle) -> Result<bool, TransportError> {
        Ok(self.gpus.borrow_mut().test(handle)?)
    }
}
