//! Modules and kernels.
//!
//! An image that is a shared object for this machine is loaded as it is. For any other (PTX, fat binaries, code objects)
//! kernels come by name from the shared object that `HETCCL_EMULATOR_KERNELS` names. The crate's documentation has the
//! interface of a kernel.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::fs::File;
use std::io::Write;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::Arc;

use crate::stream::Stream;
use crate::{Code, memory, settings};

const ELF_HEADER_BYTES: usize = 64;
const MOST_PARAMETERS: usize = 32;
const MOST_PARAMETER_BYTES: usize = 4096;
const MOST_THREADS_PER_BLOCK: u64 = 1024;

#[cfg(target_arch = "x86_64")]
const HOST_MACHINE: u16 = 62;
#[cfg(target_arch = "aarch64")]
const HOST_MACHINE: u16 = 183;

type Function = unsafe extern "C" fn(*const *mut c_void, *const u32, *const u32);

/// A loaded image.
#[derive(Debug)]
pub struct Module {
    library: usize,
    /// The image's file: another file must not get its number, which is part of the name that the loader goes by.
    _file: Option<OwnedFd>,
}

impl Module {
    /// Loads an image from memory.
    ///
    /// # Safety
    ///
    /// `image` points to a whole image: text that ends with 0, or a binary whose header says its size.
    pub unsafe fn from_memory(image: *const u8) -> Result<Arc<Module>, Code> {
        if image.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        // SAFETY: the caller promises a whole image, so as many bytes as its header says.
        match unsafe { elf_bytes(image) } {
            // SAFETY: as above.
            Some(bytes) => Module::from_object(unsafe { std::slice::from_raw_parts(image, bytes) }),
            None => Module::elsewhere(),
        }
    }

    /// Loads an image from a file.
    pub fn from_file(path: &str) -> Result<Arc<Module>, Code> {
        Module::from_bytes(&std::fs::read(path).map_err(|_| Code::FILE_NOT_FOUND)?)
    }

    /// Loads an image whose size is known.
    pub fn from_bytes(image: &[u8]) -> Result<Arc<Module>, Code> {
        // SAFETY: longer than what is read.
        if image.len() >= ELF_HEADER_BYTES && unsafe { is_host_object(image.as_ptr()) } {
            Module::from_object(image)
        } else {
            Module::elsewhere()
        }
    }

    fn from_object(object: &[u8]) -> Result<Arc<Module>, Code> {
        // SAFETY: a terminated name; the descriptor is new.
        let file = unsafe {
            match libc::memfd_create(c"hetccl-emulator-module".as_ptr(), libc::MFD_CLOEXEC) {
                -1 => return Err(Code::OPERATING_SYSTEM),
                descriptor => OwnedFd::from_raw_fd(descriptor),
            }
        };
        let mut file = File::from(file);
        file.write_all(object).map_err(|_| Code::OPERATING_SYSTEM)?;
        let library = open(&format!("/proc/self/fd/{}", file.as_raw_fd()))?;
        Ok(Arc::new(Module { library, _file: Some(file.into()) }))
    }

    fn elsewhere() -> Result<Arc<Module>, Code> {
        let library = match &settings::get().kernels {
            Some(path) => open(path)?,
            None => 0,
        };
        Ok(Arc::new(Module { library, _file: None }))
    }

    /// The kernel `name`.
    pub fn kernel(self: &Arc<Module>, name: &str) -> Result<Arc<Kernel>, Code> {
        if self.library == 0 {
            eprintln!(
                "hetccl emulator: kernel {name}: this image is not for the host, and HETCCL_EMULATOR_KERNELS is not set"
            );
            return Err(Code::NOT_FOUND);
        }
        let function = self.symbol(name).ok_or(Code::NOT_FOUND)?;
        let sizes = self.symbol(&format!("{name}_parameter_bytes")).map(|sizes| {
            let sizes = sizes as *const u32;
            // SAFETY: by the interface of kernels, an array that ends with 0.
            (0..)
                .map(|index| unsafe { *sizes.add(index) } as usize)
                .take_while(|&bytes| bytes > 0)
                .collect()
        });
        // SAFETY: by the interface of kernels, an exported function of this name has this signature.
        let function = unsafe { std::mem::transmute::<usize, Function>(function) };
        Ok(Arc::new(Kernel { name: name.to_owned(), function, sizes, _module: self.clone() }))
    }

