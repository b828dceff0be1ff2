//! The system packages that building and testing need.

use std::process::Command;

use anyhow::{Result, bail};

use crate::command::{self, exists, is_root};

/// A set of packages, in Debian's names.
#[derive(Clone, Copy, Debug)]
pub struct Packages {
    debian: &'static [&'static str],
    /// Roughly the same in Fedora's and openSUSE's names, for the hint.
    others: &'static str,
}

/// For building and running.
pub const BUILD: Packages = Packages {
    debian: &[
        "gcc",
        "libc6-dev",
        "pkg-config",
        "libclang-dev",
        "openmpi-bin",
        "libopenmpi-dev",
        "libpmix-dev",
        "libucx0",
        "libucx-dev",
    ],
    others: "gcc glibc-devel pkgconf clang-devel openmpi openmpi-devel ucx ucx-devel",
};

/// For the tests.
pub const TEST: Packages = Packages {
    debian: &["iproute2", "python3-venv", "python3-dev"],
    others: "iproute python3-devel",
};

/// For compiling the kernels: `kernels`, and the tests of them.
pub const KERNELS: Packages = Packages {
    debian: &["g++", "clang-19", "lld-19", "python3-venv"],
    others: "gcc-c++ clang lld python3",
};

/// For compiling the kernels to SPIR-V. Debian 12 has just these versions.
pub const SPIRV: Packages = Packages {
    debian: &["clang-14", "llvm-spirv-14", "spirv-tools"],
    others: "clang spirv-llvm-translator spirv-tools",
};

/// For `package --deb`.
pub const DEB: Packages = Packages {
    debian: &["debhelper", "dpkg-dev", "lintian", "git"],
    others: "dpkg-dev debhelper lintian",
};

/// For `package --rpm`.
pub const RPM: Packages =
    Packages { debian: &["rpm", "rpmlint", "git"], others: "rpm-build rpmlint" };

/// For `package --wheel`.
pub const WHEEL: Packages =
    Packages { debian: &["python3-venv", "patchelf", "git"], others: "python3 patchelf" };

/// For `docs`.
pub const DOCS: Packages = Packages { debian: &["python3-venv"], others: "python3" };

/// For `test-packages`.
pub const ROOTS: Packages = Packages { debian: &["debootstrap"], others: "debootstrap" };

/// For `bench mpi`.
pub const BENCH: Packages =
    Packages { debian: &["mpich", "libmpich-dev"], others: "mpich mpich-devel" };

/// For `test-debian13`.
pub const DEBIAN13: Packages = Packages { debian: &["debootstrap"], others: "debootstrap" };

/// For `test-lammps`.
pub const LAMMPS: Packages = Packages { debian: &["lammps"], others: "lammps" };

/// For `test-leaks`.
pub const LEAKS: Packages = Packages { debian: &["valgrind"], others: "valgrind" };

/// Installs what is missing.
///
/// # Errors
/// When something is missing and can't be installed: the error is the command for the administrator.
pub fn packages(sets: &[Packages]) -> Result<()> {
    if !exists("dpkg-query") {
        return elsewhere(sets);
    }
    let missing: Vec<&str> =
        sets.iter().flat_map(|set| set.debian).copied().filter(|name| !installed(name)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let list = missing.join(" ");
    if !is_root() {
        bail!(
            "these packages are missing: {list}\nAsk your administrator for, or run yourself:\n  \
             sudo apt-get install -y --no-install-recommends {list}"
        );
    }
    println!("==> installing {list}");
    let install = || {
        let mut command = Command::new("apt-get");
        command.env("DEBIAN_FRONTEND", "noninteractive");
        command.args(["install", "-y", "--no-install-recommends"]).args(&missing);
        command::capture(&mut command)
    };
    if install().is_err() {
        // The package lists may be old or not there at all.
        command::capture(Command::new("apt-get").arg("update"))?;
        install()?;
    }
    Ok(())
}

/// The names of packages, in Debian's names.
pub fn names(sets: &[Packages]) -> impl Iterator<Item = &'static str> {
    sets.iter().flat_map(|set| set.debian).copied()
}

/// As [`packages`], of a set that not every relative of Debian has: where it can't be had, that is said.
pub fn optional(set: Packages, what: &str) {
    if let Err(error) = packages(&[set]) {
        println!("SKIPPED {what}: {error:#}");
    }
}

fn installed(package: &str) -> bool {
    let query = command::capture(Command::new("dpkg-query").args([
        "-W",
        "-f=${db:Status-Status}",
        package,
    ]));
    query.is_ok_and(|status| status == "installed")
}

/// Not a Debian: say what is needed, and go on where the programs are there.
fn elsewhere(sets: &[Packages]) -> Result<()> {
    let wanted: Vec<&str> = sets.iter().map(|set| set.others).collect();
    let missing: Vec<&str> =
        ["cc", "mpicc", "mpirun"].into_iter().filter(|program| !exists(program)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    bail!(
        "{} not found on PATH. This needs, in Fedora's names: {}\n  sudo dnf install {}\n(openSUSE: zypper install)",
        missing.join(", "),
        wanted.join(" "),
        wanted.join(" ")
    )
}
