//! Python packages for builds and tests, each in an environment of its own under the target directory.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::command;

/// The environment that has one release of a package, made at the first call.
///
/// # Errors
/// When Python has no `venv`, or pip can't fetch the package.
pub fn with_package(folder: &Path, name: &str, release: &str) -> Result<PathBuf> {
    let environment = folder.join(format!("{name}-{release}"));
    std::fs::create_dir_all(&environment)?;
    let environment = environment.canonicalize()?;
    if !environment.join("ready").exists() {
        command::capture(Command::new("python3").args(["-m", "venv"]).arg(&environment))?;
        let mut install = Command::new(environment.join("bin/python"));
        install.args(["-m", "pip", "install", "--quiet", "--no-deps"]);
        command::capture(install.arg(format!("{name}=={release}")))
            .with_context(|| format!("pip could not fetch {name} {release}"))?;
        std::fs::write(environment.join("ready"), "")?;
    }
    Ok(environment)
}