    /// A symbol of the object itself, not of what it depends on: a kernel may be called `write`.
    fn symbol(&self, name: &str) -> Option<usize> {
        let name = CString::new(name).ok()?;
        let mut found = MaybeUninit::<libc::Dl_info>::zeroed();
        // SAFETY: the library is open; dladdr fills the structure, and dlinfo the pointer to the loader's own record.
        unsafe {
            let symbol = libc::dlsym(self.library as *mut c_void, name.as_ptr());
            if symbol.is_null() || libc::dladdr(symbol, found.as_mut_ptr()) == 0 {
                return None;
            }
            let mut map: *mut LinkMap = std::ptr::null_mut();
            libc::dlinfo(self.library as *mut c_void, libc::RTLD_DI_LINKMAP, (&raw mut map).cast());
            let own = !map.is_null() && found.assume_init().dli_fbase as usize == (*map).address;
            own.then_some(symbol as usize)
        }
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        if self.library != 0 {
            // SAFETY: opened by this module; kernels and launches hold a reference to it.
            unsafe { libc::dlclose(self.library as *mut c_void) };
        }
    }
}

/// The beginning of the loader's public record of an object.
#[repr(C)]
struct LinkMap {
    address: usize,
    name: *const c_char,
}

/// A function of a module.
#[derive(Debug)]
pub struct Kernel {
    /// Its name.
    pub name: String,
    function: Function,
    sizes: Option<Vec<usize>>,
    _module: Arc<Module>,
}

/// Blocks and threads of a launch.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Blocks.
    pub grid: [u32; 3],
    /// Threads of each block.
    pub block: [u32; 3],
}

impl Shape {
    fn check(self) -> Result<(), Code> {
        let threads: u64 = self.block.iter().map(|&size| u64::from(size)).product();
        let blocks: u64 = self.grid.iter().map(|&size| u64::from(size)).product();
        if threads == 0 || blocks == 0 || threads > MOST_THREADS_PER_BLOCK {
            return Err(Code::INVALID_VALUE);
        }
        Ok(())
    }
}

impl Kernel {
    /// Enqueues a launch. The arguments are copied first.
    ///
    /// # Safety
    ///
    /// `parameters` is null or points to a pointer to each argument.
    pub unsafe fn launch(
        self: &Arc<Kernel>,
        stream: &Arc<Stream>,
        shape: Shape,
        parameters: *const *const c_void,
    ) -> Result<(), Code> {
        shape.check()?;
        // SAFETY: the caller's promise.
        let arguments = unsafe { self.copy_arguments(parameters)? };
        let kernel = self.clone();
        stream.submit(move || kernel.run(&arguments, shape))?;
        Ok(())
    }

    /// A launch to run once or more: what a command list keeps.
    pub fn operation(
        self: &Arc<Kernel>,
        arguments: Vec<Vec<u64>>,
        shape: Shape,
    ) -> Result<impl Fn() + Send + Sync + use<>, Code> {
        shape.check()?;
        let kernel = self.clone();
        Ok(move || kernel.run(&arguments, shape))
    }

    fn run(&self, arguments: &[Vec<u64>], shape: Shape) {
        let pointers: Vec<*const u64> =
            arguments.iter().map(|argument| argument.as_ptr()).collect();
        let access = memory::open_to_kernel();
        // SAFETY: by the interface of kernels; the arguments live until the kernel returns.
        unsafe {
            (self.function)(pointers.as_ptr().cast(), shape.grid.as_ptr(), shape.block.as_ptr())
        };
        drop(access);
    }

