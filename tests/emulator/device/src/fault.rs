//! Stray accesses: the program touched device memory.
//!
//! The handler writes a line to stderr and to the file that `HETCCL_EMULATOR_FAULTS` names, and lets the process die by
//! the signal. Signals for other addresses go to the handler that was there before.

use std::fmt::Write;
use std::mem::MaybeUninit;
use std::path::Path;
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicUsize, Ordering};

use crate::{memory, window};

const SIGNALS: [i32; 2] = [libc::SIGSEGV, libc::SIGBUS];

/// Handlers of others that were there before, one per signal. Replaced ones are never freed: a handler may be reading.
static PREVIOUS: [AtomicPtr<libc::sigaction>; 2] =
    [const { AtomicPtr::new(std::ptr::null_mut()) }; 2];
/// The handler of another emulated driver in this process, 0 for none. Each asks the other about addresses that it does
/// not know, so it does not matter which is on top.
static OTHER_DRIVER: AtomicUsize = AtomicUsize::new(0);
/// How often the handler is in its own call chain.
static DEPTH: AtomicUsize = AtomicUsize::new(0);
/// File for the lines, -1 for none.
static FAULTS: AtomicI32 = AtomicI32::new(-1);

type Handler = extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void);

/// Installs the handlers, above those that others have installed since the last call.
pub fn install() {
    if FAULTS.load(Ordering::Relaxed) < 0 {
        open_file();
    }
    for (index, signal) in SIGNALS.into_iter().enumerate() {
        let mut current = MaybeUninit::<libc::sigaction>::zeroed();
        // SAFETY: asks for the handler only; `sigaction` is plain data for which zero is valid.
        let current = unsafe {
            libc::sigaction(signal, std::ptr::null(), current.as_mut_ptr());
            current.assume_init()
        };
        if current.sa_sigaction == handle as Handler as usize {
            continue;
        }
        if is_emulator(current.sa_sigaction) {
            OTHER_DRIVER.store(current.sa_sigaction, Ordering::Release);
        } else {
            PREVIOUS[index].store(Box::into_raw(Box::new(current)), Ordering::Release);
        }
        // SAFETY: `sigaction` is plain data, and the handler has the signature that SA_SIGINFO asks for.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = handle as Handler as usize;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_NODEFER;
            libc::sigemptyset(&mut action.sa_mask);
            libc::sigaction(signal, &action, std::ptr::null_mut());
        }
    }
}

/// Is it the handler of another emulated driver?
fn is_emulator(handler: usize) -> bool {
    let mut found = MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: dladdr takes any address and fills the structure when it knows the object, whose name then is a string.
    let name = unsafe {
        if libc::dladdr(handler as *const libc::c_void, found.as_mut_ptr()) == 0 {
            return false;
        }
        let found = found.assume_init();
        if found.dli_fname.is_null() {
            return false;
        }
        std::ffi::CStr::from_ptr(found.dli_fname).to_string_lossy().into_owned()
    };
    let name = Path::new(&name).file_name().and_then(|name| name.to_str()).unwrap_or_default();
    ["libcuda.so", "libamdhip64.so", "libze_loader.so"]
        .iter()
        .any(|library| name.starts_with(library))
}

fn open_file() {
    let Ok(path) = std::env::var("HETCCL_EMULATOR_FAULTS") else { return };
    match std::fs::OpenOptions::new().create(true).append(true).open(&path) {
        Ok(file) => FAULTS.store(std::os::fd::IntoRawFd::into_raw_fd(file), Ordering::Relaxed),
        Err(error) => {
            eprintln!("hetccl emulator: cannot open HETCCL_EMULATOR_FAULTS={path}: {error}")
        }
    }
}

/// The handler. Calls nothing that allocates or waits for a lock.
extern "C" fn handle(signal: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel passes a filled structure to SA_SIGINFO handlers.
    let address = unsafe { (*info).si_addr() } as usize;
    if !window::range().contains(&address) {
        return pass_on(signal, info, context);
    }
    let mut line = Line::default();
    let _ = write!(line, "hetccl emulator: stray access to device memory at {address:#x} ");
    let _ = match memory::describe(address) {
        Some((number, bytes)) => writeln!(line, "(allocation {number}, {bytes} bytes)"),
        None => writeln!(line, "(no allocation there: freed, past the end, or never allocated)"),
    };
    line.write_to(libc::STDERR_FILENO);
    let file = FAULTS.load(Ordering::Relaxed);
    if file >= 0 {
        line.write_to(file);
    }
    die(signal);
}

/// Sets the default action; the instruction runs again on return and kills the process.
fn die(signal: i32) {
    // SAFETY: sigaction with plain data is safe in a signal handler.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = libc::SIG_DFL;
        libc::sigaction(signal, &action, std::ptr::null_mut());
    }
}

/// To the other driver; when that does not know the address either and asks back, to whoever was there before.
fn pass_on(signal: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    let depth = DEPTH.fetch_add(1, Ordering::Relaxed);
    let other = OTHER_DRIVER.load(Ordering::Acquire);
    let previous = PREVIOUS[usize::from(signal == SIGNALS[1])].load(Ordering::Acquire);
    // SAFETY: a handler of another driver has the signature of this one; previous ones are stored by `install` and never
    // freed, and one that is neither default nor ignore has the signature that its flags say.
    unsafe {
        match previous.as_ref().map(|previous| (previous.sa_sigaction, previous.sa_flags)) {
            _ if depth == 0 && other != 0 => {
                std::mem::transmute::<usize, Handler>(other)(signal, info, context);
            }
            // From here back to here without end.
            _ if depth > 1 => die(signal),
            None | Some((libc::SIG_DFL | libc::SIG_IGN, _)) => die(signal),
            Some((handler, flags)) if flags & libc::SA_SIGINFO != 0 => {
                std::mem::transmute::<usize, Handler>(handler)(signal, info, context);
            }
            Some((handler, _)) => {
                std::mem::transmute::<usize, extern "C" fn(i32)>(handler)(signal);
            }
        }
    }
    DEPTH.fetch_sub(1, Ordering::Relaxed);
}

/// Text without allocation.
struct Line {
    text: [u8; 256],
    bytes: usize,
}

impl Default for Line {
    fn default() -> Line {
        Line { text: [0; 256], bytes: 0 }
    }
}

impl Line {
    fn write_to(&self, descriptor: i32) {
        // SAFETY: the bytes are initialised, and write is safe in a signal handler.
        unsafe { libc::write(descriptor, self.text.as_ptr().cast(), self.bytes) };
    }
}

impl Write for Line {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        let end = (self.bytes + text.len()).min(self.text.len());
        let taken = end - self.bytes;
        self.text[self.bytes..end].copy_from_slice(&text.as_bytes()[..taken]);
        self.bytes = end;
        Ok(())
    }
}
