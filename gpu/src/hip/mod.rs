//! AMD, through HIP (`libamdhip64.so`), loaded at run time.

mod compile;
mod sys;

use std::collections::HashMap;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::{Mutex, PoisonError};

use hetccl_core::MemoryType;

use crate::driver::{
    CaptureMode, Context, DeviceInfo, Driver, Event, Function, GraphHooks, IpcHandle, Launch,
    Place, Recording, Stream,
};
use crate::error::Error;
use crate::foreign::{pointer, text};
use crate::vendor::{Description, Vendor};
use sys::{Hip as Library, Status};

/// The kernels' source.
const KERNELS: &CStr = match CStr::from_bytes_with_nul(
    concat!(include_str!("../../kernels/reduce.h"), include_str!("../../kernels/hold.h"), "\0")
        .as_bytes(),
) {
    Ok(source) => source,
    Err(_) => panic!("the source has no zero bytes"),
};

/// The kernel of [`hold_in_graph`](Driver::hold_in_graph): HIP's graphs have no memory operations.
const HOLD: &CStr = c"hetccl_hold";

/// What the rest of the crate knows of this vendor.
pub(crate) const VENDOR: Description = Description {
    name: "ROCm",
    maker: hetccl_core::topology::Vendor::Amd,
    memory: MemoryType::Rocm,
    managed: MemoryType::RocmManaged,
    peer_memory_module: Some("amdgpu"),
    open: || Ok(Box::new(Hip::new()?)),
};

/// The driver of this process. A [`Context`] is a device's number.
#[derive(Debug)]
struct Hip {
    library: Library,
    devices: u32,
    /// `hipRuntimeGetVersion`: major * 10,000,000 + minor * 100,000 + patch.
    version: c_int,
}

/// The kernels' module, by device; compiling takes seconds.
static MODULES: Mutex<Option<HashMap<Context, Result<usize, Error>>>> = Mutex::new(None);

impl Hip {
    /// Loads and initialises HIP.
    ///
    /// # Errors
    /// No library, one that is too old, no device, or what `hipInit` says.
    fn new() -> Result<Hip, Error> {
        let library = Library::load()?;
        let mut hip = Hip { library, devices: 0, version: 0 };
        let (mut devices, mut version): (c_int, c_int) = (0, 0);
        // SAFETY: takes no other flags.
        match unsafe { (hip.library.init)(0) } {
            sys::NO_DEVICE | sys::INVALID_DEVICE => {
                return Err(Error::NoDevice { vendor: Vendor::Rocm });
            }
            status => hip.check("hipInit", status)?,
        }
        // SAFETY: places for the results.
        unsafe {
            hip.check("hipRuntimeGetVersion", (hip.library.runtime_version)(&raw mut version))?;
            hip.check("hipGetDeviceCount", (hip.library.device_count)(&raw mut devices))?;
        }
        hip.version = version;
        hip.devices = u32::try_from(devices).unwrap_or(0);
        if hip.devices == 0 {
            return Err(Error::NoDevice { vendor: Vendor::Rocm });
        }
        Ok(hip)
    }

    /// The kernels' module on the current device. Not locked while it is loaded: that may wait for work whose thread comes
    /// here.
    fn module(&self, context: Context) -> Result<usize, Error> {
        let all = || MODULES.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = all().as_ref().and_then(|modules| modules.get(&context)) {
            return known.clone();
        }
        let loaded = self.load();
        all().get_or_insert_default().entry(context).or_insert(loaded).clone()
    }

    /// Compiles and loads the kernels for the current device.
    fn load(&self) -> Result<usize, Error> {
        let image = compile::compile(KERNELS)?;
        let mut module = std::ptr::null_mut::<c_void>();
        // SAFETY: a complete image; a place for the result.
        self.check("hipModuleLoadData", unsafe {
            (self.library.module_load)(&raw mut module, image.as_ptr().cast())
        })?;
        Ok(module.expose_provenance())
    }

    fn major(&self) -> c_int {
        self.version / 10_000_000
    }

