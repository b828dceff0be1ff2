//! Buffers in host, CUDA or ROCm memory, by the drivers' own functions, as a user's program has them.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};

use anyhow::{Context, Result, bail};

use crate::foreign::Foreign;

/// Where buffers are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Memory {
    Host,
    Cuda,
    Rocm,
}

type Status = c_int;
type Address = u64;

/// What is used of a driver. CUDA and HIP agree on these signatures: an address is as wide as a pointer.
struct Driver {
    name: &'static str,
    alloc: unsafe extern "C" fn(*mut Address, usize) -> Status,
    free: unsafe extern "C" fn(Address) -> Status,
    put: unsafe extern "C" fn(Address, *const c_void, usize) -> Status,
    get: unsafe extern "C" fn(*mut c_void, Address, usize) -> Status,
    synchronize: unsafe extern "C" fn() -> Status,
    stream_create: unsafe extern "C" fn(*mut *mut c_void, c_uint) -> Status,
    stream_query: unsafe extern "C" fn(*mut c_void) -> Status,
    copy: unsafe extern "C" fn(Address, Address, usize) -> Status,
    pin: unsafe extern "C" fn(*mut *mut c_void, usize, c_uint) -> Status,
    unpin: unsafe extern "C" fn(*mut c_void) -> Status,
    pci_bus_id: unsafe extern "C" fn(*mut c_char, c_int, c_int) -> Status,
    /// The driver's number of the device.
    device: c_int,
    _library: Foreign,
}

/// The place that a rank's buffers are in: the host, or one device.
pub(crate) struct Place {
    driver: Option<Driver>,
}

/// A piece of memory.
pub(crate) struct Buffer<'a> {
    place: &'a Place,
    host: Vec<u64>,
    address: Address,
    bytes: usize,
}

impl Place {
    /// Opens the driver and takes the device of a rank: the one of its number on this host, in turn.
    pub(crate) fn new(memory: Memory, local_rank: usize) -> Result<Place> {
        let opened = match memory {
            Memory::Host => return Ok(Place { driver: None }),
            Memory::Cuda => cuda(local_rank),
            Memory::Rocm => rocm(local_rank),
        };
        let driver = opened.with_context(|| {
            let name = format!("{memory:?}").to_lowercase();
            format!("no GPU for --memory {name} here; hetccl doctor says what this host has")
        })?;
        Ok(Place { driver: Some(driver) })
    }

    /// Memory of this place, at least one byte.
    pub(crate) fn buffer(&self, bytes: usize) -> Result<Buffer<'_>> {
        let mut buffer = Buffer { place: self, host: Vec::new(), address: 0, bytes };
        match &self.driver {
            None => {
                buffer.host = vec![0; bytes.div_ceil(8).max(1)];
                buffer.address = buffer.host.as_mut_ptr() as Address;
            }
            Some(driver) => {
                // SAFETY: the result is ours; the context is current.
                let status = unsafe { (driver.alloc)(&mut buffer.address, bytes.max(1)) };
                driver.check(status, &format!("allocating {bytes} bytes"))?;
            }
        }
        Ok(buffer)
    }

    /// A stream that is not ordered with others; null on the host.
    pub(crate) fn stream(&self) -> Result<*mut c_void> {
        let mut stream = std::ptr::null_mut();
        if let Some(driver) = &self.driver {
            const NON_BLOCKING: c_uint = 1;
            // SAFETY: the result is ours.
            let status = unsafe { (driver.stream_create)(&mut stream, NON_BLOCKING) };
            driver.check(status, "making a stream")?;
        }
        Ok(stream)
    }

    /// The device's PCI address, the same in every process of the host; none on the host.
    pub(crate) fn pci_bus_id(&self) -> Result<Option<String>> {
        let Some(driver) = &self.driver else { return Ok(None) };
        let mut text: [c_char; 32] = [0; 32];
        // SAFETY: a place of that length for the result, which ends with a zero.
        let text = unsafe {
            let status = (driver.pci_bus_id)(text.as_mut_ptr(), 32, driver.device);
            driver.check(status, "asking for the device's PCI address")?;
            CStr::from_ptr(text.as_ptr()).to_string_lossy().to_lowercase()
        };
        Ok(Some(text))
    }

    /// Host memory that the device copies from and to by itself; on the host any.
    pub(crate) fn pinned(&self, bytes: usize) -> Result<Pinned<'_>> {
        let mut pinned = Pinned { place: self, host: Vec::new(), at: std::ptr::null_mut(), bytes };
        match &self.driver {
            None => {
                pinned.host = vec![1; bytes.div_ceil(8).max(1)];
                pinned.at = pinned.host.as_mut_ptr().cast();
            }
            Some(driver) => {
                // SAFETY: the result is ours; the context is current.
                let status = unsafe { (driver.pin)(&mut pinned.at, bytes.max(1), 0) };
                driver.check(status, &format!("pinning {bytes} bytes of host memory"))?;
                // SAFETY: as long as that.
                unsafe { std::ptr::write_bytes(pinned.at.cast::<u8>(), 1, bytes) };
            }
        }
        Ok(pinned)
    }

    /// Whether a stream of [`Place::stream`] has done everything.
    pub(crate) fn done(&self, stream: *mut c_void) -> Result<bool> {
        // CUDA_ERROR_NOT_READY and hipErrorNotReady.
        const NOT_READY: Status = 600;
        let Some(driver) = &self.driver else { return Ok(true) };
        // SAFETY: a stream of this place.
        match unsafe { (driver.stream_query)(stream) } {
            NOT_READY => Ok(false),
            status => driver.check(status, "asking whether a stream is done").map(|()| true),
        }
    }
}

