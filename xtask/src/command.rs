//! Starting programs: with a time limit, with an error that says what failed.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

/// The workspace's folder.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().map(Path::to_owned).unwrap_or_default()
}

/// Cargo's folder for built things.
pub fn target_dir() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from)
}

/// Whether a program is found on PATH.
pub fn exists(program: &str) -> bool {
    std::env::var_os("PATH")
        .is_some_and(|path| std::env::split_paths(&path).any(|dir| dir.join(program).is_file()))
}

/// Whether this is root.
pub fn is_root() -> bool {
    capture(Command::new("id").arg("-u")).is_ok_and(|text| text.trim() == "0")
}

/// Runs a command to its end, its output on the terminal.
///
/// # Errors
/// When it can't be started or does not succeed.
pub fn run(command: &mut Command) -> Result<()> {
    let line = describe(command);
    let status = command.status().with_context(|| format!("could not start: {line}"))?;
    if !status.success() {
        bail!("{line}\n  ended with {status}");
    }
    Ok(())
}

/// Runs a command and returns what it printed.
///
/// # Errors
/// When it can't be started or does not succeed; the error holds the end of its output.
pub fn capture(command: &mut Command) -> Result<String> {
    let output = output(command)?;
    if !output.status.success() {
        bail!("{}\n  ended with {}\n{}", describe(command), output.status, tail(&output));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Runs a command and returns everything, whatever its status.
///
/// # Errors
/// When it can't be started.
pub fn output(command: &mut Command) -> Result<Output> {
    let line = describe(command);
    command.stdin(Stdio::null()).output().with_context(|| format!("could not start: {line}"))
}

/// A command that is ended when it takes longer; its exit status is then 124 or 137.
pub fn limited(program: impl AsRef<OsStr>, limit: Duration) -> Command {
    let mut command = Command::new("timeout");
    command.arg("--kill-after=10").arg(limit.as_secs().max(1).to_string()).arg(program);
    command
}

/// The last lines of both streams.
pub fn tail(output: &Output) -> String {
    const LINES: usize = 60;
    let mut text = String::new();
    for (name, bytes) in [("stdout", &output.stdout), ("stderr", &output.stderr)] {
        let all = String::from_utf8_lossy(bytes);
        let lines: Vec<&str> = all.lines().collect();
        if !lines.is_empty() {
            let skipped = lines.len().saturating_sub(LINES);
            text.push_str(&format!("--- {name}{}\n", if skipped > 0 { " (end)" } else { "" }));
            text.push_str(&lines[skipped..].join("\n"));
            text.push('\n');
        }
    }
    text
}

/// A command as one would type it.
pub fn describe(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ")
}

/// Says what is being done, and afterwards how long it took.
///
/// # Errors
/// Those of `work`.
pub fn step<T>(what: &str, work: impl FnOnce() -> Result<T>) -> Result<T> {
    println!("==> {what}");
    let start = Instant::now();
    let result = work();
    println!("    {what}: {:.0} s", start.elapsed().as_secs_f64());
    result
}