    /// Whether `hipPointerAttribute_t` says device or managed memory; the numbers changed with ROCm 6.
    fn memory(&self, attributes: &sys::PointerAttributes) -> Option<MemoryType> {
        let (device, managed) = if self.major() >= 6 { (2, 3) } else { (1, 4) };
        if attributes.managed != 0 || attributes.kind == managed {
            Some(MemoryType::RocmManaged)
        } else if attributes.kind == device {
            Some(MemoryType::Rocm)
        } else {
            None
        }
    }

    /// # Errors
    /// Every status but success.
    #[inline]
    fn check(&self, function: &'static str, status: Status) -> Result<(), Error> {
        if status == sys::SUCCESS { Ok(()) } else { Err(self.failed(function, status)) }
    }

    #[cold]
    fn failed(&self, function: &'static str, status: Status) -> Error {
        // SAFETY: both take any number and return static strings; the last one makes the program not see the error.
        let (name, text) = unsafe {
            let words = |text: *const c_char| CStr::from_ptr(text).to_string_lossy().into_owned();
            let (name, text) =
                ((self.library.error_name)(status), (self.library.error_text)(status));
            let _ = (self.library.last_error)();
            (words(name), words(text))
        };
        Error::Call { function, code: status, name, text }
    }

    /// Makes a device current until the result is dropped; then the one before is again.
    fn enter(&self, context: Context) -> Result<Current<'_>, Error> {
        let mut before = 0;
        let wanted = context.0 as c_int;
        // SAFETY: a place for the result.
        self.check("hipGetDevice", unsafe { (self.library.get_device)(&raw mut before) })?;
        if before != wanted {
            // SAFETY: takes any number.
            self.check("hipSetDevice", unsafe { (self.library.set_device)(wanted) })?;
        }
        Ok(Current { hip: self, before: (before != wanted).then_some(before) })
    }
}

struct Current<'a> {
    hip: &'a Hip,
    before: Option<c_int>,
}

impl Drop for Current<'_> {
    fn drop(&mut self) {
        if let Some(before) = self.before {
            // SAFETY: takes any number; this one was current before.
            let _ = unsafe { (self.hip.library.set_device)(before) };
        }
    }
}

impl Driver for Hip {
    fn vendor(&self) -> Vendor {
        Vendor::Rocm
    }

    fn version(&self) -> String {
        format!("{}.{}", self.major(), self.version % 10_000_000 / 100_000)
    }

    fn devices(&self) -> u32 {
        self.devices
    }

    fn info(&self, device: u32) -> Result<DeviceInfo, Error> {
        let device = device as c_int;
        let (mut name, mut bus): ([c_char; 128], [c_char; 32]) = ([0; 128], [0; 32]);
        let mut memory_bytes = 0;
        let mut uuid = sys::Uuid([0; 16]);
        let hip = &self.library;
        // SAFETY: places for the results, with their lengths.
        unsafe {
            self.check("hipDeviceGetName", (hip.device_name)(name.as_mut_ptr(), 127, device))?;
            self.check(
                "hipDeviceGetPCIBusId",
                (hip.device_pci_bus_id)(bus.as_mut_ptr(), 31, device),
            )?;
            self.check(
                "hipDeviceTotalMem",
                (hip.device_total_memory)(&raw mut memory_bytes, device),
            )?;
            self.check("hipDeviceGetUuid", (hip.device_uuid)(&raw mut uuid, device))?;
        }
        Ok(DeviceInfo {
            name: text(&name),
            memory_bytes,
            pci_bus_id: text(&bus).to_lowercase(),
            uuid: uuid.0.map(|byte| byte as u8),
        })
    }

    fn locate(&self, address: usize) -> Option<Place> {
        let mut attributes = sys::PointerAttributes {
            kind: -1,
            device: -1,
            device_pointer: std::ptr::null_mut(),
            host_pointer: std::ptr::null_mut(),
            managed: 0,
            flags: 0,
        };
        // SAFETY: a place for the result; the address is only looked up.
        let status = unsafe {
            (self.library.pointer_attributes)(&raw mut attributes, pointer::<c_void>(address))
        };
        if status != sys::SUCCESS {
            // The program shall not see the error of a question it did not ask.
            // SAFETY: no arguments.
            let _ = unsafe { (self.library.last_error)() };
            return None;
        }
        let memory = self.memory(&attributes)?;
        let mut number = 0u32;
        // SAFETY: the attribute's value has 32 bits.
        let status = unsafe {
            (self.library.pointer_attribute)(
                (&raw mut number).cast(),
                sys::BUFFER_ID,
                pointer(address),
            )
        };
        self.check("hipPointerGetAttribute", status).ok()?;
        let device = u32::try_from(attributes.device).ok()?;
        let context = Context(device as usize);
        Some(Place { memory, device, context, allocation: u64::from(number) })
    }