impl Buffer<'_> {
    pub(crate) fn pointer(&self) -> *mut c_void {
        self.address as *mut c_void
    }

    /// Copies bytes in, from the start.
    pub(crate) fn put(&mut self, bytes: &[u8]) -> Result<()> {
        assert!(bytes.len() <= self.bytes, "the buffer is large enough");
        let from = bytes.as_ptr().cast::<c_void>();
        match &self.place.driver {
            // SAFETY: both are at least that long, and nobody else has them.
            None => unsafe {
                std::ptr::copy_nonoverlapping(from.cast::<u8>(), self.pointer().cast(), bytes.len())
            },
            Some(driver) => {
                // SAFETY: as above.
                let status = unsafe { (driver.put)(self.address, from, bytes.len()) };
                driver.check(status, "copying to the device")?;
                // SAFETY: the context is current.
                driver.check(unsafe { (driver.synchronize)() }, "copying to the device")?;
            }
        }
        Ok(())
    }

    /// Copies bytes out, from the start.
    pub(crate) fn get(&self, bytes: &mut [u8]) -> Result<()> {
        assert!(bytes.len() <= self.bytes, "the buffer is that long");
        let to = bytes.as_mut_ptr().cast::<c_void>();
        match &self.place.driver {
            // SAFETY: both are at least that long.
            None => unsafe {
                std::ptr::copy_nonoverlapping(self.pointer().cast::<u8>(), to.cast(), bytes.len())
            },
            Some(driver) => {
                // SAFETY: as above.
                let status = unsafe { (driver.get)(to, self.address, bytes.len()) };
                driver.check(status, "copying to the host")?;
            }
        }
        Ok(())
    }
}

impl Buffer<'_> {
    /// Copies the first bytes of another buffer of the place, and waits for that.
    pub(crate) fn copy_from(&mut self, other: &Buffer, bytes: usize) -> Result<()> {
        assert!(bytes <= self.bytes.min(other.bytes), "both are that long");
        match &self.place.driver {
            // SAFETY: both are that long; two buffers do not overlap.
            None => unsafe {
                std::ptr::copy_nonoverlapping(
                    other.pointer().cast::<u8>(),
                    self.pointer().cast(),
                    bytes,
                );
            },
            Some(driver) => {
                // SAFETY: as above.
                let status = unsafe { (driver.copy)(self.address, other.address, bytes) };
                driver.check(status, "copying on the device")?;
                // SAFETY: the context is current.
                driver.check(unsafe { (driver.synchronize)() }, "copying on the device")?;
            }
        }
        Ok(())
    }
}

/// Host memory of [`Place::pinned`].
pub(crate) struct Pinned<'a> {
    place: &'a Place,
    host: Vec<u64>,
    at: *mut c_void,
    bytes: usize,
}

impl Pinned<'_> {
    pub(crate) fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: that many bytes, written when it was made; nobody else has them.
        unsafe { std::slice::from_raw_parts_mut(self.at.cast(), self.bytes) }
    }
}

impl Drop for Pinned<'_> {
    fn drop(&mut self) {
        if let Some(driver) = &self.place.driver {
            // SAFETY: pinned by this driver, freed once. What could be done about an error?
            unsafe { (driver.unpin)(self.at) };
        }
    }
}

