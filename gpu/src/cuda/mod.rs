//! NVIDIA, through CUDA's driver interface (`libcuda.so.1`), loaded at run time.
//!
//! Source: CUDA Driver API reference manual; function names there.

mod ptx;
mod result;

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::{Mutex, PoisonError};

use cudarc::driver::sys::{self, CUpointer_attribute as Attribute};
use hetccl_core::MemoryType;

use crate::driver::{
    CaptureMode, Context, DeviceInfo, Driver, Event, Function, GraphHooks, IpcHandle, Launch,
    Place, Recording, Stream,
};
use crate::error::Error;
use crate::foreign::{pointer, text};
use crate::vendor::{Description, Vendor};
use result::{check, load};

/// `CU_MEMHOSTALLOC_PORTABLE`: pinned for all contexts.
const PORTABLE: u32 = 1;
/// `CU_STREAM_NON_BLOCKING`.
const NON_BLOCKING: u32 = 1;
/// `CU_EVENT_DISABLE_TIMING`.
const NO_TIMING: u32 = 2;
/// `CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS`.
const LAZY_PEER_ACCESS: u32 = 1;

/// What the rest of the crate knows of this vendor.
pub(crate) const VENDOR: Description = Description {
    name: "CUDA",
    maker: hetccl_core::topology::Vendor::Nvidia,
    memory: MemoryType::Cuda,
    managed: MemoryType::CudaManaged,
    peer_memory_module: Some("nvidia_peermem"),
    open: || Ok(Box::new(Cuda::new()?)),
};

/// The driver of this process.
#[derive(Debug)]
struct Cuda {
    devices: u32,
}

impl Cuda {
    /// Loads and initialises the driver. Makes no context.
    ///
    /// # Errors
    /// No library, one that is too old, no device, or what `cuInit` says.
    fn new() -> Result<Cuda, Error> {
        load()?;
        // SAFETY: the library is loaded and has the function.
        check("cuInit", unsafe { sys::cuInit(0) })?;
        let mut devices: c_int = 0;
        // SAFETY: a place for the result.
        check("cuDeviceGetCount", unsafe { sys::cuDeviceGetCount(&raw mut devices) })?;
        match u32::try_from(devices) {
            Ok(devices) if devices > 0 => Ok(Cuda { devices }),
            _ => Err(Error::NoDevice { vendor: Vendor::Cuda }),
        }
    }

    /// The context for memory that belongs to none, such as that of pools: the device's primary one. It is the one that
    /// the CUDA runtime uses, so it exists already.
    fn primary(device: c_int) -> Option<Context> {
        let mut context = std::ptr::null_mut();
        // SAFETY: a place for the result. The reference is kept for good: the memory found here lives in it.
        check("cuDevicePrimaryCtxRetain", unsafe {
            sys::cuDevicePrimaryCtxRetain(&raw mut context, device)
        })
        .ok()?;
        Some(Context(context.expose_provenance()))
    }
}

/// The library's own contexts, by device.
static OWN_CONTEXTS: Mutex<Vec<(u32, Context)>> = Mutex::new(Vec::new());

/// Makes a context current until dropped; then the one before is again.
struct Current;

impl Current {
    fn new(context: Context) -> Result<Current, Error> {
        // SAFETY: contexts come from the driver; a destroyed one is refused by it.
        check("cuCtxPushCurrent", unsafe { sys::cuCtxPushCurrent_v2(pointer(context.0)) })?;
        Ok(Current)
    }
}

impl Drop for Current {
    fn drop(&mut self) {
        let mut popped = std::ptr::null_mut();
        // SAFETY: a place for the result. There is something to pop: this value pushed it.
        let _ = unsafe { sys::cuCtxPopCurrent_v2(&raw mut popped) };
    }
}

/// One of a stream's operations on a word of memory.
#[derive(Clone, Copy, Debug)]
enum Step {
    Write,
    /// Until it is at least that; the difference counts, so numbers may go round.
    Wait,
}

