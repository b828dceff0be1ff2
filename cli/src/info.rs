//! `hetccl info`: what this build is and what it finds on this host.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use hetccl_runtime::core::Collective;
use hetccl_runtime::core::algorithms::{self, Scope};
use hetccl_runtime::{
    GpuChoice, GpuPath, HierarchyChoice, SETTINGS, Settings, SharedMemory, TransportChoice,
};
use serde::Serialize;

#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  hetccl info\n  hetccl info --algorithms\n  hetccl info --json | jq .ucx"
)]
pub struct Args {
    /// Print everything as JSON
    #[arg(long)]
    json: bool,
    /// List every algorithm of every collective
    #[arg(long)]
    algorithms: bool,
    /// List every setting
    #[arg(long)]
    settings: bool,
}

/// Everything that `hetccl info` knows. Sizes in bytes.
#[derive(Serialize)]
struct Info {
    version: &'static str,
    host: Host,
    component: Found,
    open_mpi: Found,
    ucx: Found,
    tested: Vec<Tested>,
    algorithms: Vec<AlgorithmInfo>,
    settings: Vec<SettingInfo>,
}

#[derive(Serialize)]
struct Host {
    name: String,
    cpus: usize,
    shared_memory_bytes: Option<u64>,
}

/// Something that is there, or why not.
#[derive(Serialize)]
struct Found {
    found: bool,
    /// Version and place, or what was looked for and what to do.
    detail: String,
}

/// What the tests of this version ran on.
#[derive(Serialize)]
struct Tested {
    what: &'static str,
    how: &'static str,
}

#[derive(Serialize)]
struct AlgorithmInfo {
    collective: &'static str,
    communicator: &'static str,
    name: &'static str,
    summary: &'static str,
}

#[derive(Serialize)]
struct SettingInfo {
    name: String,
    default: String,
    help: String,
}

/// Collects and prints.
///
/// # Errors
/// When the output can't be written.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let info = collect();
    let mut out = std::io::stdout().lock();
    let written = if args.json {
        serde_json::to_writer_pretty(&mut out, &info)
            .map_err(Into::into)
            .and_then(|()| writeln!(out))
    } else {
        print(&info, args, &mut out)
    };
    match written {
        // Whoever reads us has had enough, such as `head`.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        other => Ok(other?),
    }
}

fn collect() -> Info {
    Info {
        version: env!("CARGO_PKG_VERSION"),
        host: host(),
        component: component(),
        open_mpi: open_mpi(),
        ucx: ucx(),
        tested: tested(),
        algorithms: algorithm_list(),
        settings: setting_list(),
    }
}

fn host() -> Host {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    Host {
        name: name.trim().to_owned(),
        cpus: std::thread::available_parallelism().map_or(1, usize::from),
        shared_memory_bytes: shared_memory_bytes(),
    }
}

/// Size of /dev/shm, as `df` says it.
pub(crate) fn shared_memory_bytes() -> Option<u64> {
    let output = output_of("df", &["--output=size", "--block-size=1", "/dev/shm"]).ok()?;
    output.lines().nth(1)?.trim().parse().ok()
}

/// The component of this installation: `lib/openmpi` beside the `bin` that this program is in.
fn component() -> Found {
    let name = "lib/openmpi/mca_coll_hetccl.so";
    let installed = std::env::current_exe()
        .ok()
        .and_then(|exe| exe.canonicalize().ok())
        .and_then(|exe| Some(exe.parent()?.parent()?.join(name)));
    match installed {
        Some(path) if path.is_file() => found(path.display().to_string()),
        Some(path) => missing(format!(
            "looked for {}; `cargo xtask install --prefix DIR` puts the program and the component there",
            path.display()
        )),
        None => missing("this program's own place is unknown".into()),
    }
}

fn open_mpi() -> Found {
    match output_of("ompi_info", &["--version"]) {
        Ok(text) => {
            let version = text.lines().next().unwrap_or_default().trim().to_owned();
            let place = find_program("ompi_info").map(|p| format!(", {}", p.display()));
            found(version + &place.unwrap_or_default())
        }
        Err(why) => {
            missing(format!("{why}; install Open MPI (Debian: openmpi-bin) or add it to PATH"))
        }
    }
}

fn ucx() -> Found {
    match hetccl_runtime::ucx_version() {
        Ok(version) => found(version),
        Err(why) => missing(format!("{why}; without it Open MPI's own messages carry the data")),
    }
}

/// Kept by hand: what the project's tests of this version ran on. `docs/hardware-runs.md` has the runs.
fn tested() -> Vec<Tested> {
    vec![
        Tested {
            what: "MPI collectives on host memory",
            how: "run on Open MPI 4.1.4 over UCX 1.13.1 (shared memory, TCP) and over the PML",
        },
        Tested {
            what: "NVIDIA GPU memory",
            how: "run on one H200, 1 to 4 ranks on it, driver 580; several devices only emulated",
        },
        Tested {
            what: "AMD GPU memory",
            how: "never run on an AMD GPU; emulated, and the kernels compiled for gfx90a to gfx1201",
        },
        Tested {
            what: "Intel GPU memory",
            how: "never run on an Intel GPU; emulated, and the kernels run as SPIR-V on a processor",
        },
        Tested { what: "InfiniBand, RoCE", how: "never run; UCX would be asked to use them" },
    ]
}

