//! `hetccl info`: what this build is and what it finds on this host.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use hetccl_runtime::core::Collective;
use hetccl_runtime::core::algorithms::{self, Scope};
use hetccl_runtime::{
    PRIORITY_HELP, SETTINGS, Settings, VERBOSE_HELP, WORD_SETTINGS, algorithm_setting,
};
use serde::Serialize;

use crate::topology::Tree;

#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  hetccl info\n  hetccl info --algorithms\n  hetccl info --json | jq .topology"
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
    topology: Tree,
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

/// A setting, as users set it: the name without `coll_hetccl_`.
#[derive(Serialize)]
pub(crate) struct SettingInfo {
    pub(crate) name: String,
    pub(crate) default: String,
    pub(crate) help: String,
}

/// Collects and prints.
///
/// # Errors
/// When the output can't be written.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let info = collect();
    let mut text = Vec::new();
    if args.json {
        serde_json::to_writer_pretty(&mut text, &info)?;
        writeln!(text)?;
    } else {
        print(&info, args, &mut text)?;
    }
    print_all(&text)
}

/// Prints; that whoever reads has had enough, such as `head`, is no error.
///
/// # Errors
/// When the output can't be written.
pub(crate) fn print_all(text: &[u8]) -> anyhow::Result<()> {
    match std::io::stdout().lock().write_all(text) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}

fn collect() -> Info {
    Info {
        version: env!("CARGO_PKG_VERSION"),
        host: host(),
        component: component(),
        open_mpi: open_mpi(),
        // UCX first: it is only looked for while this process has one thread, and drivers start some.
        ucx: ucx(),
        topology: Tree::here(),
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

/// The component: `lib/openmpi` beside the `bin` that this program is in, or where Open MPI looks by itself.
fn component() -> Found {
    const NAME: &str = "mca_coll_hetccl.so";
    let beside = std::env::current_exe()
        .ok()
        .and_then(|exe| exe.canonicalize().ok())
        .and_then(|exe| Some(exe.parent()?.parent()?.join("lib/openmpi").join(NAME)));
    let own = output_of("ompi_info", &["--parsable", "--path", "pkglibdir"])
        .ok()
        .and_then(|text| Some(Path::new(text.trim().strip_prefix("path:pkglibdir:")?).join(NAME)));
    let places: Vec<PathBuf> = beside.into_iter().chain(own).collect();
    if let Some(path) = places.iter().find(|path| path.is_file()) {
        return found(path.display().to_string());
    }
    let looked: Vec<String> = places.iter().map(|path| path.display().to_string()).collect();
    missing(format!(
        "looked for {}; install the package hetccl-openmpi, or `cargo xtask install --prefix DIR`",
        looked.join(" and ")
    ))
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
            what: "NCCL library",
            how: "PyTorch 2.11 on one H200: collectives, DDP, FSDP2, graphs; otherwise emulated",
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

pub(crate) fn setting_list() -> Vec<SettingInfo> {
    let defaults = Settings::default();
    let word = |name: &str, default: &str, help: &str| SettingInfo {
        name: name.into(),
        default: default.into(),
        help: help.into(),
    };
    let kept = [word("priority", "0", PRIORITY_HELP), word("verbose", "0", VERBOSE_HELP)];
    let words = WORD_SETTINGS.iter().map(|s| word(s.name, s.words[0], s.help));
    let algorithms = Collective::ALL.iter().map(|&c| {
        let (help, _) = algorithm_setting(c);
        word(&format!("{}_algorithm", c.name()), "auto", &help)
    });
    let numbers = SETTINGS.iter().map(|s| SettingInfo {
        name: s.name.into(),
        default: (s.get)(&defaults).to_string(),
        help: s.help.into(),
    });
    kept.into_iter().chain(words).chain(algorithms).chain(numbers).collect()
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
    info.topology.print(out)?;
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
