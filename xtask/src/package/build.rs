//! The binaries, and the tree of files that packages are cut from.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::name_of;
use crate::{command, install, setup};

/// Files as an installation has them below `/usr`, and the component's folder.
pub(super) struct Tree {
    /// Has `bin`, `lib`, `share`, `include`.
    pub(super) root: PathBuf,
    /// Where this machine's Open MPI looks for components.
    pub(super) component_folder: PathBuf,
    /// Its version, such as `4.1.4`.
    pub(super) open_mpi: String,
}

impl Tree {
    /// The component fits one minor version of Open MPI: that one, and the next.
    ///
    /// # Errors
    /// A version that is none.
    pub(super) fn open_mpi_range(&self) -> Result<(String, String)> {
        let mut numbers = self.open_mpi.split('.').map(str::parse::<u32>);
        match (numbers.next(), numbers.next()) {
            (Some(Ok(major)), Some(Ok(minor))) => {
                Ok((format!("{major}.{minor}"), format!("{major}.{}", minor + 1)))
            }
            _ => bail!("{:?} is no version of Open MPI", self.open_mpi),
        }
    }
}

/// Builds everything.
///
/// # Errors
/// A failed build, a path of this machine in a binary.
pub(super) fn tree() -> Result<Tree> {
    setup::packages(&[setup::BUILD])?;
    binaries()?;
    let root = command::target_dir().join("package-tree");
    if root.exists() {
        std::fs::remove_dir_all(&root)?;
    }
    install::lay_out(&command::target_dir().join("dist"), &root)?;
    // Only for installations at a prefix of their own.
    std::fs::remove_dir_all(root.join("share/hetccl/modulefiles"))?;
    std::fs::remove_file(root.join("share/hetccl/env.sh"))?;
    let include = root.join("include/hetccl");
    std::fs::create_dir_all(&include)?;
    std::fs::copy(command::root().join("tests/c/nccl_api.h"), include.join("nccl_api.h"))?;
    let root = root.canonicalize()?;
    strip(&root)?;
    let mut ask = Command::new("ompi_info");
    let place = command::capture(ask.args(["--parsable", "--path", "pkglibdir"]))?;
    let place = place.trim().rsplit(':').next().unwrap_or_default().to_owned();
    Ok(Tree { root, component_folder: PathBuf::from(place), open_mpi: open_mpi_version()? })
}

fn binaries() -> Result<()> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let home = std::env::var("CARGO_HOME")
        .or_else(|_| std::env::var("HOME").map(|home| format!("{home}/.cargo")))
        .context("neither CARGO_HOME nor HOME is set")?;
    let workspace = command::root().canonicalize()?.display().to_string();
    let target = std::path::absolute(command::target_dir())?.display().to_string();
    // The longest first where one lies in another: the last that fits wins.
    let places =
        [(workspace, "/usr/src/hetccl"), (target, "/usr/src/target"), (home, "/usr/src/cargo")];
    let flags: Vec<String> =
        places.iter().map(|(from, to)| format!("--remap-path-prefix={from}={to}")).collect();
    let c_flags: Vec<String> =
        places.iter().map(|(from, to)| format!("-ffile-prefix-map={from}={to}")).collect();
    let mut build = Command::new(cargo);
    build.current_dir(command::root());
    build.args(["build", "--profile", "dist", "--locked"]);
    for package in install::packages() {
        build.args(["--package", package]);
    }
    build.env("CARGO_ENCODED_RUSTFLAGS", flags.join("\u{1f}")).env("CFLAGS", c_flags.join(" "));
    command::run(&mut build)
}

/// Drops symbols that nobody links to, and looks for paths of this machine.
fn strip(root: &Path) -> Result<()> {
    let folders = ["bin", "lib/hetccl", "lib/openmpi"];
    for entry in
        folders.iter().filter_map(|folder| std::fs::read_dir(root.join(folder)).ok()).flatten()
    {
        let file = entry?.path();
        if file.is_symlink() {
            continue;
        }
        command::capture(
            Command::new("strip")
                .args(["--strip-unneeded", "--remove-section=.comment"])
                .arg(&file),
        )?;
        let bytes = std::fs::read(&file)?;
        let here = command::root().canonicalize()?.display().to_string();
        if bytes.windows(here.len()).any(|window| window == here.as_bytes()) {
            bail!("{} has the path {here} inside", name_of(&file));
        }
    }
    Ok(())
}

fn open_mpi_version() -> Result<String> {
    let text = command::capture(Command::new("ompi_info").args(["--parsable", "--version"]))?;
    let version = text.lines().find_map(|line| line.strip_prefix("ompi:version:full:"));
    let version = version.map(str::to_owned).or_else(|| {
        // Without that line, the last word of "Open MPI v4.1.4".
        Some(text.lines().next()?.rsplit(['v', ' ']).next()?.to_owned())
    });
    version.with_context(|| format!("no version in what ompi_info --version printed:\n{text}"))
}
