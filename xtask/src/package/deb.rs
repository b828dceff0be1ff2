//! Debian packages, by debhelper: `packaging/debian` and the tree of files are all that it gets.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::{Source, build::Tree, copy_tree, date, filled};
use crate::{command, setup};

pub(super) fn set_up() -> Result<()> {
    setup::packages(&[setup::DEB])
}

/// Packs, and has lintian look at the result.
pub(super) fn make(source: &Source) -> Result<Vec<PathBuf>> {
    let folder = source.work.join("hetccl");
    let debian = folder.join("debian");
    copy_tree(&command::root().join("packaging/debian"), &debian)?;
    copy_tree(&source.tree.root, &folder.join("tree"))?;
    for license in ["LICENSE-MIT", "LICENSE-APACHE"] {
        std::fs::copy(command::root().join(license), folder.join(license))?;
    }
    let version = format!("{}-1~deb{}", source.version, release()?);
    let pc = filled(
        Path::new("hetccl.pc"),
        &[("LIBDIR", "/usr/lib/hetccl"), ("VERSION", source.version)],
    )?;
    std::fs::write(folder.join("hetccl.pc"), pc)?;
    std::fs::copy(command::root().join("CHANGELOG.md"), folder.join("NEWS.md"))?;
    let time = date(source.epoch, "+%a, %d %b %Y %H:%M:%S +0000")?;
    fill(&debian, "changelog", &[("VERSION", &version), ("DATE", &time)])?;
    fill(
        &debian,
        "hetccl-openmpi.install",
        &[("FOLDER", &source.tree.component_folder.display().to_string())],
    )?;
    let mut pack = Command::new("dpkg-buildpackage");
    pack.current_dir(&folder).args(["--build=binary", "--no-sign", "--no-check-builddeps"]);
    pack.env("SOURCE_DATE_EPOCH", source.epoch.to_string());
    pack.env("DEB_BUILD_OPTIONS", "noautodbgsym nocheck");
    pack.env("HETCCL_OPEN_MPI", open_mpi_bound(source.tree)?);
    command::capture(&mut pack)?;
    let mut packages: Vec<PathBuf> = std::fs::read_dir(&source.work)?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|extension| extension == "deb"))
        .collect();
    packages.sort();
    lintian(&source.work)?;
    Ok(packages)
}

fn fill(debian: &Path, name: &str, values: &[(&str, &str)]) -> Result<()> {
    let text = filled(Path::new("debian").join(name).as_path(), values)?;
    std::fs::write(debian.join(name), text).with_context(|| format!("writing debian/{name}"))
}

/// `12` on Debian 12.
pub(super) fn release() -> Result<String> {
    let text = std::fs::read_to_string("/etc/os-release").context("reading /etc/os-release")?;
    let value = |key: &str| {
        text.lines().find_map(|line| Some(line.strip_prefix(key)?.trim_matches('"').to_owned()))
    };
    value("VERSION_ID=")
        .or_else(|| value("VERSION_CODENAME="))
        .context("no VERSION_ID in /etc/os-release")
}

/// The component is made for one minor version of Open MPI: its library's package, below the next one.
fn open_mpi_bound(tree: &Tree) -> Result<String> {
    let (_, next) = tree.open_mpi_range()?;
    let owner = command::capture(Command::new("dpkg-query").args(["--search", "*/libmpi.so.40"]))
        .context(
        "Open MPI is not from a Debian package, so there is no package to depend on",
    )?;
    let package = owner.split(':').next().unwrap_or_default();
    Ok(format!("{package} (<< {next}~)"))
}

/// Every tag is an error; those that are as they should be are explained in `packaging/debian/*.lintian-overrides`.
fn lintian(work: &Path) -> Result<()> {
    let changes = std::fs::read_dir(work)?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .find(|path| path.extension().is_some_and(|extension| extension == "changes"))
        .context("dpkg-buildpackage wrote no .changes file")?;
    let mut check = Command::new("lintian");
    check.args(["--allow-root", "--display-info"]);
    // An override of a tag is fine; an override of nothing is not, and lintian says so as a tag of its own.
    check.args(["--fail-on", "error,warning,info"]);
    let output = command::output(check.arg(&changes))?;
    let text = String::from_utf8_lossy(&output.stdout);
    print!("{}", text.lines().map(|line| format!("    lintian: {line}\n")).collect::<String>());
    if !output.status.success() {
        bail!("lintian is not content with {}", changes.display());
    }
    println!("    lintian: nothing against {}", super::name_of(&changes));
    Ok(())
}