fn algorithm_list() -> Vec<AlgorithmInfo> {
    Collective::ALL
        .iter()
        .flat_map(|&collective| algorithms::of(collective).map(move |a| (collective, a)))
        .map(|(collective, a)| AlgorithmInfo {
            collective: collective.name(),
            communicator: match a.scope {
                Scope::Intra => "intra",
                Scope::Inter => "inter",
            },
            name: a.name,
            summary: a.summary,
        })
        .collect()
}

fn setting_list() -> Vec<SettingInfo> {
    let defaults = Settings::default();
    let word = |name: &str, default: &str, help: String| SettingInfo {
        name: name.into(),
        default: default.into(),
        help,
    };
    let words = [
        word("priority", "0", "0: take part only when named in --mca coll; below: never".into()),
        word("verbose", "0", "0: errors; 1: the wire and why; 2: also algorithms".into()),
        word(
            "transport",
            "auto",
            format!("What carries messages: {}", TransportChoice::NAMES.join(", ")),
        ),
        word(
            "shared_memory",
            "auto",
            format!(
                "Memory that ranks of one node share for blocking collectives: {}",
                SharedMemory::NAMES.join(", ")
            ),
        ),
        word(
            "gpus",
            "auto",
            format!("Whether GPUs are looked for: {}", GpuChoice::NAMES.join(", ")),
        ),
        word(
            "gpu_path",
            "auto",
            format!("How device buffers reach each other: {}", GpuPath::NAMES.join(", ")),
        ),
        word(
            "hierarchy",
            "auto",
            format!(
                "Whether collectives go by the groups of one vendor's ranks: {}",
                HierarchyChoice::NAMES.join(", ")
            ),
        ),
    ];
    let algorithms = Collective::ALL.iter().map(|&c| SettingInfo {
        name: format!("{}_algorithm", c.name()),
        default: "auto".into(),
        help: {
            let intra = algorithms::of(c).filter(|a| a.scope == Scope::Intra);
            format!("auto, {}", intra.map(|a| a.name).collect::<Vec<_>>().join(", "))
        },
    });
    let numbers = SETTINGS.iter().map(|s| SettingInfo {
        name: s.name.into(),
        default: (s.get)(&defaults).to_string(),
        help: s.help.into(),
    });
    words.into_iter().chain(algorithms).chain(numbers).collect()
}

fn print(info: &Info, args: &Args, out: &mut impl Write) -> std::io::Result<()> {
    writeln!(out, "hetccl {}", info.version)?;
    let mib = info.host.shared_memory_bytes.map(|b| format!(", /dev/shm {} MiB", b >> 20));
    writeln!(
        out,
        "host       {}, {} CPUs{}",
        info.host.name,
        info.host.cpus,
        mib.unwrap_or_default()
    )?;
    for (name, item) in
        [("component", &info.component), ("Open MPI", &info.open_mpi), ("UCX", &info.ucx)]
    {
        let mark = if item.found { "yes" } else { "no" };
        writeln!(out, "{name:<10} {mark}: {}", item.detail)?;
    }
    writeln!(out, "\nTested on")?;
    for tested in &info.tested {
        writeln!(out, "  {}: {}", tested.what, tested.how)?;
    }
    if args.algorithms {
        print_algorithms(info, out)?;
    }
    if args.settings {
        writeln!(out, "\nSettings (as MCA parameters: --mca coll_hetccl_NAME VALUE)")?;
        for s in &info.settings {
            writeln!(out, "  {} [{}]\n      {}", s.name, s.default, s.help)?;
        }
    }
    if !args.algorithms && !args.settings {
        writeln!(out, "\nMore: --algorithms, --settings, --json")?;
    }
    Ok(())
}

fn print_algorithms(info: &Info, out: &mut impl Write) -> std::io::Result<()> {
    writeln!(out, "\nAlgorithms")?;
    let mut last = "";
    for a in &info.algorithms {
        if a.collective != last {
            writeln!(out, "  {}", a.collective)?;
            last = a.collective;
        }
        writeln!(out, "    {:<22} {:<6} {}", a.name, a.communicator, a.summary)?;
    }
    Ok(())
}

fn found(detail: String) -> Found {
    Found { found: true, detail }
}

fn missing(detail: String) -> Found {
    Found { found: false, detail }
}

fn output_of(program: &str, args: &[&str]) -> Result<String, String> {
    let output =
        Command::new(program).args(args).output().map_err(|e| format!("{program}: {e}"))?;
    if !output.status.success() {
        return Err(format!("{program} ended with {}", output.status));
    }
    String::from_utf8(output.stdout).map_err(|_| format!("{program} printed something unreadable"))
}

fn find_program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|dir| dir.join(name)).find(|p: &PathBuf| Path::is_file(p))
}
