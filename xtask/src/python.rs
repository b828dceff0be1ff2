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

/// The environment `name` with exactly these requirements (`package==release`) and what they need, made at the first call
/// and again when they change.
///
/// # Errors
/// As for [`with_package`].
pub fn environment(name: &str, requirements: &[&str]) -> Result<PathBuf> {
    let environment = command::target_dir().join("python").join(name);
    std::fs::create_dir_all(&environment)?;
    let environment = environment.canonicalize()?;
    let wanted = requirements.join("\n");
    let ready = environment.join("ready");
    if std::fs::read_to_string(&ready).is_ok_and(|made| made == wanted) {
        return Ok(environment);
    }
    command::capture(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&environment))?;
    let mut install = Command::new(environment.join("bin/python"));
    command::capture(install.args(["-m", "pip", "install", "--quiet"]).args(requirements))
        .with_context(|| format!("pip could not fetch {wanted}"))?;
    std::fs::write(ready, wanted)?;
    Ok(environment)
}
