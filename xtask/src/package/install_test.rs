//! `cargo xtask test-packages`: packages installed, used, upgraded and removed, each in a fresh system.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use super::root::Root;
use super::{Args, deb, name_of};
use crate::command::{self, step};
use crate::debian13::System;
use crate::mpi::{self, Library};
use crate::python;

/// What the packages that are upgraded say they are.
const BEFORE: &str = "0.0.9";

/// What is put into a fresh Debian: packages made for it, and a program compiled with its Open MPI.
struct Debs {
    old: Vec<PathBuf>,
    new: Vec<PathBuf>,
    program: PathBuf,
}

/// Options.
#[derive(clap::Args, Debug)]
pub struct TestArgs {
    /// Test packages that were made before: those in this folder, and those to upgrade from in its folder `before`
    #[arg(long, value_name = "DIR")]
    pub made: Option<PathBuf>,
}

/// Makes the packages and tests each kind. Whether all went well.
///
/// # Errors
/// The first thing that went wrong.
pub fn test_packages(args: &TestArgs) -> Result<bool> {
    let release = deb::release()?;
    let out = match &args.made {
        Some(folder) => folder.clone(),
        None => make_all(&release)?,
    };
    let (new, before) = (files(&out)?, files(&out.join("before"))?);
    let here = mpi::compile("demo", Library::OpenMpi)?;
    for (suite, number) in [("bookworm", "12"), ("trixie", "13")] {
        let of_suite = |packages: &[PathBuf]| -> Vec<PathBuf> {
            let ending = format!("~deb{number}_");
            packages.iter().filter(|file| name_of(file).contains(&ending)).cloned().collect()
        };
        let (old_debs, new_debs) = (of_suite(&before), of_suite(&new));
        if number != release {
            let others: Vec<PathBuf> =
                of_kind(&new, "deb").into_iter().filter(|deb| !new_debs.contains(deb)).collect();
            step(&format!("packages of another release on {suite}"), || foreign(suite, &others))?;
        }
        if new_debs.is_empty() {
            println!("SKIPPED installation on {suite}: its packages are made in {suite} only");
            continue;
        }
        let program = if number == release { here.clone() } else { demo_of_debian13()? };
        let debs = Debs { old: old_debs, new: new_debs, program };
        step(&format!("install, use, upgrade, remove on {suite}"), || debian(suite, &debs))?;
    }
    step("rpm into a scratch root", || rpms(&of_kind(&before, "rpm"), &of_kind(&new, "rpm")))?;
    step("wheel in an environment", || wheel(&of_kind(&new, "whl")))?;
    println!("packages: all went well");
    Ok(true)
}

/// Packages of each kind, and debs and rpms to upgrade from, into a folder; on another Debian those of Debian 13 as well.
fn make_all(release: &str) -> Result<PathBuf> {
    let out = command::target_dir().join("packages");
    let before = out.join("before");
    clear(&out)?;
    super::run(&Args {
        out: Some(out.clone()),
        package_version: env!("CARGO_PKG_VERSION").into(),
        ..Args::default()
    })?;
    super::run(&Args {
        deb: true,
        rpm: true,
        out: Some(before.clone()),
        package_version: BEFORE.into(),
        ..Args::default()
    })?;
    if release != "13" {
        step("packages made in Debian 13", || {
            make_in_debian13(env!("CARGO_PKG_VERSION"), &out)?;
            make_in_debian13(BEFORE, &before)
        })?;
    }
    Ok(out)
}

fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries =
        std::fs::read_dir(folder).with_context(|| format!("reading {}", folder.display()))?;
    let paths: std::io::Result<Vec<PathBuf>> = entries.map(|entry| Ok(entry?.path())).collect();
    let mut paths = paths?;
    paths.retain(|path| path.is_file());
    paths.sort();
    Ok(paths)
}

fn of_kind(packages: &[PathBuf], extension: &str) -> Vec<PathBuf> {
    let fits = |path: &&PathBuf| path.extension().is_some_and(|found| found == extension);
    packages.iter().filter(fits).cloned().collect()
}

