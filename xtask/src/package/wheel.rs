//! The Python wheel: program and libraries as package data, built by `build`, given its manylinux tag by auditwheel.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::{Source, copy_tree, filled};
use crate::{command, python, setup};

/// Pinned, so that the same commit gives the same bytes.
const TOOLS: [&str; 5] =
    ["build==1.3.0", "setuptools==80.9.0", "wheel==0.45.1", "auditwheel==6.4.2", "twine==6.2.0"];

pub(super) fn set_up() -> Result<()> {
    setup::packages(&[setup::WHEEL])?;
    python::environment("package", &TOOLS).map(drop)
}

/// Packs, and has auditwheel and twine look at the result.
pub(super) fn make(source: &Source) -> Result<Vec<PathBuf>> {
    let venv = python::environment("package", &TOOLS)?;
    let tool = |name: &str| {
        let mut tool = Command::new(venv.join("bin").join(name));
        tool.env("SOURCE_DATE_EPOCH", source.epoch.to_string()).current_dir(&source.work);
        tool
    };
    let project = source.work.join("project");
    copy_tree(&command::root().join("packaging/python"), &project)?;
    let pyproject = filled(Path::new("python/pyproject.toml"), &[("VERSION", source.version)])?;
    std::fs::write(project.join("pyproject.toml"), pyproject)?;
    for document in ["LICENSE-MIT", "LICENSE-APACHE"] {
        std::fs::copy(command::root().join(document), project.join(document))?;
    }
    let package = project.join("hetccl");
    for (from, to) in [
        ("bin/hetccl", "bin/hetccl"),
        ("lib/hetccl/libnccl.so.2", "lib/hetccl/libnccl.so.2"),
        ("lib/hetccl/librccl.so.1", "lib/hetccl/librccl.so.1"),
    ] {
        let to = package.join(to);
        std::fs::create_dir_all(to.parent().context("a file has a folder")?)?;
        std::fs::copy(source.tree.root.join(from), &to)?;
    }
    let plain = source.work.join("plain");
    command::capture(
        tool("python")
            .args(["-m", "build", "--wheel", "--no-isolation", "--outdir"])
            .arg(&plain)
            .arg(&project),
    )?;
    let plain = only_wheel(&plain)?;
    let tagged = source.work.join("tagged");
    command::capture(tool("auditwheel").args(["repair", "--wheel-dir"]).arg(&tagged).arg(&plain))?;
    let wheel = only_wheel(&tagged)?;
    check(&mut tool("auditwheel"), "auditwheel", &["show"], &wheel)?;
    check(&mut tool("twine"), "twine", &["check", "--strict"], &wheel)?;
    Ok(vec![wheel])
}

fn check(tool: &mut Command, name: &str, arguments: &[&str], wheel: &Path) -> Result<()> {
    let output = command::output(
        tool.env("NO_COLOR", "1")
            .env("COLUMNS", "240")
            .env_remove("FORCE_COLOR")
            .args(arguments)
            .arg(wheel),
    )?;
    let text = String::from_utf8_lossy(&output.stdout);
    let lines = text.lines().filter(|line| !line.trim().is_empty());
    print!("{}", lines.map(|line| format!("    {name}: {line}\n")).collect::<String>());
    if !output.status.success() {
        bail!("{name} is not content\n{}", command::tail(&output));
    }
    Ok(())
}

fn only_wheel(folder: &Path) -> Result<PathBuf> {
    let wheels =
        std::fs::read_dir(folder).with_context(|| format!("reading {}", folder.display()))?;
    let mut wheels = wheels.filter_map(|entry| Some(entry.ok()?.path()));
    let wheel = wheels.find(|path| path.extension().is_some_and(|extension| extension == "whl"));
    wheel.with_context(|| format!("no wheel in {}", folder.display()))
}