    fn allocation(&self, context: Context, address: usize) -> Result<(usize, usize), Error> {
        let _current = self.enter(context)?;
        let (mut base, mut len_bytes) = (std::ptr::null_mut::<c_void>(), 0);
        // SAFETY: places for the results.
        self.check("hipMemGetAddressRange", unsafe {
            (self.library.address_range)(&raw mut base, &raw mut len_bytes, pointer(address))
        })?;
        Ok((base.expose_provenance(), len_bytes))
    }

    fn stream(&self, context: Context) -> Result<Stream, Error> {
        let _current = self.enter(context)?;
        let mut stream = std::ptr::null_mut::<c_void>();
        // SAFETY: a place for the result.
        self.check("hipStreamCreateWithFlags", unsafe {
            (self.library.stream_create)(&raw mut stream, sys::NON_BLOCKING)
        })?;
        Ok(Stream(stream.expose_provenance()))
    }

    fn event(&self, context: Context) -> Result<Event, Error> {
        let _current = self.enter(context)?;
        let mut event = std::ptr::null_mut::<c_void>();
        // SAFETY: a place for the result.
        self.check("hipEventCreateWithFlags", unsafe {
            (self.library.event_create)(&raw mut event, sys::NO_TIMING)
        })?;
        Ok(Event(event.expose_provenance()))
    }

    fn record(&self, context: Context, event: Event, stream: Stream) -> Result<(), Error> {
        let _current = self.enter(context)?;
        // SAFETY: both were made by this driver on this device.
        self.check("hipEventRecord", unsafe {
            (self.library.event_record)(pointer(event.0), pointer(stream.0))
        })
    }

    fn wait(&self, context: Context, stream: Stream, event: Event) -> Result<(), Error> {
        let _current = self.enter(context)?;
        // SAFETY: as for `record`.
        self.check("hipStreamWaitEvent", unsafe {
            (self.library.stream_wait_event)(pointer(stream.0), pointer(event.0), 0)
        })
    }

    fn current(&self) -> Result<(u32, Context), Error> {
        let mut device = 0;
        // SAFETY: a place for the result.
        self.check("hipGetDevice", unsafe { (self.library.get_device)(&raw mut device) })?;
        Ok((device as u32, Context(device as usize)))
    }

    fn context(&self, device: u32) -> Result<Context, Error> {
        let context = Context(device as usize);
        self.enter(context)?;
        Ok(context)
    }

    fn adopt(&self, context: Context) -> Result<(), Error> {
        let device = context.0 as c_int;
        // SAFETY: takes any number.
        self.check("hipSetDevice", unsafe { (self.library.set_device)(device) })
    }

    fn hold(
        &self,
        context: Context,
        stream: Stream,
        ready: (usize, u32),
        done: (usize, u32),
    ) -> Result<(), Error> {
        let _current = self.enter(context)?;
        // SAFETY: the caller vouches for the words (see the trait).
        self.check("hipStreamWriteValue32", unsafe {
            (self.library.stream_write_value)(pointer(stream.0), pointer(ready.0), ready.1, 0)
        })?;
        // SAFETY: as above.
        self.check("hipStreamWaitValue32", unsafe {
            (self.library.stream_wait_value)(
                pointer(stream.0),
                pointer(done.0),
                done.1,
                sys::WAIT_AT_LEAST,
                u32::MAX,
            )
        })
    }

