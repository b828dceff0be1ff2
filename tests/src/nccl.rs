//! Programs of NCCL's interface on emulated devices, one process a rank.

use std::collections::HashMap;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, OnceLock};
use std::time::Duration;

use xtask::{command, nccl};

use crate::emulation;

/// The folder with hetccl's libraries, built once.
///
/// # Panics
/// When they can't be built.
pub fn libraries() -> PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| nccl::libraries().unwrap_or_else(|error| panic!("{error:#}"))).clone()
}

/// A program of `tests/c`, compiled once for a vendor's library.
///
/// # Panics
/// With the compiler's messages.
pub fn program(name: &str, vendor: &str) -> PathBuf {
    static COMPILED: Mutex<Option<HashMap<String, PathBuf>>> = Mutex::new(None);
    let library = if vendor == "rocm" { "librccl.so" } else { "libnccl.so" };
    let libraries = libraries();
    let mut compiled = COMPILED.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let compile =
        || nccl::compile(name, &libraries, library).unwrap_or_else(|error| panic!("{error:#}"));
    let programs = compiled.get_or_insert_default();
    programs.entry(format!("{name}-{library}")).or_insert_with(compile).clone()
}

/// A program of a vendor's ranks, to be started with its arguments. The vendor is the first one. Without a limit the process is
/// the program itself, which the caller ends.
pub fn on_emulated(name: &str, vendor: &str, limit: Option<Duration>) -> Command {
    let emulation = emulation();
    let program = program(name, vendor);
    let mut run = match limit {
        Some(limit) => command::limited(program, limit),
        None => Command::new(program),
    };
    let path = format!("{}:{}", libraries().display(), emulation.drivers.display());
    run.env("LD_LIBRARY_PATH", path)
        .env("HETCCL_EMULATOR_KERNELS", &emulation.kernels)
        .env("NCCL_DEBUG", "WARN")
        .arg(vendor)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    run
}

/// A name of a file for one job, and for those beside it; nothing is there yet.
pub fn job_file() -> String {
    static FILES: AtomicU32 = AtomicU32::new(0);
    libraries();
    let number = FILES.fetch_add(1, Ordering::Relaxed);
    let name = format!("nccl/job.{}.{number}", std::process::id());
    command::target_dir().join(name).display().to_string()
}

/// Removes the files of a job.
pub fn remove_job(file: &str) {
    for name in ["", ".id", ".id2", ".end", ".grow", ".roots"] {
        let _ = std::fs::remove_file(format!("{file}{name}"));
    }
}

/// Checks that held on each rank of a job, by what its program printed.
///
/// # Panics
/// When a rank has failed, with what every rank that failed said.
pub fn all_held(what: &str, ranks: Vec<Child>) -> Vec<usize> {
    let outputs = ranks.into_iter().map(|rank| rank.wait_with_output().expect("the rank runs"));
    let outputs: Vec<Output> = outputs.collect();
    let failed = outputs.iter().enumerate().filter(|(_, output)| !output.status.success());
    let failed: Vec<String> = failed
        .map(|(rank, output)| format!("rank {rank} of {what}: {}", command::tail(output)))
        .collect();
    assert!(failed.is_empty(), "{}", failed.join("\n"));
    outputs.iter().map(|output| held(what, output)).collect()
}

/// Checks that held, by what a program printed.
///
/// # Panics
/// When it has failed.
pub fn held(what: &str, output: &Output) -> usize {
    assert!(output.status.success(), "{what}: {}", command::tail(output));
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines().filter(|line| line.starts_with("ok ")).count()
}
