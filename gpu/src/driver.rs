//! What hetccl asks of a vendor's driver.

use std::ffi::CStr;

use hetccl_core::MemoryType;

use crate::error::Error;
use crate::vendor::Vendor;

/// What streams, events and memory belong to: a CUDA context, a HIP device; the driver's own number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Context(pub usize);

/// A queue of work; the driver's own number. 0 is the default stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stream(pub usize);

impl Stream {
    /// The default stream, which is ordered with what the program queues as the vendor has it.
    pub const DEFAULT: Stream = Stream(0);
}

/// A mark in a stream; the driver's own number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event(pub usize);

/// One kernel; the driver's own number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Function(pub usize);

/// Where an address lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Device or managed memory of which vendor.
    pub memory: MemoryType,
    /// The device's number in its driver.
    pub device: u32,
    /// The context that can use it.
    pub context: Context,
    /// The allocation's number, never given twice in a process.
    pub allocation: u64,
}

/// A device, for reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceInfo {
    /// The vendor's name of it.
    pub name: String,
    /// Its memory in bytes.
    pub memory_bytes: usize,
    /// PCI address, such as `0000:3b:00.0`.
    pub pci_bus_id: String,
    /// The same in every process and container that sees the device.
    pub uuid: [u8; 16],
}

/// Bytes of an [`IpcHandle`].
pub const IPC_HANDLE_BYTES: usize = 64;

/// An allocation's name for other processes of the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct IpcHandle(pub [u8; IPC_HANDLE_BYTES]);

/// A kernel with its grid; `arguments` is the one argument, by value.
#[derive(Clone, Copy, Debug)]
pub struct Launch<'a> {
    /// The kernel.
    pub function: Function,
    /// Blocks, in one dimension.
    pub blocks: u32,
    /// Threads of a block.
    pub threads: u32,
    /// The bytes of the argument, aligned as it wants.
    pub argument: &'a [u64],
}

/// A vendor's driver in this process.
///
/// Calls may come from any thread, with any or no context current there; that is restored. Streams, events, modules and
/// memory belong to the context they were made in.
///
/// Addresses given to `copy`, `free`, `close` and in launches are the caller's responsibility: [`Gpus`](crate::Gpus)
/// passes what its own callers vouch for.
pub trait Driver: Send {
    /// Whose driver.
    fn vendor(&self) -> Vendor;

    /// The error of a vendor that has no way to do something. What may be missing has it as its default.
    fn unsupported(&self, what: &'static str) -> Error {
        Error::Unsupported { vendor: self.vendor(), what }
    }

    /// Driver version, for reports.
    fn version(&self) -> String;

    /// Devices.
    fn devices(&self) -> u32;

    /// About a device.
    ///
    /// # Errors
    /// [`Error::Call`].
    fn info(&self, device: u32) -> Result<DeviceInfo, Error>;

    /// Where an address lives; `None` for memory of the host, pinned or not, and for what the driver does not know.
    fn locate(&self, address: usize) -> Option<Place>;

    /// The allocation around an address: first byte and length.
    ///
    /// # Errors
    /// [`Error::Call`].
    fn allocation(&self, context: Context, address: usize) -> Result<(usize, usize), Error>;

    /// A stream that is not ordered with the default stream.
    ///
    /// # Errors
    /// [`Error::Call`].
    fn stream(&self, context: Context) -> Result<Stream, Error>;

    /// An event without timing.
    ///
    /// # Errors
    /// [`Error::Call`].
    fn event(&self, context: Context) -> Result<Event, Error>;

    /// Marks the end of what has been queued on a stream.
    ///
    /// # Errors
    /// [`Error::Call`].
    fn record(&self, context: Context, event: Event, stream: Stream) -> Result<(), Error>;

    /// Later work on `stream` waits for the event.
    ///
    /// # Errors
    /// [`Error::Call`].
    fn wait(&self, context: Context, stream: Stream, event: Event) -> Result<(), Error>;

    /// The calling thread's device, and the context that its memory calls use.
    ///
    /// # Errors
    /// [`Error::Call`].
    fn current(&self) -> Result<(u32, Context), Error> {
        Err(self.unsupported("a current device"))
    }