impl Drop for Buffer<'_> {
    fn drop(&mut self) {
        if let Some(driver) = &self.place.driver {
            // SAFETY: allocated by this driver, freed once. What could be done about an error?
            unsafe { (driver.free)(self.address) };
        }
    }
}

impl Driver {
    fn check(&self, status: Status, what: &str) -> Result<()> {
        if status != 0 {
            bail!("{what}: {} says {status}", self.name);
        }
        Ok(())
    }
}

fn pick(count: c_int, local_rank: usize) -> Result<c_int> {
    if count <= 0 {
        bail!("the driver is there and sees no device");
    }
    Ok((local_rank % count as usize) as c_int)
}

fn cuda(local_rank: usize) -> Result<Driver> {
    let library = Foreign::open(&["libcuda.so.1"], false)?;
    let (mut count, mut device, mut context) = (0, 0, std::ptr::null_mut());
    // SAFETY: the signatures are those of the CUDA driver API's documentation; results are ours.
    unsafe {
        let init: unsafe extern "C" fn(c_uint) -> Status = library.get("cuInit")?;
        let get_count: unsafe extern "C" fn(*mut c_int) -> Status =
            library.get("cuDeviceGetCount")?;
        let get: unsafe extern "C" fn(*mut c_int, c_int) -> Status = library.get("cuDeviceGet")?;
        let retain: unsafe extern "C" fn(*mut *mut c_void, c_int) -> Status =
            library.get("cuDevicePrimaryCtxRetain")?;
        let current: unsafe extern "C" fn(*mut c_void) -> Status =
            library.get("cuCtxSetCurrent")?;
        let mut driver = Driver {
            name: "CUDA",
            alloc: library.get("cuMemAlloc_v2")?,
            free: library.get("cuMemFree_v2")?,
            put: library.get("cuMemcpyHtoD_v2")?,
            get: library.get("cuMemcpyDtoH_v2")?,
            synchronize: library.get("cuCtxSynchronize")?,
            stream_create: library.get("cuStreamCreate")?,
            stream_query: library.get("cuStreamQuery")?,
            copy: library.get("cuMemcpyDtoD_v2")?,
            pin: library.get("cuMemHostAlloc")?,
            unpin: library.get("cuMemFreeHost")?,
            pci_bus_id: library.get("cuDeviceGetPCIBusId")?,
            device: 0,
            _library: library,
        };
        driver.check(init(0), "cuInit")?;
        driver.check(get_count(&mut count), "cuDeviceGetCount")?;
        let number = pick(count, local_rank)?;
        driver.check(get(&mut device, number), "cuDeviceGet")?;
        driver.device = device;
        driver.check(retain(&mut context, device), "cuDevicePrimaryCtxRetain")?;
        driver.check(current(context), "cuCtxSetCurrent")?;
        Ok(driver)
    }
}

fn rocm(local_rank: usize) -> Result<Driver> {
    let names = ["libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5", "libamdhip64.so"];
    let library = Foreign::open(&names, false)?;
    let mut count = 0;
    // SAFETY: the signatures are those of HIP's documentation; results are ours.
    unsafe {
        let get_count: unsafe extern "C" fn(*mut c_int) -> Status =
            library.get("hipGetDeviceCount")?;
        let set: unsafe extern "C" fn(c_int) -> Status = library.get("hipSetDevice")?;
        let mut driver = Driver {
            name: "HIP",
            alloc: library.get("hipMalloc")?,
            free: library.get("hipFree")?,
            put: library.get("hipMemcpyHtoD")?,
            get: library.get("hipMemcpyDtoH")?,
            synchronize: library.get("hipDeviceSynchronize")?,
            stream_create: library.get("hipStreamCreateWithFlags")?,
            stream_query: library.get("hipStreamQuery")?,
            copy: library.get("hipMemcpyDtoD")?,
            pin: library.get("hipHostMalloc")?,
            unpin: library.get("hipHostFree")?,
            pci_bus_id: library.get("hipDeviceGetPCIBusId")?,
            device: 0,
            _library: library,
        };
        driver.check(get_count(&mut count), "hipGetDeviceCount")?;
        let number = pick(count, local_rank)?;
        driver.check(set(number), "hipSetDevice")?;
        driver.device = number;
        Ok(driver)
    }
}
