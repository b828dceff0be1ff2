//! The last error's text, and lines on standard error as NCCL_DEBUG asks for them.

use std::ffi::c_char;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, Ordering};

use crate::settings;

const TEXT_BYTES: usize = 1024;

static LAST_ERROR: [AtomicU8; TEXT_BYTES] = [const { AtomicU8::new(0) }; TEXT_BYTES];

/// How much is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Level {
    Nothing,
    Version,
    Warn,
    Info,
}

fn level() -> Level {
    static LEVEL: OnceLock<Level> = OnceLock::new();
    *LEVEL.get_or_init(|| {
        match settings::variable("NCCL_DEBUG").unwrap_or_default().to_uppercase().as_str() {
            "VERSION" => Level::Version,
            "WARN" => Level::Warn,
            "INFO" | "ABORT" | "TRACE" => Level::Info,
            _ => Level::Nothing,
        }
    })
}

/// Keeps the text of the last error, and tells it.
pub(crate) fn failed(function: &str, text: &str) {
    crate::delegate::own_failure();
    let text = format!("{function}: {text}");
    keep(&text);
    line(Level::Warn, &text);
}

/// Keeps a text as that of the last error.
pub(crate) fn keep(text: &str) {
    for (byte, place) in text.bytes().chain([0]).zip(&LAST_ERROR[..TEXT_BYTES - 1]) {
        place.store(byte, Ordering::Relaxed);
    }
}

/// Keeps the text of what ended a communicator while nobody called anything, and tells it whatever NCCL_DEBUG says: the
/// streams that waited go on.
pub(crate) fn broken(text: &str) {
    crate::delegate::own_failure();
    keep(text);
    line(Level::Nothing, text);
}

/// The last error's text, with its 0; overwritten by the next one.
pub(crate) fn last_error() -> *const c_char {
    LAST_ERROR.as_ptr().cast()
}

/// A line, where NCCL_DEBUG asks for it, on standard error or in the file that NCCL_DEBUG_FILE names.
pub(crate) fn line(at: Level, text: &str) {
    if level() < at {
        return;
    }
    let word = if at <= Level::Warn { "WARN" } else { "INFO" };
    let line = format!("hetccl[{}] NCCL {word} {text}\n", std::process::id());
    let written = match file() {
        Some(file) => (&*file).write_all(line.as_bytes()),
        None => std::io::stderr().write_all(line.as_bytes()),
    };
    // There is no other place to tell that it could not be told.
    drop(written);
}

/// NCCL_DEBUG_FILE, in which `%h` stands for the host and `%p` for the process.
fn file() -> Option<&'static File> {
    static FILE: OnceLock<Option<File>> = OnceLock::new();
    let open = || {
        let pattern = settings::variable("NCCL_DEBUG_FILE").filter(|name| !name.is_empty())?;
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let name =
            pattern.replace("%h", host.trim()).replace("%p", &std::process::id().to_string());
        OpenOptions::new().create(true).append(true).open(name).ok()
    };
    FILE.get_or_init(open).as_ref()
}