    /// # Safety
    ///
    /// As for [`Kernel::launch`].
    unsafe fn copy_arguments(
        &self,
        parameters: *const *const c_void,
    ) -> Result<Vec<Vec<u64>>, Code> {
        let sizes = match (&self.sizes, parameters.is_null()) {
            (Some(sizes), true) if !sizes.is_empty() => return Err(Code::INVALID_VALUE),
            (_, true) => return Ok(Vec::new()),
            (Some(sizes), false) => sizes.clone(),
            (None, false) => {
                let mut pointers = vec![0; MOST_PARAMETERS];
                read_memory(parameters as usize, &mut pointers)?;
                return pointers
                    .into_iter()
                    .map(|pointer| {
                        let mut argument = vec![0; MOST_PARAMETER_BYTES / 8];
                        read_memory(pointer as usize, &mut argument).map(|()| argument)
                    })
                    .collect();
            }
        };
        let copy = |(index, bytes): (usize, usize)| {
            let mut argument = vec![0_u64; bytes.div_ceil(8)];
            // SAFETY: the caller's promise, with the sizes that the kernel's object says.
            unsafe {
                std::ptr::copy_nonoverlapping(
                    (*parameters.add(index)).cast(),
                    argument.as_mut_ptr().cast::<u8>(),
                    bytes,
                )
            };
            argument
        };
        Ok(sizes.into_iter().enumerate().map(copy).collect())
    }
}

/// An argument's bytes, filled up to whole words: arguments must be aligned.
pub fn words(bytes: &[u8]) -> Vec<u64> {
    let mut words = vec![0; bytes.len().div_ceil(8)];
    for (index, &byte) in bytes.iter().enumerate() {
        words[index / 8] |= u64::from(byte) << (8 * (index % 8));
    }
    words
}

/// Reads this process's memory as far as it is readable; leaves the rest 0.
fn read_memory(address: usize, words: &mut [u64]) -> Result<(), Code> {
    let bytes = std::mem::size_of_val(words);
    let to = libc::iovec { iov_base: words.as_mut_ptr().cast(), iov_len: bytes };
    let from = libc::iovec { iov_base: address as *mut c_void, iov_len: bytes };
    // SAFETY: writes only to `words`; what cannot be read is an error, not a fault.
    let read = unsafe { libc::process_vm_readv(libc::getpid(), &to, 1, &from, 1, 0) };
    match std::io::Error::last_os_error().raw_os_error() {
        Some(libc::ENOSYS | libc::EPERM) if read < 0 => {
            eprintln!(
                "hetccl emulator: process_vm_readv is forbidden here; kernels need their <name>_parameter_bytes"
            );
            Err(Code::NOT_SUPPORTED)
        }
        _ => Ok(()),
    }
}

/// Is it a shared object for this machine?
///
/// # Safety
///
/// `image` is readable as far as its first 4 bytes, and [`ELF_HEADER_BYTES`] if it is an ELF file.
unsafe fn is_host_object(image: *const u8) -> bool {
    const CLASS: usize = 4;
    const CLASS_64: u8 = 2;
    const MACHINE: usize = 18;
    // SAFETY: the caller's promise, in the order that makes the next read possible.
    unsafe {
        (0..4).all(|index| *image.add(index) == b"\x7fELF"[index])
            && *image.add(CLASS) == CLASS_64
            && image.add(MACHINE).cast::<u16>().read_unaligned() == HOST_MACHINE
    }
}

/// Size of the shared object at `image`, if it is one for this machine: where its last segment or section table ends.
///
/// # Safety
///
/// `image` is readable as far as its first 4 bytes, and as its segment table if it is an ELF file.
unsafe fn elf_bytes(image: *const u8) -> Option<usize> {
    // SAFETY: the caller's promise; all fields are plain numbers.
    unsafe {
        if !is_host_object(image) {
            return None;
        }
        let half = |offset: usize| usize::from(image.add(offset).cast::<u16>().read_unaligned());
        let word = |offset: usize| image.add(offset).cast::<u64>().read_unaligned() as usize;
        let sections_end = word(40) + half(58) * half(60);
        let (table, entry_bytes) = (word(32), half(54));
        let segment_end = |index: usize| {
            let entry = table + index * entry_bytes;
            word(entry + 8) + word(entry + 32)
        };
        (0..half(56)).map(segment_end).chain([sections_end]).max()
    }
}

fn open(path: &str) -> Result<usize, Code> {
    let path = CString::new(path).map_err(|_| Code::INVALID_VALUE)?;
    // SAFETY: a terminated path; the object's initialisers are the program's own.
    let library =
        unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL as c_int) };
    if library.is_null() {
        // SAFETY: after a failure, dlerror returns a terminated string.
        let error = unsafe { CStr::from_ptr(libc::dlerror()) }.to_string_lossy().into_owned();
        eprintln!("hetccl emulator: cannot load kernels: {error}");
        return Err(Code::INVALID_IMAGE);
    }
    Ok(library as usize)
}