    fn recording(&self, context: Context, stream: Stream) -> Result<Option<Recording>, Error> {
        let _current = self.enter(context)?;
        let (mut status, mut id, mut graph) = (0, 0, std::ptr::null_mut::<c_void>());
        // SAFETY: places for the results; those of the dependencies may be left out.
        let asked = unsafe {
            (self.library.stream_capture_info)(
                pointer(stream.0),
                &raw mut status,
                &raw mut id,
                &raw mut graph,
                std::ptr::null_mut(),
                std::ptr::null_mut(),
            )
        };
        self.check("hipStreamGetCaptureInfo", asked)?;
        match status {
            sys::CAPTURE_ACTIVE => Ok(Some(Recording { id, graph: graph.expose_provenance() })),
            sys::CAPTURE_INVALIDATED => {
                Err(self.failed("hipStreamGetCaptureInfo", sys::ERROR_CAPTURE_INVALIDATED))
            }
            _ => Ok(None),
        }
    }

    fn prepare_graphs(&self, context: Context) -> Result<(), Error> {
        self.kernel(context, HOLD).map(drop)
    }

    fn hold_in_graph(
        &self,
        context: Context,
        stream: Stream,
        ready: usize,
        done: usize,
    ) -> Result<(), Error> {
        let function = self.kernel(context, HOLD)?;
        let argument = &[ready as u64, done as u64];
        self.launch(context, stream, &Launch { function, blocks: 1, threads: 1, argument })
    }

    fn watch(&self, context: Context, graph: usize, hooks: GraphHooks) -> Result<(), Error> {
        let _current = self.enter(context)?;
        let graph = pointer::<c_void>(graph);
        let (mut node, mut object) = (std::ptr::null_mut(), std::ptr::null_mut());
        let data = pointer::<c_void>(hooks.data);
        let launched = sys::HostNode { function: hooks.launched, data };
        let hip = &self.library;
        // SAFETY: a graph that is being recorded; places for the results; the caller vouches for the functions.
        unsafe {
            self.check(
                "hipUserObjectCreate",
                (hip.user_object_create)(
                    &raw mut object,
                    data,
                    hooks.gone,
                    1,
                    sys::NO_DESTRUCTOR_SYNC,
                ),
            )?;
            self.check(
                "hipGraphAddHostNode",
                (hip.graph_add_host_node)(
                    &raw mut node,
                    graph,
                    std::ptr::null(),
                    0,
                    &raw const launched,
                ),
            )?;
            self.check(
                "hipGraphRetainUserObject",
                (hip.graph_retain_object)(graph, object, 1, sys::GRAPH_OBJECT_MOVE),
            )
        }
    }

    fn exchange_capture_mode(&self, mode: CaptureMode) -> Result<CaptureMode, Error> {
        let mut word = mode as c_int;
        // SAFETY: the new mode, and a place for the old one.
        self.check("hipThreadExchangeStreamCaptureMode", unsafe {
            (self.library.exchange_capture_mode)(&raw mut word)
        })?;
        Ok(match word {
            0 => CaptureMode::Global,
            1 => CaptureMode::ThreadLocal,
            _ => CaptureMode::Relaxed,
        })
    }

    fn finished(&self, _: Context, event: Event) -> Result<bool, Error> {
        // SAFETY: made by this driver; needs no current device.
        match unsafe { (self.library.event_query)(pointer(event.0)) } {
            sys::NOT_READY => {
                // HIP notes "not ready" as an error that the program would see.
                // SAFETY: no arguments.
                let _ = unsafe { (self.library.last_error)() };
                Ok(false)
            }
            status => self.check("hipEventQuery", status).map(|()| true),
        }
    }

    fn copy(
        &self,
        context: Context,
        stream: Stream,
        from: usize,
        into: usize,
        len_bytes: usize,
    ) -> Result<(), Error> {
        let _current = self.enter(context)?;
        // SAFETY: the caller vouches for the memory (see the trait).
        self.check("hipMemcpyAsync", unsafe {
            (self.library.memcpy_async)(
                pointer(into),
                pointer::<c_void>(from),
                len_bytes,
                sys::COPY_ANY,
                pointer(stream.0),
            )
        })
    }

    fn allocate_pinned(&self, context: Context, len_bytes: usize) -> Result<usize, Error> {
        let _current = self.enter(context)?;
        let mut memory = std::ptr::null_mut::<c_void>();
        // SAFETY: a place for the result.
        self.check("hipHostMalloc", unsafe {
            (self.library.host_malloc)(&raw mut memory, len_bytes, sys::PORTABLE)
        })?;
        Ok(memory.expose_provenance())
    }

