//! The last error's text, and lines on standard error as NCCL_DEBUG asks for them.

use std::ffi::c_char;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, Ordering};

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
        match std::env::var("NCCL_DEBUG").unwrap_or_default().to_uppercase().as_str() {
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
    for (byte, place) in text.bytes().chain([0]).zip(&LAST_ERROR[..TEXT_BYTES - 1]) {
        place.store(byte, Ordering::Relaxed);
    }
    line(Level::Warn, &text);
}

/// The last error's text, with its 0; overwritten by the next one.
pub(crate) fn last_error() -> *const c_char {
    LAST_ERROR.as_ptr().cast()
}

/// A line, where NCCL_DEBUG asks for it.
pub(crate) fn line(at: Level, text: &str) {
    if level() >= at {
        let word = if at == Level::Warn { "WARN" } else { "INFO" };
        eprintln!("hetccl[{}] NCCL {word} {text}", std::process::id());
    }
}
