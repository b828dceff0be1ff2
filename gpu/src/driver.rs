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

/// A graph that a stream records instead of running its work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recording {
    /// The recording's number, the same for all streams that take part in it, never given twice.
    pub id: u64,
    /// The graph; the driver's own number.
    pub graph: usize,
}

/// A function that a driver calls. It must not call the driver.
pub type Callback = unsafe extern "C" fn(*mut std::ffi::c_void);

/// What a graph lets the library know.
#[derive(Clone, Copy, Debug)]
pub struct GraphHooks {
    /// Called at each launch of the graph, not in the order of its work.
    pub launched: Callback,
    /// Called once, when neither the graph nor anything made of it is there any more.
    pub gone: Callback,
    /// Given to both.
    pub data: usize,
}

/// Which calls a recording of a graph keeps a thread from making.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CaptureMode {
    /// Those that may wait or allocate, during recordings of any thread (of those that ask for that) and its own.
    Global,
    /// The same, during its own.
    ThreadLocal,
    /// None: the thread knows that its calls have nothing to do with what is recorded.
    Relaxed,
}

/// Lets the calling thread make any call during recordings until it is dropped.
pub struct Relaxed<'a> {
    driver: &'a dyn Driver,
    before: CaptureMode,
}

impl<'a> Relaxed<'a> {
    /// From here on.
    ///
    /// # Errors
    /// [`Error::Call`].
    pub fn new(driver: &'a dyn Driver) -> Result<Relaxed<'a>, Error> {
        Ok(Relaxed { driver, before: driver.exchange_capture_mode(CaptureMode::Relaxed)? })
    }
}

impl Drop for Relaxed<'_> {
    fn drop(&mut self) {
        let _ = self.driver.exchange_capture_mode(self.before);
    }
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

    /// Whether there are [own contexts](Driver::own_context).
    fn has_own_contexts(&self) -> bool {
        false
    }

    /// A context of the library's own on a device, the same for the whole process; `None` where the vendor has no such thing.
    /// What the program does in its own contexts does not keep this one from working.
    ///
    /// # Errors
    /// [`Error::Call`], such as too little memory.
    fn own_context(&self, _device: u32) -> Result<Option<Context>, Error> {
        Ok(None)
    }

    /// Queues the writing of a value to a 32-bit word in pinned memory, which is seen there after what earlier work wrote.
    ///
    /// # Errors
    /// [`Error::Call`].
    fn write_value(
        &self,
        _context: Context,
        _stream: Stream,
        _address: usize,
        _value: u32,
    ) -> Result<(), Error> {
        Err(self.unsupported("writing words from a stream"))
    }

    /// Whether a stream's work so far has gone well.
    ///
    /// # Errors
    /// [`Error::Call`]: it has not.
    fn check_stream(&self, _context: Context, _stream: Stream) -> Result<(), Error> {
        Ok(())
    }

    /// Whether kernels can use the host memory at an address: it is pinned.
    fn is_pinned(&self, _address: usize) -> bool {
        false
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

    /// The graph that a stream records instead of running, if it does.
    ///
    /// # Errors
    /// [`Error::Call`], also for a recording that an earlier error has ended.
    fn recording(&self, _context: Context, _stream: Stream) -> Result<Option<Recording>, Error> {
        Err(self.unsupported("graphs"))
    }

    /// Records into the graph of `stream`, to be done at each of its launches, in this order: writing 1 to the word at
    /// `ready`, waiting until the word at `done` is 1, writing 0 to that. Both are 32-bit words in pinned memory.
    ///
    /// # Errors
    /// [`Error::Call`].
    fn hold_in_graph(
        &self,
        _context: Context,
        _stream: Stream,
        _ready: usize,
        _done: usize,
    ) -> Result<(), Error> {
        Err(self.unsupported("holding a stream of a graph"))
    }

    /// Makes ready what [`hold_in_graph`](Driver::hold_in_graph) needs. Slow the first time.
    ///
    /// # Errors
    /// [`Error::NoKernels`], where it takes a kernel, or [`Error::Call`].
    fn prepare_graphs(&self, _context: Context) -> Result<(), Error> {
        Ok(())
    }

    /// Lets the library know of the launches and the end of a graph that is being recorded.
    ///
    /// # Errors
    /// [`Error::Call`]; nothing will be called then.
    fn watch(&self, _context: Context, _graph: usize, _hooks: GraphHooks) -> Result<(), Error> {
        Err(self.unsupported("watching graphs"))
    }

    /// Sets which calls recordings keep the calling thread from making; what it was before.
    ///
    /// # Errors
    /// [`Error::Call`].
    fn exchange_capture_mode(&self, _mode: CaptureMode) -> Result<CaptureMode, Error> {
        Ok(CaptureMode::Relaxed)
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