/// Queues operations on words of memory: what to do, address, value.
fn batch<const LEN: usize>(
    context: Context,
    stream: Stream,
    steps: [(Step, usize, u32); LEN],
) -> Result<(), Error> {
    use sys::CUstreamBatchMemOpType as Type;
    let _current = Current::new(context)?;
    let mut operations = steps.map(|(step, address, value)| {
        // SAFETY: all zeroes is a value of this union of plain data; the fields begin alike.
        unsafe {
            let mut operation: sys::CUstreamBatchMemOpParams = std::mem::zeroed();
            match step {
                Step::Write => {
                    operation.writeValue.operation = Type::CU_STREAM_MEM_OP_WRITE_VALUE_32;
                    operation.writeValue.address = address as u64;
                    operation.writeValue.__bindgen_anon_1.value = value;
                }
                Step::Wait => {
                    operation.waitValue.operation = Type::CU_STREAM_MEM_OP_WAIT_VALUE_32;
                    operation.waitValue.address = address as u64;
                    operation.waitValue.__bindgen_anon_1.value = value;
                }
            }
            operation
        }
    });
    // SAFETY: complete operations; the caller vouches for the words (see the trait).
    check("cuStreamBatchMemOp", unsafe {
        sys::cuStreamBatchMemOp_v2(pointer(stream.0), LEN as u32, operations.as_mut_ptr(), 0)
    })
}

impl Driver for Cuda {
    fn vendor(&self) -> Vendor {
        Vendor::Cuda
    }

    fn version(&self) -> String {
        let mut version: c_int = 0;
        // SAFETY: a place for the result.
        let _ = unsafe { sys::cuDriverGetVersion(&raw mut version) };
        format!("{}.{}", version / 1000, version % 1000 / 10)
    }

    fn devices(&self) -> u32 {
        self.devices
    }

    fn info(&self, device: u32) -> Result<DeviceInfo, Error> {
        let device = device as c_int;
        let (mut name, mut bus): ([c_char; 128], [c_char; 32]) = ([0; 128], [0; 32]);
        let mut memory_bytes = 0;
        let mut uuid = sys::CUuuid { bytes: [0; 16] };
        // SAFETY: places for the results, with their lengths.
        unsafe {
            check("cuDeviceGetName", sys::cuDeviceGetName(name.as_mut_ptr(), 127, device))?;
            check("cuDeviceGetPCIBusId", sys::cuDeviceGetPCIBusId(bus.as_mut_ptr(), 31, device))?;
            check("cuDeviceTotalMem", sys::cuDeviceTotalMem_v2(&raw mut memory_bytes, device))?;
            check("cuDeviceGetUuid", sys::cuDeviceGetUuid(&raw mut uuid, device))?;
        }
        Ok(DeviceInfo {
            name: text(&name),
            memory_bytes,
            pci_bus_id: text(&bus).to_lowercase(),
            uuid: uuid.bytes.map(|byte| byte as u8),
        })
    }

    fn locate(&self, address: usize) -> Option<Place> {
        let (mut memory, mut managed, mut device) = (0u32, 0u32, -1);
        let (mut context, mut allocation) = (std::ptr::null_mut::<c_void>(), 0u64);
        let mut attributes = [
            Attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
            Attribute::CU_POINTER_ATTRIBUTE_IS_MANAGED,
            Attribute::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
            Attribute::CU_POINTER_ATTRIBUTE_CONTEXT,
            Attribute::CU_POINTER_ATTRIBUTE_BUFFER_ID,
        ];
        let mut places: [*mut c_void; 5] = [
            (&raw mut memory).cast(),
            (&raw mut managed).cast(),
            (&raw mut device).cast(),
            (&raw mut context).cast(),
            (&raw mut allocation).cast(),
        ];
        // SAFETY: five attributes with places of their sizes. The driver sets those of unknown addresses to zero.
        let status = unsafe {
            sys::cuPointerGetAttributes(
                5,
                attributes.as_mut_ptr(),
                places.as_mut_ptr(),
                address as sys::CUdeviceptr,
            )
        };
        check("cuPointerGetAttributes", status).ok()?;
        let memory = match (memory, managed) {
            (_, 1..) => MemoryType::CudaManaged,
            (DEVICE_MEMORY, 0) => MemoryType::Cuda,
            _ => return None,
        };
        let context = match context.expose_provenance() {
            0 => Cuda::primary(device)?,
            raw => Context(raw),
        };
        Some(Place { memory, device: u32::try_from(device).ok()?, context, allocation })
    }

    fn allocation(&self, context: Context, address: usize) -> Result<(usize, usize), Error> {
        let _current = Current::new(context)?;
        let (mut base, mut len_bytes) = (0, 0);
        // SAFETY: places for the results.
        check("cuMemGetAddressRange", unsafe {
            sys::cuMemGetAddressRange_v2(&raw mut base, &raw mut len_bytes, address as u64)
        })?;
        Ok((base as usize, len_bytes))
    }

    fn stream(&self, context: Context) -> Result<Stream, Error> {
        let _current = Current::new(context)?;
        let mut stream = std::ptr::null_mut();
        // SAFETY: a place for the result.
        check("cuStreamCreate", unsafe { sys::cuStreamCreate(&raw mut stream, NON_BLOCKING) })?;
        Ok(Stream(stream.expose_provenance()))
    }

