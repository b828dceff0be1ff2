//! All memory as a [`Device`]: the CPU's by the CPU, a GPU's by the GPU.

use std::cell::RefCell;

use hetccl_core::{
    Device, GroupCall, Handle, MemoryType, Posted, Reduction, Region, TransportError,
};
use hetccl_gpu::{Gpus, Order};

use crate::host::HostDevice;
use crate::library::{GroupLibrary, LibrarySteps};

/// The CPU, and the GPUs of this process.
pub(crate) struct Devices<'a> {
    pub(crate) host: &'a mut HostDevice,
    pub(crate) gpus: &'a RefCell<Gpus>,
    pub(crate) library: Option<&'a GroupLibrary>,
    pub(crate) steps: &'a mut LibrarySteps,
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

    /// An operation's memory is one device's, or the host's, where everything ends at once: its steps are on one stream.
    fn in_order(&self) -> bool {
        true
    }

    fn group(
        &mut self,
        call: GroupCall,
        from: Region,
        into: Region,
    ) -> Result<Posted, TransportError> {
        let library =
            self.library.ok_or_else(|| call.refused("this rank is in no group with one"))?;
        let host = &mut *self.host;
        // Copies of the host end at once, and can't fail.
        let copy = |from, into| drop(host.copy(from, into));
        library.start(self.gpus, self.steps, call, from, into, copy).map(Posted::Pending)
    }

    fn test(&mut self, handle: Handle) -> Result<bool, TransportError> {
        if let (true, Some(library)) = (LibrarySteps::is_ours(handle), self.library) {
            let host = &mut *self.host;
            return library.test(self.gpus, self.steps, handle, |from, into| {
                // Copies of the host end at once, and can't fail.
                let _ = host.copy(from, into);
            });
        }
        Ok(self.gpus.borrow_mut().test(handle)?)
    }
}