    /// The context in which a device's memory is allocated, where the program has made none of its own.
    ///
    /// # Errors
    /// [`Error::Call`], for a device that is not there as well.
    fn context(&self, _device: u32) -> Result<Context, Error> {
        Err(self.unsupported("a device's own context"))
    }

    /// Makes a context the calling thread's for good, for threads of the library's own: drivers answer questions about
    /// addresses only to threads that have one.
    ///
    /// # Errors
    /// [`Error::Call`].
    fn adopt(&self, _context: Context) -> Result<(), Error> {
        Err(self.unsupported("a thread's context"))
    }

    /// Queues on `stream`, in this order: writing `ready` to a word, waiting until another has become at least `done`.
    /// Both are `(address, value)` of 32-bit words in pinned memory.
    ///
    /// # Errors
    /// [`Error::Call`].
    fn hold(
        &self,
        _context: Context,
        _stream: Stream,
        _ready: (usize, u32),
        _done: (usize, u32),
    ) -> Result<(), Error> {
        Err(self.unsupported("holding a stream"))
    }

    /// Whether a stream records a graph instead of running.
    ///
    /// # Errors
    /// [`Error::Call`].
    fn is_capturing(&self, _context: Context, _stream: Stream) -> Result<bool, Error> {
        Err(self.unsupported("graphs"))
    }

    /// Whether everything before a recorded event has finished.
    ///
    /// # Errors
    /// [`Error::Call`], also for the failure of work before the event.
    fn finished(&self, context: Context, event: Event) -> Result<bool, Error>;

    /// Queues a copy between any two places, host memory included.
    ///
    /// # Errors
    /// [`Error::Call`].
    fn copy(
        &self,
        context: Context,
        stream: Stream,
        from: usize,
        into: usize,
        len_bytes: usize,
    ) -> Result<(), Error>;

    /// Host memory that the device copies from and to at full speed.
    ///
    /// # Errors
    /// [`Error::Call`], when there is no memory.
    fn allocate_pinned(&self, context: Context, len_bytes: usize) -> Result<usize, Error>;

    /// Lets the device copy at full speed from and to host memory that is there already, whole pages of it.
    ///
    /// # Errors
    /// [`Error::Call`], or [`Error::Unsupported`] where the vendor has no way to do so.
    fn pin(&self, _context: Context, _address: usize, _len_bytes: usize) -> Result<(), Error> {
        Err(Error::Unsupported {
            vendor: self.vendor(),
            what: "pinning memory that is there already",
        })
    }

    /// Ends what [`pin`](Driver::pin) began.
    fn unpin(&self, _context: Context, _address: usize) {}

    /// Gives pinned memory back.
    fn free_pinned(&self, context: Context, address: usize);

    /// Device memory.
    ///
    /// # Errors
    /// [`Error::Call`], when there is no memory.
    fn allocate(&self, context: Context, len_bytes: usize) -> Result<usize, Error>;

    /// Gives device memory back. Waits for the device.
    fn free(&self, context: Context, address: usize);

    /// One of hetccl's kernels, made ready for the context. Slow; the result is good for as long as the context is.
    ///
    /// # Errors
    /// [`Error::NoKernels`] with what was looked for, or [`Error::Call`].
    fn kernel(&self, context: Context, name: &CStr) -> Result<Function, Error>;

    /// Queues a kernel.
    ///
    /// # Errors
    /// [`Error::Call`].
    fn launch(&self, context: Context, stream: Stream, launch: &Launch<'_>) -> Result<(), Error>;

    /// The name under which another process opens the allocation that starts at `base`.
    ///
    /// # Errors
    /// [`Error::Call`], for memory that can't be shared so (pools, virtual memory, managed memory).
    fn export(&self, context: Context, base: usize) -> Result<IpcHandle, Error>;

    /// Another process's allocation: its first byte here.
    ///
    /// # Errors
    /// [`Error::Call`].
    fn open(&self, context: Context, handle: &IpcHandle) -> Result<usize, Error>;

    /// Lets go of another process's allocation.
    fn close(&self, context: Context, base: usize);
}
