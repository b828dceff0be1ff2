//! `cargo xtask package`: deb, rpm and wheel of what this machine's Open MPI and compiler give.
//!
//! ```text
//! build.rs   the binaries, without a path of this machine in them, and one tree of files that all three packages are cut from
//! deb.rs     hetccl, hetccl-openmpi, hetccl-dev by debhelper; runs in any Debian, for that Debian's Open MPI
//! rpm.rs     the same three by rpmbuild, at the places of Fedora and its relatives
//! wheel.rs   hetccl for pip, by build and auditwheel
//! install_test.rs, root.rs   `cargo xtask test-packages`: in and out of fresh systems
//! ```
//!
//! The same commit gives the same bytes: times come from the commit, and nothing else of the machine goes in.

mod build;
mod deb;
mod install_test;
mod root;
mod rpm;
mod wheel;

pub use install_test::{TestArgs, test_packages};

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::command::{self, step};

/// Packages that are larger than this are refused.
const MOST_BYTES: u64 = 12 << 20;

/// Options.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct Args {
    /// Debian packages
    #[arg(long)]
    pub deb: bool,
    /// RPM packages
    #[arg(long)]
    pub rpm: bool,
    /// A Python wheel
    #[arg(long)]
    pub wheel: bool,
    /// Where the packages go (default: target/packages)
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Pack everything a second time, in another folder, and compare the bytes
    #[arg(long)]
    pub twice: bool,
    /// The version that the packages say they have, for tests of upgrades (default: the workspace's)
    #[arg(long, value_name = "VERSION", default_value = env!("CARGO_PKG_VERSION"))]
    pub package_version: String,
}

/// What every kind of package is made from.
struct Source<'a> {
    /// Built files, laid out below `usr`.
    tree: &'a build::Tree,
    /// Upstream version.
    version: &'a str,
    /// Seconds since 1970, of the commit.
    epoch: u64,
    /// A folder to work in, empty at the start.
    work: PathBuf,
}

/// Makes the packages that are asked for, or all three kinds, checks them and prints their sizes.
///
/// # Errors
/// What could not be installed, built or packed, and what a checker says against a package.
pub fn run(args: &Args) -> Result<Vec<PathBuf>> {
    let all = !(args.deb || args.rpm || args.wheel);
    let out = args.out.clone().unwrap_or_else(|| command::target_dir().join("packages"));
    std::fs::create_dir_all(&out).with_context(|| format!("creating {}", out.display()))?;
    let kinds: [(bool, Kind); 3] = [
        (all || args.deb, Kind { name: "deb", set_up: deb::set_up, make: deb::make }),
        (all || args.rpm, Kind { name: "rpm", set_up: rpm::set_up, make: rpm::make }),
        (all || args.wheel, Kind { name: "wheel", set_up: wheel::set_up, make: wheel::make }),
    ];
    let kinds: Vec<Kind> =
        kinds.into_iter().filter(|(wanted, _)| *wanted).map(|(_, kind)| kind).collect();
    for kind in &kinds {
        step(&format!("set-up for {}", kind.name), kind.set_up)?;
    }
    let tree = step("building", build::tree)?;
    let epoch = commit_time()?;
    let mut packages = Vec::new();
    for kind in &kinds {
        let pack = |place: &str| {
            let work = command::target_dir().join("package-work").join(place).join(kind.name);
            if work.exists() {
                std::fs::remove_dir_all(&work)?;
            }
            std::fs::create_dir_all(&work)?;
            let source = Source { tree: &tree, version: &args.package_version, epoch, work };
            (kind.make)(&source)
        };
        let made = step(&format!("packing {}", kind.name), || pack("first"))?;
        if args.twice {
            let again = step("packing it again", || pack("second/elsewhere"))?;
            same_bytes(&made, &again)?;
        }
        for file in made {
            let place = out.join(file.file_name().context("a package has a name")?);
            std::fs::copy(&file, &place).with_context(|| format!("writing {}", place.display()))?;
            packages.push(place);
        }
    }
    sizes(&packages)?;
    Ok(packages)
}

/// A kind of package.
struct Kind {
    name: &'static str,
    set_up: fn() -> Result<()>,
    /// Makes and checks; returns the files.
    make: fn(&Source) -> Result<Vec<PathBuf>>,
}

fn commit_time() -> Result<u64> {
    if let Ok(given) = std::env::var("SOURCE_DATE_EPOCH") {
        return given.parse().with_context(|| format!("SOURCE_DATE_EPOCH is {given:?}, no number"));
    }
    let mut git = Command::new("git");
    git.current_dir(command::root()).args(["log", "-1", "--format=%ct"]);
    let text = command::capture(&mut git).context(
        "the time of the commit is the packages' time; outside of git set SOURCE_DATE_EPOCH",
    )?;
    text.trim().parse().context("reading the time of the last commit")
}

fn same_bytes(first: &[PathBuf], second: &[PathBuf]) -> Result<()> {
    if first.len() != second.len() {
        bail!("{} packages the first time, {} the second", first.len(), second.len());
    }
    for (a, b) in first.iter().zip(second) {
        if std::fs::read(a)? != std::fs::read(b)? {
            bail!("{} and {} differ: diffoscope shows in what", a.display(), b.display());
        }
        println!("    same bytes: {}", name_of(a));
    }
    Ok(())
}

fn sizes(packages: &[PathBuf]) -> Result<()> {
    for package in packages {
        let bytes = std::fs::metadata(package)?.len();
        println!("{:>9} bytes  {}", bytes, package.display());
        if bytes > MOST_BYTES {
            bail!("{} is larger than {MOST_BYTES} bytes", package.display());
        }
    }
    Ok(())
}

fn name_of(file: &Path) -> String {
    file.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// Copies a folder's files with their modes and links.
fn copy_tree(from: &Path, to: &Path) -> Result<()> {
    std::fs::create_dir_all(to).with_context(|| format!("creating {}", to.display()))?;
    let from = from.join(".");
    command::capture(Command::new("cp").arg("-a").arg(from).arg(to)).map(drop)
}

/// A file of `packaging/` with `@NAME@` replaced.
fn filled(template: &Path, values: &[(&str, &str)]) -> Result<String> {
    let file = command::root().join("packaging").join(template);
    let mut text =
        std::fs::read_to_string(&file).with_context(|| format!("reading {}", file.display()))?;
    for (name, value) in values {
        text = text.replace(&format!("@{name}@"), value);
    }
    match text.split('@').nth(1) {
        Some(left)
            if left.chars().all(|c| c.is_ascii_uppercase() || c == '_') && !left.is_empty() =>
        {
            bail!("{}: nobody fills @{left}@ in", file.display())
        }
        _ => Ok(text),
    }
}

/// The time as `date` writes it.
fn date(epoch: u64, format: &str) -> Result<String> {
    let mut command = Command::new("date");
    command.env("LC_ALL", "C").args(["-u", "-d", &format!("@{epoch}"), format]);
    Ok(command::capture(&mut command)?.trim().to_owned())
}