    fn event(&self, context: Context) -> Result<Event, Error> {
        let _current = Current::new(context)?;
        let mut event = std::ptr::null_mut();
        // SAFETY: a place for the result.
        check("cuEventCreate", unsafe { sys::cuEventCreate(&raw mut event, NO_TIMING) })?;
        Ok(Event(event.expose_provenance()))
    }

    fn record(&self, context: Context, event: Event, stream: Stream) -> Result<(), Error> {
        let _current = Current::new(context)?;
        // SAFETY: both were made by this driver in this context.
        check("cuEventRecord", unsafe { sys::cuEventRecord(pointer(event.0), pointer(stream.0)) })
    }

    fn wait(&self, context: Context, stream: Stream, event: Event) -> Result<(), Error> {
        let _current = Current::new(context)?;
        // SAFETY: as for `record`.
        check("cuStreamWaitEvent", unsafe {
            sys::cuStreamWaitEvent(pointer(stream.0), pointer(event.0), 0)
        })
    }

    fn current(&self) -> Result<(u32, Context), Error> {
        let (mut context, mut device): (_, c_int) = (std::ptr::null_mut(), 0);
        // SAFETY: a place for the result.
        check("cuCtxGetCurrent", unsafe { sys::cuCtxGetCurrent(&raw mut context) })?;
        if context.is_null() {
            return Ok((0, Driver::context(self, 0)?));
        }
        // SAFETY: a place for the result.
        check("cuCtxGetDevice", unsafe { sys::cuCtxGetDevice(&raw mut device) })?;
        Ok((device as u32, Context(context.cast::<c_void>().expose_provenance())))
    }

    fn context(&self, device: u32) -> Result<Context, Error> {
        let mut context = std::ptr::null_mut();
        // SAFETY: a place for the result; the driver refuses devices that are not there. Kept, as in `primary`.
        check("cuDevicePrimaryCtxRetain", unsafe {
            sys::cuDevicePrimaryCtxRetain(&raw mut context, device as c_int)
        })?;
        Ok(Context(context.expose_provenance()))
    }

    fn has_own_contexts(&self) -> bool {
        true
    }

    fn own_context(&self, device: u32) -> Result<Option<Context>, Error> {
        let mut own = OWN_CONTEXTS.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(&(_, context)) = own.iter().find(|(of, _)| *of == device) {
            return Ok(Some(context));
        }
        let mut context = std::ptr::null_mut();
        // SAFETY: a place for the result; the driver refuses devices that are not there. It stays for the process's life.
        check("cuCtxCreate", unsafe { sys::cuCtxCreate_v2(&raw mut context, 0, device as c_int) })?;
        // The new one is the thread's now; the one before shall be.
        drop(Current);
        let context = Context(context.expose_provenance());
        own.push((device, context));
        Ok(Some(context))
    }

    fn write_value(
        &self,
        context: Context,
        stream: Stream,
        address: usize,
        value: u32,
    ) -> Result<(), Error> {
        let _current = Current::new(context)?;
        // SAFETY: the caller vouches for the word (see the trait).
        check("cuStreamWriteValue32", unsafe {
            sys::cuStreamWriteValue32_v2(pointer(stream.0), address as u64, value, 0)
        })
    }

    fn check_stream(&self, context: Context, stream: Stream) -> Result<(), Error> {
        let _current = Current::new(context)?;
        // SAFETY: made by this driver in this context.
        match unsafe { sys::cuStreamQuery(pointer(stream.0)) } {
            sys::CUresult::CUDA_ERROR_NOT_READY => Ok(()),
            status => check("cuStreamQuery", status),
        }
    }

    fn is_pinned(&self, address: usize) -> bool {
        let mut memory = 0u32;
        let attribute = Attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE;
        // SAFETY: a place for the result; unknown addresses are refused.
        let status = unsafe {
            sys::cuPointerGetAttribute((&raw mut memory).cast(), attribute, address as u64)
        };
        status == sys::CUresult::CUDA_SUCCESS && memory != 0
    }

    fn adopt(&self, context: Context) -> Result<(), Error> {
        // SAFETY: contexts come from the driver; a destroyed one is refused by it.
        check("cuCtxSetCurrent", unsafe { sys::cuCtxSetCurrent(pointer(context.0)) })
    }

    fn hold(
        &self,
        context: Context,
        stream: Stream,
        ready: (usize, u32),
        done: (usize, u32),
    ) -> Result<(), Error> {
        let steps = [(Step::Write, ready.0, ready.1), (Step::Wait, done.0, done.1)];
        batch(context, stream, steps)
    }

