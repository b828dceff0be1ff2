//! Intel, through Level Zero (`libze_loader.so.1`), loaded at run time.
//!
//! What Level Zero has otherwise than CUDA and HIP:
//! - It has no default stream: a program waits for its own queues before it gives a buffer to MPI. So each device has one
//!   command list for everything; both [`Stream::DEFAULT`] and [`Driver::stream`] mean that list, and what is appended waits
//!   for what was before.
//! - Memory belongs to the context that the program made, which nobody can ask for. Drivers look addresses up in one
//!   table for all contexts, so a context of this process's own serves.
//! - Events are reset before they are recorded again.
//! - IPC handles of drivers before 2025 hold a file descriptor, which means nothing in another process. Handles are given
//!   to others only when they name this process: then the driver there knows whom to ask.
//!
//! Source: Level Zero specification 1.6; function names there.

mod device;
mod result;
mod spirv;
mod sys;

use std::ffi::{CStr, c_char};

use hetccl_core::MemoryType;

use crate::driver::{
    Context, DeviceInfo, Driver, Event, Function, IpcHandle, Launch, Place, Stream,
};
use crate::error::Error;
use crate::foreign::text;
use crate::vendor::{Description, Vendor};
use device::Device;
use result::{BUILD_FAILURE, NOT_READY, UNSUPPORTED_FEATURE, check, failed};
use sys::{Head, LevelZero as Library};

/// What the rest of the crate knows of this vendor.
pub(crate) const VENDOR: Description = Description {
    name: "Level Zero",
    maker: hetccl_core::topology::Vendor::Intel,
    memory: MemoryType::LevelZero,
    managed: MemoryType::LevelZeroManaged,
    peer_memory_module: None,
    open: || Ok(Box::new(LevelZero::new()?)),
};

/// The drivers of this process. A [`Context`] is a device's number.
#[derive(Debug)]
struct LevelZero {
    library: Library,
    /// `ze_api_version_t`: major << 16 | minor.
    version: u32,
    devices: Vec<Device>,
}

impl LevelZero {
    /// Loads and initialises Level Zero. Makes a context in each driver.
    ///
    /// # Errors
    /// No library, one that is too old, no GPU, or a failed call.
    fn new() -> Result<LevelZero, Error> {
        let library = Library::load()?;
        let (devices, version) = device::all(&library)?;
        Ok(LevelZero { library, version, devices })
    }

    fn device(&self, context: Context) -> &Device {
        &self.devices[context.0]
    }

    /// The device with a handle that the driver gave; 0, for memory of no certain device, is the context's first.
    fn number(&self, context: usize, handle: usize) -> Option<usize> {
        self.devices.iter().position(|device| {
            let owns = device.handle == handle || device.parts.contains(&handle);
            device.context == context && (owns || handle == 0)
        })
    }

    /// The device's list, ready for a command after all that were appended.
    fn next(&self, context: Context) -> Result<usize, Error> {
        self.barrier(context, 0)
    }

    fn barrier(&self, context: Context, signal: usize) -> Result<usize, Error> {
        let list = self.device(context).list(&self.library)?;
        // SAFETY: the device's list, an event of this driver or none, and nothing to wait for.
        check("zeCommandListAppendBarrier", unsafe {
            (self.library.append_barrier)(list, signal, 0, std::ptr::null())
        })?;
        Ok(list)
    }

    /// Compiles a module with one kernel for a device.
    fn load(&self, device: &Device, image: &[u8]) -> Result<usize, Error> {
        let description = sys::Module {
            head: Head::MODULE,
            format: sys::SPIRV,
            len_bytes: image.len(),
            image: image.as_ptr(),
            flags: std::ptr::null(),
            constants: 0,
        };
        let (mut module, mut log) = (0, 0);
        // SAFETY: a complete module; places for the results.
        let status = unsafe {
            (self.library.module_create)(
                device.context,
                device.handle,
                &raw const description,
                &raw mut module,
                &raw mut log,
            )
        };
        let messages = self.take_log(log);
        if status == BUILD_FAILURE && !messages.is_empty() {
            return Err(Error::NoKernels { vendor: Vendor::LevelZero, reason: messages });
        }
        check("zeModuleCreate", status).map(|()| module)
    }

    /// What the compiler said.
    fn take_log(&self, log: usize) -> String {
        if log == 0 {
            return String::new();
        }
        let mut len = 0;
        // SAFETY: a log's handle; the size is asked for before it is used; the log is not used afterwards.
        let messages = unsafe {
            let _ = (self.library.log_text)(log, &raw mut len, std::ptr::null_mut());
            let mut messages: Vec<c_char> = vec![0; len];
            let _ = (self.library.log_text)(log, &raw mut len, messages.as_mut_ptr());
            let _ = (self.library.log_destroy)(log);
            messages
        };
        text(&messages).trim().to_owned()
    }
}