/// Debs of a version by the same command in the Debian 13 of `test-debian13`, with its Open MPI and UCX, into `out`.
fn make_in_debian13(version: &str, out: &Path) -> Result<()> {
    let system = System::make()?;
    let epoch = super::commit_time()?;
    let folder = format!("packages/{version}");
    clear(&system.built(&folder))?;
    let line = format!(
        "SOURCE_DATE_EPOCH={epoch} cargo run --locked -q -p xtask -- \
         package --deb --out /build/{folder} --package-version {version}"
    );
    println!("    # {line}");
    ensure!(system.enter(&line).status()?.success(), "no packages of {version} in Debian 13");
    for deb in files(&system.built(&folder))? {
        std::fs::copy(&deb, out.join(name_of(&deb)))
            .with_context(|| format!("copying {}", deb.display()))?;
    }
    Ok(())
}

/// The demo, compiled with Debian 13's Open MPI.
fn demo_of_debian13() -> Result<PathBuf> {
    let system = System::make()?;
    command::capture(&mut system.enter("mpicc -O2 -o /build/demo tests/c/demo.c -lm"))?;
    Ok(system.built("demo"))
}

fn clear(folder: &Path) -> Result<()> {
    if folder.exists() {
        std::fs::remove_dir_all(folder)
            .with_context(|| format!("clearing {}", folder.display()))?;
    }
    Ok(())
}

/// Old packages, use, new packages, use, nothing.
fn debian(suite: &str, Debs { old, new, program }: &Debs) -> Result<()> {
    let root = Root::new(suite)?;
    for (folder, debs) in [("/old", old), ("/new", new)] {
        for deb in debs {
            root.put(deb, folder)?;
        }
    }
    root.put(program, "/opt")?;
    let program = format!("/opt/{}", name_of(program));
    root.run("apt-get -q update && apt-get -q -y install --no-install-recommends /old/*.deb")?;
    ensure!(
        root.run("hetccl --version")?.contains(env!("CARGO_PKG_VERSION")),
        "the old package has the same program"
    );
    root.run("apt-get -q -y install --no-install-recommends /new/*.deb")?;
    let versions = root.run("dpkg-query -W -f '${Package} ${Version}\\n' 'hetccl*'")?;
    ensure!(
        versions.lines().count() == 3 && !versions.contains(BEFORE),
        "after the upgrade:\n{versions}"
    );

    let info = root.run("hetccl info")?;
    ensure!(info.contains("component  yes"), "hetccl info does not see the component:\n{info}");
    root.run("hetccl doctor")?;
    // Debian 13's mpirun gives programs PMIx's component path; docs/guide-administrators.md has these two lines.
    let path = if suite == "trixie" {
        "export OMPI_MCA_mca_base_component_path=/usr/lib/$(uname -m)-linux-gnu/openmpi/lib/openmpi40 && \
         export PMIX_MCA_mca_base_component_path=/usr/lib/$(uname -m)-linux-gnu/pmix2/lib/pmix && "
    } else {
        ""
    };
    let as_root = "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1";
    let mpirun = format!("{path}{as_root} mpirun --oversubscribe");
    let demo = root.run(&format!("{mpirun} --mca coll hetccl -n 2 {program} 2>&1"))?;
    let right = demo.lines().filter(|line| line.contains("\"ok\": true")).count();
    ensure!(
        right >= 17 && !demo.contains("\"ok\": false"),
        "{right} collectives were right:\n{demo}"
    );
    println!("    {right} collectives right");
    let perf = root.run(&format!("{path}{as_root} hetccl perf -n 2 -e 64 --format csv"))?;
    ensure!(perf.lines().count() > 2, "hetccl perf printed\n{perf}");
    let refused = root.output("hetccl perf --memory cuda 2>&1")?;
    let said = String::from_utf8_lossy(&refused.stdout);
    ensure!(said.contains("no GPU for --memory cuda"), "without a GPU hetccl perf says:\n{said}");
    let preloaded = root.run("hetccl run sh -c 'grep -c hetccl/libnccl.so.2 /proc/self/maps'")?;
    ensure!(preloaded.trim() != "0", "hetccl run does not load libnccl.so.2");
    ensure!(
        root.output("ldconfig -p | grep -c 'hetccl/'")?.stdout.starts_with(b"0"),
        "the loader finds hetccl's NCCL by itself"
    );

    root.run("apt-get -q -y purge 'hetccl*'")?;
    let left =
        root.run("find / -xdev -iname '*hetccl*' -not -path '/old/*' -not -path '/new/*'")?;
    ensure!(left.trim().is_empty(), "left behind:\n{left}");
    // Open MPI as it was before.
    root.run(&format!("{mpirun} -n 2 {program} > /dev/null"))?;
    Ok(())
}