    fn recording(&self, context: Context, stream: Stream) -> Result<Option<Recording>, Error> {
        use sys::CUstreamCaptureStatus as Status;
        let _current = Current::new(context)?;
        let (mut status, mut id) = (Status::CU_STREAM_CAPTURE_STATUS_NONE, 0);
        let mut graph = std::ptr::null_mut();
        // SAFETY: places for the results; those of the dependencies may be left out.
        let asked = unsafe {
            sys::cuStreamGetCaptureInfo_v2(
                pointer(stream.0),
                &raw mut status,
                &raw mut id,
                &raw mut graph,
                std::ptr::null_mut(),
                std::ptr::null_mut(),
            )
        };
        check("cuStreamGetCaptureInfo", asked)?;
        match status {
            Status::CU_STREAM_CAPTURE_STATUS_NONE => Ok(None),
            Status::CU_STREAM_CAPTURE_STATUS_ACTIVE => {
                let graph = graph.cast::<c_void>().expose_provenance();
                Ok(Some(Recording { id, graph }))
            }
            Status::CU_STREAM_CAPTURE_STATUS_INVALIDATED => Err(result::failed(
                "cuStreamGetCaptureInfo",
                sys::CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED,
            )),
        }
    }

    fn hold_in_graph(
        &self,
        context: Context,
        stream: Stream,
        ready: usize,
        done: usize,
    ) -> Result<(), Error> {
        let steps = [(Step::Write, ready, 1), (Step::Wait, done, 1), (Step::Write, done, 0)];
        batch(context, stream, steps)
    }

    fn watch(&self, context: Context, graph: usize, hooks: GraphHooks) -> Result<(), Error> {
        /// `CU_USER_OBJECT_NO_DESTRUCTOR_SYNC`, and `CU_GRAPH_USER_OBJECT_MOVE`.
        const NO_SYNC: u32 = 1;
        const MOVE: u32 = 1;
        let _current = Current::new(context)?;
        let graph = pointer(graph);
        let (mut node, mut object) = (std::ptr::null_mut(), std::ptr::null_mut());
        let data = pointer::<c_void>(hooks.data);
        let launched = sys::CUDA_HOST_NODE_PARAMS { fn_: Some(hooks.launched), userData: data };
        // SAFETY: a graph that is being recorded; places for the results; the caller vouches for the functions.
        unsafe {
            let gone = Some(hooks.gone);
            check(
                "cuUserObjectCreate",
                sys::cuUserObjectCreate(&raw mut object, data, gone, 1, NO_SYNC),
            )?;
            check(
                "cuGraphAddHostNode",
                sys::cuGraphAddHostNode(
                    &raw mut node,
                    graph,
                    std::ptr::null(),
                    0,
                    &raw const launched,
                ),
            )?;
            check("cuGraphRetainUserObject", sys::cuGraphRetainUserObject(graph, object, 1, MOVE))
        }
    }

    fn exchange_capture_mode(&self, mode: CaptureMode) -> Result<CaptureMode, Error> {
        use sys::CUstreamCaptureMode as Mode;
        let mut word = match mode {
            CaptureMode::Global => Mode::CU_STREAM_CAPTURE_MODE_GLOBAL,
            CaptureMode::ThreadLocal => Mode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
            CaptureMode::Relaxed => Mode::CU_STREAM_CAPTURE_MODE_RELAXED,
        };
        // SAFETY: the new mode, and a place for the old one.
        check("cuThreadExchangeStreamCaptureMode", unsafe {
            sys::cuThreadExchangeStreamCaptureMode(&raw mut word)
        })?;
        Ok(match word {
            Mode::CU_STREAM_CAPTURE_MODE_GLOBAL => CaptureMode::Global,
            Mode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL => CaptureMode::ThreadLocal,
            Mode::CU_STREAM_CAPTURE_MODE_RELAXED => CaptureMode::Relaxed,
        })
    }

