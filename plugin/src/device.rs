//! Device buffers of the program: what kind of memory an address is, and copies between it and host memory.

use std::ffi::{c_int, c_void};

use hetccl_core::{Address, MemoryType, Region};
use hetccl_runtime::gpu::{Error, is_surely_host};

use crate::state::Plugin;
use crate::status;
use crate::view::Elements;

/// The kind of memory at an address. Costs nothing where there is no GPU.
///
/// # Errors
/// An MPI error class, for device memory that has been freed; the user has been told.
#[inline]
pub(crate) fn memory_of(address: *const c_void) -> Result<MemoryType, c_int> {
    let plugin = Plugin::get();
    if !plugin.has_gpus() || is_surely_host(address.addr()) {
        return Ok(MemoryType::Host);
    }
    ask(plugin, address)
}

#[cold]
fn ask(plugin: &Plugin, address: *const c_void) -> Result<MemoryType, c_int> {
    let asked = plugin.lock().process.gpus().memory(address.addr());
    asked.map_err(|error| report(&error))
}

/// Whether two addresses are in one allocation of a device.
pub(crate) fn in_one_allocation(a: *const c_void, b: *const c_void) -> bool {
    let mut engine = Plugin::get().lock();
    let gpus = engine.process.gpus();
    let mut place = |address: *const c_void| gpus.locate(address.addr()).ok().flatten();
    match (place(a), place(b)) {
        (Some(a), Some(b)) => a.memory == b.memory && a.allocation == b.allocation,
        _ => false,
    }
}

/// Copies device memory to the host, after the program's own work on it.
///
/// # Errors
/// An MPI error class; the user has been told.
pub(crate) fn read(from: *const c_void, memory: MemoryType, into: &mut [u8]) -> Result<(), c_int> {
    let there =
        Region { address: Address(from.expose_provenance()), len_bytes: into.len(), memory };
    copy(there, Region::of_bytes_mut(into))
}

/// Copies host memory to the device, after the program's own work on it.
///
/// # Errors
/// An MPI error class; the user has been told.
pub(crate) fn write(into: *mut c_void, memory: MemoryType, from: &[u8]) -> Result<(), c_int> {
    let there =
        Region { address: Address(into.expose_provenance()), len_bytes: from.len(), memory };
    copy(Region::of_bytes(from), there)
}

fn copy(from: Region, into: Region) -> Result<(), c_int> {
    if from.len_bytes == 0 {
        return Ok(());
    }
    let copied = Plugin::get().lock().process.gpus().copy_now(from, into);
    copied.map_err(|error| report(&error))
}

/// Elements that the CPU can reach: where they are, or as a copy of their span.
pub(crate) struct Mirror {
    pub(crate) elements: Elements,
    memory: MemoryType,
    copy: Vec<u8>,
}

impl Mirror {
    /// Reads the elements where they are in device memory.
    ///
    /// # Errors
    /// An MPI error class; the user has been told.
    pub(crate) fn of(elements: Elements, memory: MemoryType) -> Result<Mirror, c_int> {
        let mut mirror = Mirror { elements, memory, copy: Vec::new() };
        if memory != MemoryType::Host {
            mirror.copy.resize(elements.span().1, 0);
            read(mirror.lowest(), memory, &mut mirror.copy)?;
        }
        Ok(mirror)
    }

    fn lowest(&self) -> *mut c_void {
        self.elements.address.wrapping_byte_offset(self.elements.span().0)
    }

    /// What MPI would call the buffer's address.
    pub(crate) fn address(&mut self) -> *mut c_void {
        match self.memory {
            MemoryType::Host => self.elements.address,
            _ => self.copy.as_mut_ptr().wrapping_offset(-self.elements.span().0).cast(),
        }
    }

    /// Writes a copy back; gaps keep what they had.
    ///
    /// # Errors
    /// As [`of`](Mirror::of).
    pub(crate) fn store(&self) -> Result<(), c_int> {
        match self.memory {
            MemoryType::Host => Ok(()),
            _ => write(self.lowest(), self.memory, &self.copy),
        }
    }
}

fn report(error: &Error) -> c_int {
    hetccl_mca::tell(&error.to_string());
    status::of_gpu(error)
}