/// Packages of another Debian: the program may be installed; the component is refused because of its Open MPI.
fn foreign(suite: &str, debs: &[PathBuf]) -> Result<()> {
    let root = Root::new(suite)?;
    for deb in debs {
        root.put(deb, "/new")?;
    }
    root.run("apt-get -q update && apt-get -q -y install --no-install-recommends /new/hetccl_*.deb && hetccl info")?;
    let output = root
        .output("apt-get -q -y install --no-install-recommends /new/hetccl-openmpi_*.deb 2>&1")?;
    let said = String::from_utf8_lossy(&output.stdout);
    ensure!(
        !output.status.success() && said.contains("libopenmpi"),
        "the component was not refused:\n{said}"
    );
    root.run("apt-get -q -y purge 'hetccl*'")?;
    Ok(())
}

/// Files in and out of an empty system; what the packages need is not there, so that is not asked.
fn rpms(old: &[PathBuf], new: &[PathBuf]) -> Result<()> {
    let root = command::target_dir().join("package-work/rpm-root");
    clear(&root)?;
    std::fs::create_dir_all(&root)?;
    let root = root.canonicalize()?;
    let rpm = |arguments: &[&str], packages: &[PathBuf]| {
        let mut rpm = Command::new("rpm");
        rpm.arg("--root").arg(&root).args(["--dbpath", "/var/lib/rpm"]).args(arguments);
        for package in packages {
            rpm.arg(package.canonicalize()?);
        }
        command::capture(&mut rpm)
    };
    rpm(&["--initdb"], &[])?;
    rpm(&["--nodeps", "-i", "--test"], new)?;
    rpm(&["--nodeps", "-i"], old)?;
    rpm(&["--nodeps", "-U"], new)?;
    let names = ["hetccl", "hetccl-openmpi", "hetccl-devel"];
    let versions = rpm(&["-qa"], &[])?;
    ensure!(
        versions.lines().count() == 3 && !versions.contains(BEFORE),
        "after the upgrade:\n{versions}"
    );
    rpm(&["-V", "--nodeps", names[0], names[1], names[2]], &[])?;
    let version = Command::new(root.join("usr/bin/hetccl")).arg("--version").output();
    ensure!(
        version.is_ok_and(|output| output.status.success()),
        "the installed program does not start"
    );
    rpm(&["--nodeps", "-e", names[0], names[1], names[2]], &[])?;
    let left = command::capture(Command::new("find").arg(&root).args(["-iname", "*hetccl*"]))?;
    ensure!(left.trim().is_empty(), "left behind:\n{left}");
    Ok(())
}

/// Into an environment and out of it.
fn wheel(wheels: &[PathBuf]) -> Result<()> {
    let [wheel] = wheels else { bail!("{} wheels were made", wheels.len()) };
    let environment = python::environment("wheel-test", &["pip"])?;
    let program = |name: &str| Command::new(environment.join("bin").join(name));
    let pip = ["-m", "pip", "--quiet", "--disable-pip-version-check"];
    command::capture(
        program("python").args(pip).args(["install", "--force-reinstall", "--no-index"]).arg(wheel),
    )?;
    let info = command::capture(program("python").args(["-m", "hetccl", "info"]))?;
    ensure!(info.contains(env!("CARGO_PKG_VERSION")), "python -m hetccl info:\n{info}");
    let line = "grep -c site-packages/hetccl/lib/hetccl/libnccl.so.2 /proc/self/maps";
    let preloaded = command::capture(program("hetccl").args(["run", "sh", "-c", line]))?;
    ensure!(preloaded.trim() != "0", "hetccl run does not load libnccl.so.2");
    command::capture(program("python").args(pip).args(["uninstall", "--yes", "hetccl"]))?;
    let left =
        command::capture(Command::new("find").arg(&environment).args(["-iname", "*hetccl*"]))?;
    ensure!(left.trim().is_empty(), "left behind:\n{left}");
    Ok(())
}
