//! `cargo xtask test-vendor`: NVIDIA's own NCCL from PyPI, beside hetccl's library.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use crate::command::{self, step};
use crate::{nccl, python, setup};

/// The package and the release whose interface hetccl has.
const PACKAGE: (&str, &str) = ("nvidia-nccl-cu12", "2.32.3");
/// Where its library is in an environment, from the folder of Python's packages on.
const LIBRARY: &str = "nvidia/nccl/lib";
/// `ncclUnhandledCudaError`: without a GPU NCCL stops at the driver before it looks at arguments.
const NO_GPU: &str = "1";

/// Loads the library into hetccl's table, and compares result codes for bad input. Whether all is as it should be.
///
/// # Errors
/// What could not be installed, built or run.
pub fn run() -> Result<bool> {
    setup::packages(&[setup::BUILD])?;
    let ours = step("building the libraries", nccl::libraries)?;
    let environment =
        step(&format!("fetching {} {} (about 350 MB)", PACKAGE.0, PACKAGE.1), || {
            python::with_package(&command::target_dir().join("vendor"), PACKAGE.0, PACKAGE.1)
        })?;
    let theirs = environment.join("lib").read_dir()?.flatten();
    let theirs = theirs.map(|python| python.path().join("site-packages").join(LIBRARY));
    let theirs = theirs.into_iter().find(|folder| folder.is_dir()).with_context(|| {
        format!("{} has no {LIBRARY}: the package has another layout now", environment.display())
    })?;
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut test = Command::new(cargo);
    test.current_dir(command::root()).args(["test", "--quiet", "--package", "hetccl-gpu", "--lib"]);
    test.args(["the_vendors_own", "--", "--nocapture"]);
    test.env("HETCCL_TEST_LIBRARY", theirs.join("libnccl.so.2"));
    let loads = step("loading it into the table", || Ok(test.status()?.success()))?;
    let program = command::target_dir().join("nccl/codes");
    let mut cc = Command::new("cc");
    cc.args(["-O1", "-Wall", "-Wextra", "-Werror", "-o"]).arg(&program);
    command::capture(cc.arg(command::root().join("tests/c/codes.c")).arg(ours.join("libnccl.so")))?;
    let differ = differences(&codes(&program, &ours)?, &codes(&program, &theirs)?);
    for line in &differ {
        println!("{line}");
    }
    println!("{} result codes differ where NCCL gets as far as the arguments", differ.len());
    Ok(loads && differ.is_empty())
}

fn codes(program: &Path, libraries: &Path) -> Result<String> {
    command::capture(Command::new(program).env("LD_LIBRARY_PATH", libraries))
}

/// Calls that hetccl answers otherwise than NCCL, where NCCL answers at all.
fn differences(ours: &str, theirs: &str) -> Vec<String> {
    let pairs = ours.lines().zip(theirs.lines()).filter(|(ours, theirs)| {
        let code = theirs.split(' ').next();
        ours != theirs && code != Some(NO_GPU) && code != Some("died")
    });
    pairs.map(|(ours, theirs)| format!("hetccl: {ours}, NCCL: {theirs}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_answers_to_arguments_are_compared() {
        let ours = "4 a\n4 b\n4 c\n4 d";
        let theirs = "4 a\n1 b\ndied c\n5 d";
        assert_eq!(differences(ours, theirs), ["hetccl: 4 d, NCCL: 5 d"]);
    }
}
