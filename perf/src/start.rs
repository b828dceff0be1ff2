//! Which rank this is; and ranks of its own, when nobody has started any.

use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitCode};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::foreign::Foreign;
use crate::library::nccl::{self, UniqueId};
use crate::options::{Plan, Via};

/// How a rank that this program started knows what it is.
const RANK: &str = "HETCCL_PERF_RANK";
const ID: &str = "HETCCL_PERF_ID";

/// What launchers that libmpi knows set in every rank.
const LAUNCHED: [&str; 3] = ["OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PRTE_RANK"];

/// What this process is.
pub(crate) enum Place {
    /// One of the ranks.
    Rank(Rank),
    /// Started by a person.
    Alone,
}

/// Who makes the ranks meet.
pub(crate) enum Rank {
    /// libmpi.
    ByMpi,
    /// The parent, which made the id.
    ByParent { rank: usize, id: UniqueId },
}

pub(crate) fn place(plan: &Plan) -> Result<Place> {
    if let Ok(rank) = std::env::var(RANK) {
        let rank: usize = rank.parse().with_context(|| format!("{RANK} is {rank:?}"))?;
        let id = std::env::var(ID).with_context(|| format!("{RANK} is set, and {ID} is not"))?;
        if rank >= plan.ranks {
            bail!("{RANK} is {rank}, of {} ranks", plan.ranks);
        }
        return Ok(Place::Rank(Rank::ByParent { rank, id: from_hex(&id)? }));
    }
    Ok(if launched() { Place::Rank(Rank::ByMpi) } else { Place::Alone })
}

/// Whether a launcher that libmpi knows has started this process.
pub(crate) fn launched() -> bool {
    LAUNCHED.iter().any(|name| std::env::var_os(name).is_some())
}

/// The rank's number on its host, as launchers say it.
pub(crate) fn local_rank(rank: usize) -> usize {
    ["OMPI_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID"]
        .iter()
        .find_map(|name| std::env::var(name).ok()?.parse().ok())
        .unwrap_or(rank)
}

/// Starts the ranks and waits for them.
pub(crate) fn ranks(plan: &Plan) -> Result<ExitCode> {
    match plan.via {
        Via::Mpi => mpirun(plan.ranks),
        Via::Nccl => processes(plan),
    }
}

/// Becomes mpirun.
pub(crate) fn mpirun(ranks: usize) -> Result<ExitCode> {
    let program = std::env::current_exe().context("finding this program's own file")?;
    let path = std::env::var_os("PATH").unwrap_or_default();
    let there =
        |name: &&&str| std::env::split_paths(&path).any(|folder| folder.join(name).is_file());
    // Where several MPIs are installed, Debian calls them so.
    let Some(name) = ["mpirun.openmpi", "mpirun"].iter().find(there) else {
        bail!("no mpirun on PATH: install Open MPI (Debian: openmpi-bin), or load its module");
    };
    let mut run = Command::new(name);
    run.args(["--mca", "coll", "hetccl", "-n", &ranks.to_string()]);
    if ranks > std::thread::available_parallelism().map_or(1, usize::from) {
        run.arg("--oversubscribe");
    }
    // An installation at a prefix of its own: Open MPI is told where the component is, unless the user has done that.
    const COMPONENTS: &str = "OMPI_MCA_mca_base_component_path";
    let beside = program.parent().and_then(|bin| Some(bin.parent()?.join("lib/openmpi")));
    if let Some(folder) = beside.filter(|folder| folder.join("mca_coll_hetccl.so").is_file())
        && std::env::var_os(COMPONENTS).is_none()
        && let Some(own) = component_folder()
    {
        run.env(COMPONENTS, format!("{}:{own}", folder.display()));
        // From Open MPI 5 on PMIx takes that path for its own unless it has one.
        let empty = folder.with_file_name("pmix");
        if empty.is_dir() {
            run.env("PMIX_MCA_mca_base_component_path", empty);
        }
    }
    run.arg(program).args(std::env::args_os().skip(1));
    Err(run.exec()).with_context(|| format!("could not start {name}"))
}

/// Open MPI's own folder of components.
fn component_folder() -> Option<String> {
    let output =
        Command::new("ompi_info").args(["--parsable", "--path", "pkglibdir"]).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    Some(text.trim().strip_prefix("path:pkglibdir:")?.to_owned())
}

/// One process a rank; this one makes the id and serves them.
fn processes(plan: &Plan) -> Result<ExitCode> {
    let library = plan.library(plan.memory_of(0))?;
    let library = Foreign::open(&[&library.to_string_lossy()], false)?;
    let id = to_hex(&nccl::unique_id(&library)?);
    let program = std::env::current_exe().context("finding this program's own file")?;
    let mut running = Vec::new();
    for rank in 0..plan.ranks {
        let mut command = Command::new(&program);
        command.args(std::env::args_os().skip(1)).env(RANK, rank.to_string()).env(ID, &id);
        running.push((rank, command.spawn().with_context(|| format!("starting rank {rank}"))?));
    }
    wait(running)
}

/// Until all are done, or one has failed: then the others get a moment to say what they saw, and are ended.
fn wait(mut running: Vec<(usize, Child)>) -> Result<ExitCode> {
    const MOMENT: u32 = 100;
    let (mut worst, mut moments) = (0, 0);
    while !running.is_empty() {
        let mut still = Vec::new();
        for (rank, mut child) in running {
            match child.try_wait().with_context(|| format!("waiting for rank {rank}"))? {
                None => still.push((rank, child)),
                Some(status) if status.success() => {}
                Some(status) => {
                    let code = status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1);
                    if code != crate::WRONG_RESULT {
                        eprintln!("hetccl: rank {rank} ended with {status}");
                    }
                    worst = if worst == 1 { 1 } else { code };
                }
            }
        }
        running = still;
        std::thread::sleep(Duration::from_millis(20));
        if worst != 0 {
            moments += 1;
            if moments > MOMENT {
                for (_, child) in &mut running {
                    child.kill().context("ending a rank whose peer has failed")?;
                }
            }
        }
    }
    Ok(ExitCode::from(worst))
}

fn to_hex(id: &UniqueId) -> String {
    id.0.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn from_hex(text: &str) -> Result<UniqueId> {
    let mut id = UniqueId([0; 128]);
    if text.len() != 256 || !text.is_ascii() {
        bail!("{ID} has {} characters, not 256", text.len());
    }
    for (byte, digits) in id.0.iter_mut().zip(text.as_bytes().chunks(2)) {
        let digits = std::str::from_utf8(digits).context("reading the id")?;
        *byte = u8::from_str_radix(digits, 16).with_context(|| format!("{ID} has {digits:?}"))?;
    }
    Ok(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_survives_the_environment() {
        let id = UniqueId(std::array::from_fn(|i| i as u8 ^ 0xa5));
        assert_eq!(from_hex(&to_hex(&id)).unwrap().0, id.0);
        assert!(from_hex("12").is_err());
    }
}
