//! `cargo xtask test`: everything CI runs.

use std::process::Command;

use anyhow::Result;

use crate::command::{self, step};
use crate::{install, mpi4py, setup};

/// Options.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Leave mpi4py's suite out
    #[arg(long)]
    pub without_mpi4py: bool,
}

/// A part of the tests and how it went.
struct Part {
    name: String,
    passed: usize,
    failed: usize,
    skipped: usize,
}

/// Runs every part, also after one has failed. Whether all passed.
///
/// # Errors
/// When the set-up or the build fails.
pub fn run(args: &Args) -> Result<bool> {
    step("set-up", || setup::packages(&[setup::BUILD, setup::TEST, setup::KERNELS]))?;
    setup::optional(setup::SPIRV, "kernels in SPIR-V");
    let prefix = command::target_dir().join("prefix");
    step("building and installing", || install::release(&prefix))?;
    let mut parts = vec![step("cargo test", cargo_test)?];
    if !args.without_mpi4py {
        // `test-mpi4py` runs every number of ranks over both wires, and all of the suite.
        let runs: [(usize, &str, &[&str]); 2] = [(3, "ucx", &[]), (2, "pml", &["test_cco_"])];
        for (ranks, transport, modules) in runs {
            let what = format!("mpi4py, {ranks} ranks, {transport}");
            let options = mpi4py::Args {
                ranks: vec![ranks],
                transport: vec![transport.to_owned()],
                quick: true,
                module: modules.iter().map(|&module| module.to_owned()).collect(),
            };
            let passed = step(&what, || mpi4py::compare(&options, &prefix));
            let ok = match passed {
                Ok(ok) => ok,
                Err(error) => {
                    println!("{what}: {error:#}");
                    false
                }
            };
            parts.push(Part {
                name: what,
                passed: usize::from(ok),
                failed: usize::from(!ok),
                skipped: 0,
            });
        }
    }
    Ok(summary(&parts))
}

fn summary(parts: &[Part]) -> bool {
    println!();
    for part in parts {
        println!(
            "{:<28} {} passed, {} failed, {} skipped",
            part.name, part.passed, part.failed, part.skipped
        );
    }
    let sum = |f: fn(&Part) -> usize| parts.iter().map(f).sum::<usize>();
    let failed = sum(|p| p.failed);
    println!("{} passed, {failed} failed, {} skipped", sum(|p| p.passed), sum(|p| p.skipped));
    failed == 0
}

/// All Rust tests of the workspace, one after the other so that timings and CPUs are not fought over.
fn cargo_test() -> Result<Part> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut test = Command::new(cargo);
    test.current_dir(command::root());
    test.args(["test", "--workspace", "--no-fail-fast", "--", "--test-threads=1", "--nocapture"]);
    let output = command::output(&mut test)?;
    let text = String::from_utf8_lossy(&output.stdout);
    let mut part = Part { name: "cargo test".into(), passed: 0, failed: 0, skipped: 0 };
    for line in text.lines() {
        if line.contains("SKIPPED") {
            part.skipped += 1;
            println!("    {line}");
        }
        if line.starts_with("verified") || line.starts_with("simulated") {
            println!("    {line}");
        }
        if let Some(rest) = line.strip_prefix("test result: ") {
            let number = |word: &str| {
                let before = rest.split(word).next().unwrap_or_default();
                before.split_whitespace().last().and_then(|n| n.parse::<usize>().ok()).unwrap_or(0)
            };
            part.passed += number(" passed");
            part.failed += number(" failed");
        }
    }
    if !output.status.success() {
        println!("{}", String::from_utf8_lossy(&output.stdout));
        println!("{}", String::from_utf8_lossy(&output.stderr));
        part.failed = part.failed.max(1);
    }
    Ok(part)
}