    fn finished(&self, _: Context, event: Event) -> Result<bool, Error> {
        // SAFETY: made by this driver; needs no current context.
        match unsafe { sys::cuEventQuery(pointer(event.0)) } {
            sys::CUresult::CUDA_ERROR_NOT_READY => Ok(false),
            status => check("cuEventQuery", status).map(|()| true),
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
        let _current = Current::new(context)?;
        // SAFETY: the caller vouches for the memory (see the trait).
        check("cuMemcpyAsync", unsafe {
            sys::cuMemcpyAsync(into as u64, from as u64, len_bytes, pointer(stream.0))
        })
    }

    fn allocate_pinned(&self, context: Context, len_bytes: usize) -> Result<usize, Error> {
        let _current = Current::new(context)?;
        let mut memory = std::ptr::null_mut();
        // SAFETY: a place for the result.
        check("cuMemHostAlloc", unsafe {
            sys::cuMemHostAlloc(&raw mut memory, len_bytes, PORTABLE)
        })?;
        Ok(memory.expose_provenance())
    }

    fn free_pinned(&self, context: Context, address: usize) {
        let Ok(_current) = Current::new(context) else { return };
        // SAFETY: allocated by `allocate_pinned`, and the caller is done with it.
        let _ = unsafe { sys::cuMemFreeHost(pointer(address)) };
    }

    fn pin(&self, context: Context, address: usize, len_bytes: usize) -> Result<(), Error> {
        let _current = Current::new(context)?;
        // SAFETY: the caller's memory, which stays mapped until `unpin`.
        check("cuMemHostRegister", unsafe {
            sys::cuMemHostRegister_v2(pointer(address), len_bytes, PORTABLE)
        })
    }

    fn unpin(&self, context: Context, address: usize) {
        let Ok(_current) = Current::new(context) else { return };
        // SAFETY: registered by `pin`, and the caller is done with it.
        let _ = unsafe { sys::cuMemHostUnregister(pointer(address)) };
    }

    fn allocate(&self, context: Context, len_bytes: usize) -> Result<usize, Error> {
        let _current = Current::new(context)?;
        let mut memory = 0;
        // SAFETY: a place for the result.
        check("cuMemAlloc", unsafe { sys::cuMemAlloc_v2(&raw mut memory, len_bytes) })?;
        Ok(memory as usize)
    }

    fn free(&self, context: Context, address: usize) {
        let Ok(_current) = Current::new(context) else { return };
        // SAFETY: allocated by `allocate`, and the caller is done with it.
        let _ = unsafe { sys::cuMemFree_v2(address as u64) };
    }

    fn kernel(&self, context: Context, name: &CStr) -> Result<Function, Error> {
        let image = ptx::module(name)?;
        let _current = Current::new(context)?;
        let (mut module, mut function) = (std::ptr::null_mut(), std::ptr::null_mut());
        // SAFETY: complete text with a zero byte at its end; places for the results. The module stays loaded.
        unsafe {
            check(
                "cuModuleLoadData",
                sys::cuModuleLoadData(&raw mut module, image.as_ptr().cast()),
            )?;
            check(
                "cuModuleGetFunction",
                sys::cuModuleGetFunction(&raw mut function, module, name.as_ptr()),
            )?;
        }
        // Otherwise its first launch may load it, and wait for all streams then.
        result::load_function(function.expose_provenance())?;
        Ok(Function(function.expose_provenance()))
    }

    fn launch(&self, context: Context, stream: Stream, launch: &Launch<'_>) -> Result<(), Error> {
        let _current = Current::new(context)?;
        let mut arguments = [launch.argument.as_ptr().cast_mut().cast::<c_void>()];
        // SAFETY: one argument of the kernel's size; the caller vouches for the memory it points to.
        check("cuLaunchKernel", unsafe {
            sys::cuLaunchKernel(
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
        let _current = Current::new(context)?;
        let mut handle = sys::CUipcMemHandle { reserved: [0; 64] };
        // SAFETY: a place for the result.
        check("cuIpcGetMemHandle", unsafe {
            sys::cuIpcGetMemHandle(&raw mut handle, base as u64)
        })?;
        Ok(IpcHandle(handle.reserved.map(|byte| byte as u8)))
    }

    fn open(&self, context: Context, handle: &IpcHandle) -> Result<usize, Error> {
        let _current = Current::new(context)?;
        let handle = sys::CUipcMemHandle { reserved: handle.0.map(|byte| byte as c_char) };
        let mut base = 0;
        // SAFETY: a place for the result.
        check("cuIpcOpenMemHandle", unsafe {
            sys::cuIpcOpenMemHandle_v2(&raw mut base, handle, LAZY_PEER_ACCESS)
        })?;
        Ok(base as usize)
    }

    fn close(&self, context: Context, base: usize) {
        let Ok(_current) = Current::new(context) else { return };
        // SAFETY: opened by `open`, and the caller is done with it.
        let _ = unsafe { sys::cuIpcCloseMemHandle(base as u64) };
    }
}

/// `CU_MEMORYTYPE_DEVICE`.
const DEVICE_MEMORY: u32 = 2;