    fn free_pinned(&self, context: Context, address: usize) {
        let Ok(_current) = self.enter(context) else { return };
        // SAFETY: allocated by `allocate_pinned`, and the caller is done with it.
        let _ = unsafe { (self.library.host_free)(pointer(address)) };
    }

    fn pin(&self, context: Context, address: usize, len_bytes: usize) -> Result<(), Error> {
        let _current = self.enter(context)?;
        // SAFETY: the caller's memory, which stays mapped until `unpin`.
        self.check("hipHostRegister", unsafe {
            (self.library.host_register)(pointer(address), len_bytes, sys::PORTABLE)
        })
    }

    fn unpin(&self, context: Context, address: usize) {
        let Ok(_current) = self.enter(context) else { return };
        // SAFETY: registered by `pin`, and the caller is done with it.
        let _ = unsafe { (self.library.host_unregister)(pointer(address)) };
    }

    fn allocate(&self, context: Context, len_bytes: usize) -> Result<usize, Error> {
        let _current = self.enter(context)?;
        let mut memory = std::ptr::null_mut::<c_void>();
        // SAFETY: a place for the result.
        self.check("hipMalloc", unsafe { (self.library.malloc)(&raw mut memory, len_bytes) })?;
        Ok(memory.expose_provenance())
    }

    fn free(&self, context: Context, address: usize) {
        let Ok(_current) = self.enter(context) else { return };
        // SAFETY: allocated by `allocate`, and the caller is done with it.
        let _ = unsafe { (self.library.free)(pointer(address)) };
    }

    fn kernel(&self, context: Context, name: &CStr) -> Result<Function, Error> {
        let _current = self.enter(context)?;
        let module = self.module(context)?;
        let mut function = std::ptr::null_mut::<c_void>();
        // SAFETY: the module was loaded for this device, which is current; a place for the result.
        self.check("hipModuleGetFunction", unsafe {
            (self.library.module_function)(&raw mut function, pointer(module), name.as_ptr())
        })?;
        Ok(Function(function.expose_provenance()))
    }

    fn launch(&self, context: Context, stream: Stream, launch: &Launch<'_>) -> Result<(), Error> {
        let _current = self.enter(context)?;
        let mut arguments = [launch.argument.as_ptr().cast_mut().cast::<c_void>()];
        // SAFETY: one argument of the kernel's size; the caller vouches for the memory it points to.
        self.check("hipModuleLaunchKernel", unsafe {
            (self.library.launch_kernel)(
                pointer(launch.function.0),
                launch.blocks,
                1,
                1,
                launch.threads,
                1,
                1,
                0,
                pointer(stream.0),
                arguments.as_mut_ptr(),
                std::ptr::null_mut(),
            )
        })
    }

    fn export(&self, context: Context, base: usize) -> Result<IpcHandle, Error> {
        let _current = self.enter(context)?;
        let mut handle = sys::IpcHandle([0; 64]);
        // SAFETY: a place for the result.
        self.check("hipIpcGetMemHandle", unsafe {
            (self.library.ipc_get)(&raw mut handle, pointer(base))
        })?;
        Ok(IpcHandle(handle.0.map(|byte| byte as u8)))
    }

    fn open(&self, context: Context, handle: &IpcHandle) -> Result<usize, Error> {
        let _current = self.enter(context)?;
        let mut base = std::ptr::null_mut::<c_void>();
        let handle = sys::IpcHandle(handle.0.map(|byte| byte as c_char));
        // SAFETY: a place for the result.
        self.check("hipIpcOpenMemHandle", unsafe {
            (self.library.ipc_open)(&raw mut base, handle, sys::LAZY_PEER_ACCESS)
        })?;
        Ok(base.expose_provenance())
    }

    fn close(&self, context: Context, base: usize) {
        let Ok(_current) = self.enter(context) else { return };
        // SAFETY: opened by `open`, and the caller is done with it.
        let _ = unsafe { (self.library.ipc_close)(pointer(base)) };
    }
}
