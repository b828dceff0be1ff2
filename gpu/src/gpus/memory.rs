//! Pinned and device memory in blocks: taken from the driver once, and used again.

use std::sync::atomic::Ordering;

use hetccl_core::{MemoryType, Pool};

use super::{Gpus, Lane};
use crate::block::Block;
use crate::error::Error;
use crate::spare;

/// Memory that was taken from drivers, for blocks and rings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Pinned host memory now, in bytes.
    pub pinned_bytes: usize,
    /// The most that it has been.
    pub most_pinned_bytes: usize,
    /// The most device memory that there has been, in bytes.
    pub most_device_bytes: usize,
}

impl Usage {
    pub(super) fn pin(&mut self, bytes: usize) {
        self.pinned_bytes += bytes;
        self.most_pinned_bytes = self.most_pinned_bytes.max(self.pinned_bytes);
    }
}

impl Gpus {
    /// Host memory that the lane's device copies from and to at full speed.
    ///
    /// # Errors
    /// [`Error::Call`], when there is none.
    pub fn take_pinned(&mut self, lane: Lane, len_bytes: usize) -> Result<Block, Error> {
        let len_bytes = Pool::<usize>::size_for(len_bytes).unwrap_or(len_bytes);
        let state = &mut self.lanes[lane.0];
        let address = match state.pinned.take(len_bytes) {
            Some(address) => address,
            None => {
                let address = match spare::take(state.context, true, len_bytes) {
                    Some(address) => address,
                    None => self.drivers[state.driver].allocate_pinned(state.context, len_bytes)?,
                };
                self.usage.pin(len_bytes);
                address
            }
        };
        Ok(Block { lane, memory: MemoryType::Host, address, len_bytes })
    }

    /// Memory of the lane's device.
    ///
    /// # Errors
    /// [`Error::Call`], when there is none.
    pub fn take_device(&mut self, lane: Lane, len_bytes: usize) -> Result<Block, Error> {
        let len_bytes = Pool::<usize>::size_for(len_bytes).unwrap_or(len_bytes);
        let state = &mut self.lanes[lane.0];
        let address = match state.device.take(len_bytes) {
            Some(address) => address,
            None => {
                let address = match spare::take(state.context, false, len_bytes) {
                    Some(address) => address,
                    None => self.drivers[state.driver].allocate(state.context, len_bytes)?,
                };
                let before = self.device_bytes.fetch_add(len_bytes, Ordering::Relaxed);
                let most = &mut self.usage.most_device_bytes;
                *most = (before + len_bytes).max(*most);
                address
            }
        };
        Ok(Block { lane, memory: state.memory, address, len_bytes })
    }

    /// Takes a block back that nothing under way uses.
    pub fn put(&mut self, block: Block) {
        let state = &mut self.lanes[block.lane.0];
        let pinned = block.memory == MemoryType::Host;
        let pool = if pinned { &mut state.pinned } else { &mut state.device };
        if pool.put(block.address, block.len_bytes, self.keep_bytes).is_ok() {
            return;
        }
        if pinned {
            self.usage.pinned_bytes -= block.len_bytes;
        } else {
            self.device_bytes.fetch_sub(block.len_bytes, Ordering::Relaxed);
        }
        // The address may be another's soon.
        if let Some(recent) = self.recent.as_mut().filter(|_| !state.ordered) {
            recent.clear();
        }
        let driver = &*self.drivers[state.driver];
        state.give_back(driver, pinned, block.address, block.len_bytes);
    }

    /// Gives all blocks back that nothing uses: to the drivers, or, where streams may wait for what is
    /// [ordered by the caller](Gpus::ordered_by_caller), to whoever else in the process wants some.
    pub fn trim(&mut self) {
        let mut given_back = 0;
        for state in &mut self.lanes {
            given_back += state.device.kept_bytes();
            self.usage.pinned_bytes -= state.pinned.kept_bytes();
            state.give_kept_back(&*self.drivers[state.driver]);
        }
        self.device_bytes.fetch_sub(given_back, Ordering::Relaxed);
    }
}