impl Driver for LevelZero {
    fn vendor(&self) -> Vendor {
        Vendor::LevelZero
    }

    fn version(&self) -> String {
        format!("{}.{}", self.version >> 16, self.version & 0xffff)
    }

    fn devices(&self) -> u32 {
        self.devices.len() as u32
    }

    fn info(&self, device: u32) -> Result<DeviceInfo, Error> {
        let handle = self.devices[device as usize].handle;
        let properties = device::properties(&self.library, handle)?;
        let blank = sys::MemoryProperties {
            head: Head::DEVICE_MEMORY,
            numbers: [0; 3],
            bytes: 0,
            name: [0; 256],
        };
        // SAFETY: a device's handle; `list` gives places for the results.
        let memories = device::list("zeDeviceGetMemoryProperties", blank, |count, into| unsafe {
            (self.library.memory_properties)(handle, count, into)
        })?;
        let mut pci = sys::PciProperties {
            head: Head::PCI,
            address: [0; 4],
            generation: 0,
            width: 0,
            bandwidth: 0,
        };
        // SAFETY: a device's handle and a place for the result.
        check("zeDevicePciGetPropertiesExt", unsafe {
            (self.library.pci_properties)(handle, &raw mut pci)
        })?;
        let [domain, bus, slot, function] = pci.address;
        Ok(DeviceInfo {
            name: text(&properties.name),
            memory_bytes: memories.iter().map(|memory| memory.bytes as usize).sum(),
            pci_bus_id: format!("{domain:04x}:{bus:02x}:{slot:02x}.{function:x}"),
            uuid: properties.uuid,
        })
    }

    fn locate(&self, address: usize) -> Option<Place> {
        let mut asked = 0;
        self.devices.iter().find_map(|device| {
            if std::mem::replace(&mut asked, device.context) == device.context {
                return None;
            }
            let mut found =
                sys::Allocation { head: Head::ALLOCATION, kind: 0, id: 0, page_bytes: 0 };
            let mut owner = 0;
            // SAFETY: a context of this driver, places for the results; the address is only looked up.
            let status = unsafe {
                (self.library.allocation_properties)(
                    device.context,
                    address,
                    &raw mut found,
                    &raw mut owner,
                )
            };
            check("zeMemGetAllocProperties", status).ok()?;
            let memory = match found.kind {
                sys::DEVICE_MEMORY => MemoryType::LevelZero,
                sys::SHARED_MEMORY => MemoryType::LevelZeroManaged,
                _ => return None,
            };
            let number = self.number(device.context, owner)?;
            let (device, context) = (number as u32, Context(number));
            Some(Place { memory, device, context, allocation: found.id })
        })
    }

    fn allocation(&self, context: Context, address: usize) -> Result<(usize, usize), Error> {
        let (mut base, mut len_bytes) = (0, 0);
        // SAFETY: a context of this driver and places for the results.
        check("zeMemGetAddressRange", unsafe {
            (self.library.address_range)(
                self.device(context).context,
                address,
                &raw mut base,
                &raw mut len_bytes,
            )
        })?;
        Ok((base, len_bytes))
    }

    fn stream(&self, context: Context) -> Result<Stream, Error> {
        self.device(context).list(&self.library).map(Stream)
    }

    fn event(&self, context: Context) -> Result<Event, Error> {
        self.device(context).event(&self.library).map(Event)
    }

    fn record(&self, context: Context, event: Event, _: Stream) -> Result<(), Error> {
        // SAFETY: an event of this driver that nothing under way signals: it has been found finished.
        check("zeEventHostReset", unsafe { (self.library.event_reset)(event.0) })?;
        self.barrier(context, event.0).map(drop)
    }

    fn wait(&self, _: Context, _: Stream, _: Event) -> Result<(), Error> {
        // The event was recorded in the list that waits, which is in order.
        Ok(())
    }

    fn finished(&self, _: Context, event: Event) -> Result<bool, Error> {
        // SAFETY: an event of this driver.
        match unsafe { (self.library.event_query)(event.0) } {
            NOT_READY => Ok(false),
            status => check("zeEventQueryStatus", status).map(|()| true),
        }
    }

    fn copy(
        &self,
        context: Context,
        _: Stream,
        from: usize,
        into: usize,
        len_bytes: usize,
    ) -> Result<(), Error> {
        if len_bytes == 0 {
            return Ok(());
        }
        let list = self.next(context)?;
        // SAFETY: the device's list; the caller vouches for the memory (see the trait).
        check("zeCommandListAppendMemoryCopy", unsafe {
            (self.library.append_copy)(list, into, from, len_bytes, 0, 0, std::ptr::null())
        })
    }

