//! `cargo xtask emulate`: GPU drivers on host memory, for machines without a GPU.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use anyhow::{Context, Result};

use crate::{command, kernels};

/// Options.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Print the folder with the libraries as the last line
    #[arg(long)]
    pub print_path: bool,
    /// A program to run on the emulated drivers, with its arguments
    #[arg(trailing_var_arg = true)]
    pub program: Vec<String>,
}

/// An emulated driver.
struct Driver {
    package: &'static str,
    built: &'static str,
    /// The name that programs load, first the one that the library itself carries.
    names: &'static [&'static str],
}

const DRIVERS: [Driver; 5] = [
    Driver {
        package: "hetccl-emulated-cuda",
        built: "libhetccl_emulated_cuda.so",
        names: &["libcuda.so.1", "libcuda.so"],
    },
    Driver {
        package: "hetccl-emulated-hip",
        built: "libhetccl_emulated_hip.so",
        names: &["libamdhip64.so.6", "libamdhip64.so"],
    },
    Driver {
        package: "hetccl-emulated-hiprtc",
        built: "libhetccl_emulated_hiprtc.so",
        names: &["libhiprtc.so.6", "libhiprtc.so"],
    },
    Driver {
        package: "hetccl-emulated-level-zero",
        built: "libhetccl_emulated_level_zero.so",
        names: &["libze_loader.so.1", "libze_loader.so"],
    },
    Driver {
        package: "hetccl-emulated-nvml",
        built: "libhetccl_emulated_nvml.so",
        names: &["libnvidia-ml.so.1", "libnvidia-ml.so"],
    },
];

/// Builds the drivers and runs the program, if there is one. Whether it succeeded.
///
/// # Errors
/// A failed build, a folder that can't be written, or a program that can't be started.
pub fn run(args: &Args) -> Result<bool> {
    let folder = libraries()?;
    let Some((program, arguments)) = args.program.split_first() else {
        if !args.print_path {
            println!("Emulated GPU drivers, for LD_LIBRARY_PATH:");
        }
        println!("{}", folder.display());
        return Ok(true);
    };
    let mut command = Command::new(program);
    command.args(arguments).env("LD_LIBRARY_PATH", library_path(&folder));
    let status = command.status().with_context(|| format!("could not start {program}"))?;
    if args.print_path {
        println!("{}", folder.display());
    }
    Ok(status.success())
}

/// The folder for the drivers.
pub fn folder() -> PathBuf {
    command::target_dir().join("emulator")
}

/// Builds the drivers and returns the folder that has them under the names that programs load.
///
/// # Errors
/// A failed build, or a folder that can't be written.
pub fn libraries() -> Result<PathBuf> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut build = Command::new(cargo);
    build.current_dir(command::root()).args(["build", "--quiet", "--release"]);
    for driver in DRIVERS {
        build.args(["--package", driver.package]);
    }
    command::run(&mut build)?;
    let built = command::target_dir().join("release");
    let folder = folder();
    std::fs::create_dir_all(&folder).with_context(|| format!("creating {}", folder.display()))?;
    let folder = folder.canonicalize()?;
    for Driver { built: file, names, .. } in DRIVERS {
        let new = folder.join(format!("{file}.{}", std::process::id()));
        std::fs::copy(built.join(file), &new)
            .with_context(|| format!("copying {file} to {}", folder.display()))?;
        replace(&new, &folder.join(names[0]))?;
        for name in &names[1..] {
            std::os::unix::fs::symlink(names[0], &new)?;
            replace(&new, &folder.join(name))?;
        }
    }
    Ok(folder)
}

/// Lets a program find the emulated drivers and their kernels, which are built at the first use.
///
/// # Errors
/// A failed build.
pub fn devices(command: &mut Command) -> Result<()> {
    static MADE: OnceLock<(PathBuf, PathBuf)> = OnceLock::new();
    let (libraries, kernels) = match MADE.get() {
        Some(made) => made,
        None => {
            let made = (libraries()?, kernels::host_library()?);
            MADE.get_or_init(|| made)
        }
    };
    command.env("LD_LIBRARY_PATH", library_path(libraries));
    command.env("HETCCL_EMULATOR_KERNELS", kernels);
    Ok(())
}

/// Lets each rank of an `mpirun`, to which the program is still to be added, see the devices of its vendor alone: `cuda`, `rocm`,
/// `level-zero`, or `host` for none.
pub fn by_vendor(mpirun: &mut Command, vendors: &[&str]) {
    mpirun.env("VENDORS", vendors.join(" ")).args(["sh", "-c", BY_VENDOR, "sh"]);
}

/// Starts a program with the driver of the rank's vendor alone; `$VENDORS` has one word a rank.
const BY_VENDOR: &str = r#"
set_vendor() { shift "$OMPI_COMM_WORLD_RANK"; vendor=$1; }
set_vendor $VENDORS
[ "$vendor" = cuda ] || export HETCCL_EMULATOR_CUDA_DEVICES=0
[ "$vendor" = rocm ] || export HETCCL_EMULATOR_HIP_DEVICES=0
[ "$vendor" = level-zero ] || export HETCCL_EMULATOR_LEVEL_ZERO_DEVICES=0
exec "$@"
"#;

/// What LD_LIBRARY_PATH must be for programs to find the drivers first.
pub fn library_path(folder: &Path) -> String {
    match std::env::var("LD_LIBRARY_PATH") {
        Ok(before) if !before.is_empty() => format!("{}:{before}", folder.display()),
        _ => folder.display().to_string(),
    }
}

/// In one step, so that a running program keeps the old file.
fn replace(from: &Path, to: &Path) -> Result<()> {
    std::fs::rename(from, to).with_context(|| format!("replacing {}", to.display()))
}
