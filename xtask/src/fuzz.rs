//! `cargo xtask fuzz`: the targets of `fuzz/` under libFuzzer, with coverage, on stable Rust.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::command::{self, step};

/// Which targets, how long.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Minutes for each target
    #[arg(long, default_value_t = 1.0)]
    minutes: f64,
    /// Only these targets
    #[arg(long, value_delimiter = ',')]
    targets: Vec<String>,
    /// Every choice follows from it
    #[arg(long, default_value_t = 1)]
    seed: u32,
}

/// What LLVM puts in for coverage, and what a debug build would check.
const FLAGS: [&str; 7] = [
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
    "-Cdebug-assertions",
    "-Coverflow-checks",
];
/// An input that takes longer is a finding, and so is a process of this size.
const LIMITS: [&str; 3] = ["-timeout=10", "-rss_limit_mb=2048", "-max_len=16384"];

/// Fuzzes each target in turn; whether nothing was found.
///
/// # Errors
/// The fuzzer can't be built or started.
pub fn run(args: &Args) -> Result<bool> {
    let known = names()?;
    if let Some(unknown) = args.targets.iter().find(|name| !known.contains(name)) {
        bail!("no target {unknown}; there are {}", known.join(", "));
    }
    let folder = command::target_dir().join("fuzz");
    let program = step("building the fuzzer", || build(&folder))?;
    let mut well = true;
    for name in known.iter().filter(|name| args.targets.is_empty() || args.targets.contains(name)) {
        well &= fuzz(&program, &folder, name, args)?;
    }
    Ok(well)
}

/// The targets, which are the folders of what is kept.
fn names() -> Result<Vec<String>> {
    let folder = command::root().join("fuzz/corpus");
    let entries = std::fs::read_dir(&folder).with_context(|| folder.display().to_string())?;
    let mut names: Vec<String> =
        entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort();
    Ok(names)
}

fn build(folder: &Path) -> Result<PathBuf> {
    let about = command::capture(Command::new("rustc").arg("-vV"))?;
    let host = about.lines().find_map(|line| line.strip_prefix("host: "));
    let host = host.context("rustc -vV does not say its host")?;
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut build = Command::new(cargo);
    // With a target named, build scripts and macros are left as they are.
    build.current_dir(command::root()).args(["build", "--release", "--target", host]);
    build.args(["--package", "hetccl-fuzz", "--features", "libfuzzer", "--target-dir"]).arg(folder);
    build.env("RUSTFLAGS", FLAGS.join(" ")).env("CARGO_PROFILE_RELEASE_LTO", "off");
    command::run(&mut build)?;
    Ok(folder.join(host).join("release/any"))
}

fn fuzz(program: &Path, folder: &Path, name: &str, args: &Args) -> Result<bool> {
    let (found, findings) = (folder.join("corpus").join(name), folder.join("findings").join(name));
    for folder in [&found, &findings] {
        std::fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    }
    let mut run = Command::new(program);
    run.env("HETCCL_FUZZ_TARGET", name).args(LIMITS);
    run.arg(format!("-max_total_time={}", (args.minutes * 60.0).max(1.0) as u64));
    run.args([format!("-seed={}", args.seed), "-print_final_stats=1".into()]);
    run.arg(format!("-artifact_prefix={}/", findings.display()));
    run.arg(&found).arg(command::root().join("fuzz/corpus").join(name));
    let output = command::output(&mut run)?;
    let text = String::from_utf8_lossy(&output.stderr);
    println!("{name:<20} {}", summary(&text));
    if !output.status.success() {
        println!("FAILED {name}: {}", command::tail(&output));
    }
    Ok(output.status.success())
}

/// Inputs, places that were reached, and inputs worth keeping, as libFuzzer says them.
fn summary(text: &str) -> String {
    let stat = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim().parse::<u64>().ok()
    };
    let covered = text.lines().rev().find_map(|line| {
        let mut words = line.split_whitespace().skip_while(|&word| word != "cov:");
        words.nth(1)?.parse::<u64>().ok()
    });
    format!(
        "{} inputs, {} places reached, {} inputs kept",
        stat("stat::number_of_executed_units:").unwrap_or(0),
        covered.unwrap_or(0),
        stat("stat::new_units_added:").unwrap_or(0)
    )
}

#[cfg(test)]
mod tests {
    #[test]
    fn counts_are_read() {
        let text = "#2 INITED cov: 11 ft: 12 corp: 1/1b exec/s: 0 rss: 30Mb\n\
                    #9 DONE   cov: 41 ft: 52 corp: 3/9b\nstat::number_of_executed_units: 9\n\
                    stat::new_units_added:          2\n";
        assert_eq!(super::summary(text), "9 inputs, 41 places reached, 2 inputs kept");
    }
}
