//! The NCCL and RCCL libraries under the names that programs load, and the table of what they do.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::command;

/// A library: what Cargo makes, the name that programs load, the one that builds link to.
const LIBRARIES: [(&str, &str, &str); 2] =
    [("libnccl.so", "libnccl.so.2", "libnccl.so"), ("librccl.so", "librccl.so.1", "librccl.so")];

/// Builds both for use and returns the folder that has them.
///
/// # Errors
/// A failed build, or a folder that can't be written.
pub fn libraries() -> Result<PathBuf> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut build = Command::new(cargo);
    build.current_dir(command::root());
    build.args(["build", "--quiet", "--release", "--package", "hetccl-libnccl"]);
    build.args(["--package", "hetccl-librccl"]);
    command::run(&mut build)?;
    let folder = command::target_dir().join("nccl");
    lay_out(&command::target_dir().join("release"), &folder)?;
    folder.canonicalize().with_context(|| format!("finding {}", folder.display()))
}

/// Puts what was built in `from` into `folder`, with links of the unversioned names.
///
/// # Errors
/// A missing file, or a folder that can't be written.
pub fn lay_out(from: &Path, folder: &Path) -> Result<()> {
    std::fs::create_dir_all(folder).with_context(|| format!("creating {}", folder.display()))?;
    for (built, name, link) in LIBRARIES {
        let new = folder.join(format!("{name}.{}", std::process::id()));
        std::fs::copy(from.join(built), &new)
            .with_context(|| format!("copying {built} to {}", folder.display()))?;
        replace(&new, &folder.join(name))?;
        std::os::unix::fs::symlink(name, &new)?;
        replace(&new, &folder.join(link))?;
    }
    Ok(())
}

/// Compiles a program of `tests/c` for one of the libraries in the folder, which is called as builds link to it.
///
/// # Errors
/// The compiler's messages.
pub fn compile(name: &str, libraries: &Path, library: &str) -> Result<PathBuf> {
    let program = command::target_dir().join(format!("nccl/{name}-{library}"));
    let mut cc = Command::new("cc");
    cc.args(["-O2", "-Wall", "-Wextra", "-Werror", "-o"]).arg(&program);
    cc.arg(command::root().join("tests/c").join(name).with_extension("c"));
    cc.arg(libraries.join(library)).args(["-lm", "-lpthread"]);
    command::capture(&mut cc)?;
    Ok(program)
}

/// In one step, so that a running program keeps the old file.
fn replace(from: &Path, to: &Path) -> Result<()> {
    std::fs::rename(from, to).with_context(|| format!("replacing {}", to.display()))
}