    fn allocate_pinned(&self, context: Context, len_bytes: usize) -> Result<usize, Error> {
        let description = sys::Plain { head: Head::HOST_ALLOCATION, flags: 0 };
        let mut memory = 0;
        // SAFETY: a context of this driver, a description and a place for the result.
        check("zeMemAllocHost", unsafe {
            (self.library.allocate_host)(
                self.device(context).context,
                &raw const description,
                len_bytes,
                0,
                &raw mut memory,
            )
        })?;
        Ok(memory)
    }

    fn free_pinned(&self, context: Context, address: usize) {
        self.free(context, address);
    }

    fn allocate(&self, context: Context, len_bytes: usize) -> Result<usize, Error> {
        let device = self.device(context);
        let description =
            sys::DeviceAllocation { head: Head::DEVICE_ALLOCATION, flags: 0, ordinal: 0 };
        let mut memory = 0;
        // SAFETY: handles of this driver, a description and a place for the result.
        check("zeMemAllocDevice", unsafe {
            (self.library.allocate_device)(
                device.context,
                &raw const description,
                len_bytes,
                0,
                device.handle,
                &raw mut memory,
            )
        })?;
        Ok(memory)
    }

    fn free(&self, context: Context, address: usize) {
        // SAFETY: allocated by `allocate` or `allocate_pinned`, and the caller is done with it.
        let _ = unsafe { (self.library.free)(self.device(context).context, address) };
    }

    fn kernel(&self, context: Context, name: &CStr) -> Result<Function, Error> {
        let module = self.load(self.device(context), spirv::module(name)?)?;
        let description = sys::Kernel { head: Head::KERNEL, flags: 0, name: name.as_ptr() };
        let mut kernel = 0;
        // SAFETY: the module was just made, and stays; a description and a place for the result. The kernel reaches its
        // memory through addresses in its argument.
        unsafe {
            check(
                "zeKernelCreate",
                (self.library.kernel_create)(module, &raw const description, &raw mut kernel),
            )?;
            check(
                "zeKernelSetIndirectAccess",
                (self.library.kernel_access)(kernel, sys::ANY_MEMORY),
            )?;
        }
        Ok(Function(kernel))
    }

    fn launch(&self, context: Context, _: Stream, launch: &Launch<'_>) -> Result<(), Error> {
        let kernel = launch.function.0;
        let groups = [launch.blocks, 1, 1];
        let list = self.next(context)?;
        // SAFETY: a kernel of this driver with one argument of this size, which is copied; the caller vouches for the
        // memory it points to.
        unsafe {
            check(
                "zeKernelSetGroupSize",
                (self.library.kernel_group)(kernel, launch.threads, 1, 1),
            )?;
            let (bytes, argument) = (size_of_val(launch.argument), launch.argument.as_ptr());
            check(
                "zeKernelSetArgumentValue",
                (self.library.kernel_argument)(kernel, 0, bytes, argument.cast()),
            )?;
            check(
                "zeCommandListAppendLaunchKernel",
                (self.library.append_kernel)(
                    list,
                    kernel,
                    &raw const groups,
                    0,
                    0,
                    std::ptr::null(),
                ),
            )
        }
    }

    fn export(&self, context: Context, base: usize) -> Result<IpcHandle, Error> {
        let mut handle = sys::IpcHandle([0; sys::IPC_BYTES]);
        // SAFETY: a context of this driver and a place for the result.
        check("zeMemGetIpcHandle", unsafe {
            (self.library.ipc_get)(self.device(context).context, base, &raw mut handle)
        })?;
        if names_process(&handle.0, std::process::id()) {
            Ok(IpcHandle(handle.0))
        } else {
            Err(failed("zeMemGetIpcHandle", UNSUPPORTED_FEATURE))
        }
    }

    fn open(&self, context: Context, handle: &IpcHandle) -> Result<usize, Error> {
        let device = self.device(context);
        let mut base = 0;
        // SAFETY: handles of this driver and a place for the result; a handle that is none is refused.
        check("zeMemOpenIpcHandle", unsafe {
            (self.library.ipc_open)(
                device.context,
                device.handle,
                sys::IpcHandle(handle.0),
                0,
                &raw mut base,
            )
        })?;
        Ok(base)
    }

    fn close(&self, context: Context, base: usize) {
        // SAFETY: opened by `open`, and the caller is done with it.
        let _ = unsafe { (self.library.ipc_close)(self.device(context).context, base) };
    }
}

/// Whether a handle says whose it is.
fn names_process(handle: &[u8], pid: u32) -> bool {
    handle.chunks_exact(4).any(|word| word == pid.to_ne_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handles_with_only_a_file_descriptor_are_not_for_others() {
        let mut handle = [0; sys::IPC_BYTES];
        handle[0] = 7;
        assert!(!names_process(&handle, 4711));
        handle[16..20].copy_from_slice(&4711u32.to_ne_bytes());
        assert!(names_process(&handle, 4711));
    }
}
