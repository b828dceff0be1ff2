//! RPM packages, by rpmbuild: `packaging/rpm/hetccl.spec` and the tree of files, at the places of Fedora and its relatives.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, bail};

use super::{Source, copy_tree, date, filled};
use crate::{command, setup};

pub(super) fn set_up() -> Result<()> {
    setup::packages(&[setup::RPM])
}

/// Packs, and has rpmlint look at the result.
pub(super) fn make(source: &Source) -> Result<Vec<PathBuf>> {
    let top = &source.work;
    let tree = top.join("tree");
    copy_tree(&source.tree.root, &tree)?;
    for document in ["LICENSE-MIT", "LICENSE-APACHE", "README.md", "CHANGELOG.md"] {
        std::fs::copy(command::root().join(document), top.join(document))?;
    }
    let pc = [("LIBDIR", "/usr/lib64/hetccl"), ("VERSION", source.version)];
    std::fs::write(top.join("hetccl.pc"), filled(Path::new("hetccl.pc"), &pc)?)?;
    let (open_mpi, next) = source.tree.open_mpi_range()?;
    let values = [
        ("NEXT_OPENMPI", next.as_str()),
        ("OPENMPI", open_mpi.as_str()),
        ("VERSION", source.version),
        ("TOP", &top.display().to_string()),
        ("DATE", &date(source.epoch, "+%a %b %d %Y")?),
    ];
    let spec = top.join("hetccl.spec");
    std::fs::write(&spec, filled(Path::new("rpm/hetccl.spec"), &values)?)?;
    let mut pack = Command::new("rpmbuild");
    pack.arg("-bb").arg("--define").arg(format!("_topdir {}", top.display()));
    let defines = [
        "_libdir /usr/lib64",
        "_build_id_links none",
        "_buildhost localhost",
        "use_source_date_epoch_as_buildtime 1",
        "clamp_mtime_to_source_date_epoch 1",
        "source_date_epoch_from_changelog 0",
        "_binary_payload w19.zstdio",
    ];
    for define in defines {
        pack.args(["--define", define]);
    }
    pack.env("SOURCE_DATE_EPOCH", source.epoch.to_string());
    command::capture(pack.arg(&spec))?;
    let mut packages = Vec::new();
    for entry in std::fs::read_dir(top.join("RPMS").join(std::env::consts::ARCH))? {
        packages.push(entry?.path());
    }
    packages.sort();
    rpmlint(&packages)?;
    Ok(packages)
}

/// `packaging/rpm/rpmlint.toml` says which tags are as they should be, and why.
fn rpmlint(packages: &[PathBuf]) -> Result<()> {
    let mut check = Command::new("rpmlint");
    check.arg("--config").arg(command::root().join("packaging/rpm/rpmlint.toml")).arg("--strict");
    let output = command::output(check.args(packages))?;
    let text = String::from_utf8_lossy(&output.stdout);
    print!("{}", text.lines().map(|line| format!("    rpmlint: {line}\n")).collect::<String>());
    if !output.status.success() {
        bail!("rpmlint is not content\n{}", command::tail(&output));
    }
    Ok(())
}
