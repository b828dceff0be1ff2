//! Compiling and starting MPI programs.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::command::{self, exists};

/// An MPI library and what runs its collectives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Library<'a> {
    /// Open MPI with hetccl alone, installed in a prefix, on a transport.
    Hetccl {
        /// The installation.
        prefix: &'a Path,
        /// `auto`, `ucx` or `pml`.
        transport: &'a str,
    },
    /// Open MPI as it is.
    OpenMpi,
    /// MPICH.
    Mpich,
}

impl Library<'_> {
    const fn suffix(self) -> &'static str {
        match self {
            Library::Mpich => ".mpich",
            Library::Hetccl { .. } | Library::OpenMpi => ".openmpi",
        }
    }
}

/// `mpirun.openmpi` where a distribution installs several MPIs, otherwise `mpirun`.
fn program(name: &str, library: Library<'_>) -> String {
    let exact = format!("{name}{}", library.suffix());
    if exists(&exact) || matches!(library, Library::Mpich) { exact } else { name.to_owned() }
}

/// Whether the library's compiler and launcher are installed.
pub fn available(library: Library<'_>) -> bool {
    exists(&program("mpicc", library)) && exists(&program("mpirun", library))
}

/// Where Open MPI looks for components when nobody says anything.
pub fn default_component_path() -> String {
    let mut ask = Command::new(program("ompi_info", Library::OpenMpi));
    ask.args(["--parsable", "--param", "mca", "base", "--level", "9"]);
    let line_start = "mca:mca:base:param:mca_base_component_path:value:";
    command::capture(&mut ask)
        .ok()
        .and_then(|text| {
            let value = text.lines().find_map(|line| line.strip_prefix(line_start))?;
            Some(value.trim_matches('"').to_owned())
        })
        .unwrap_or_default()
}

/// Major and minor number of the Open MPI here.
pub fn version() -> Option<(u32, u32)> {
    let mut ask = Command::new(program("ompi_info", Library::OpenMpi));
    let text = command::capture(ask.arg("--version")).ok()?;
    // "Open MPI v5.0.7"
    let word = text.split_whitespace().find(|word| word.starts_with('v'))?;
    let mut numbers = word[1..].split('.').map(|number| number.parse().ok());
    Some((numbers.next()??, numbers.next()??))
}

/// What must be in the environment so that Open MPI finds the component of an installation; `default` is the path that Open MPI
/// has without it.
///
/// From 5.0 on PMIx takes the same path for its own, and complains of every component in it that is not PMIx's. It gets a
/// empty folder instead; its own it finds all the same.
pub fn component_environment(prefix: &str, default: &str) -> Vec<(&'static str, String)> {
    let path = format!("{prefix}/lib/openmpi:{default}");
    let mut environment = vec![("OMPI_MCA_mca_base_component_path", path)];
    if version().is_some_and(|(major, _)| major >= 5) {
        environment.push(("PMIX_MCA_mca_base_component_path", format!("{prefix}/lib/pmix")));
    }
    environment
}

/// A number of ranks that `mpirun` can start.
///
/// # Errors
/// What is wrong with it.
pub fn parse_ranks(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(ranks) if (1..=1024).contains(&ranks) => Ok(ranks),
        _ => Err("a number from 1 to 1024 is wanted".to_owned()),
    }
}

/// Compiles `tests/c/<name>.c` and returns the program.
///
/// # Errors
/// A missing compiler, or its messages.
pub fn compile(name: &str, library: Library<'_>) -> Result<PathBuf> {
    let source = command::root().join("tests/c").join(name).with_extension("c");
    let folder = command::target_dir().join("mpi").join(library.suffix().trim_start_matches('.'));
    std::fs::create_dir_all(&folder).with_context(|| format!("creating {}", folder.display()))?;
    let program_path = folder.join(name);
    let mut cc = Command::new(program("mpicc", library));
    cc.args(["-O2", "-Wall", "-Wextra", "-Werror", "-Wno-stringop-overread", "-o"])
        .arg(&program_path)
        .arg(&source)
        .arg("-lm");
    command::capture(&mut cc)?;
    Ok(program_path)
}

/// Frees `mpirun` from the caller's own MPI settings and lets root use it.
fn clean(command: &mut Command) {
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if ["OMPI_", "PMIX_", "PRTE_", "HETCCL_"].iter().any(|prefix| text.starts_with(prefix)) {
            command.env_remove(&name);
        }
    }
    if command::is_root() {
        command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
    }
}

/// `mpirun -n ranks` of a library, with a time limit; the program and its arguments are to be added.
pub fn mpirun(library: Library<'_>, ranks: usize, limit: Duration) -> Command {
    mpirun_with(library, "hetccl", ranks, limit)
}

/// As [`mpirun`], with these collective components where hetccl takes part.
pub fn mpirun_with(
    library: Library<'_>,
    components: &str,
    ranks: usize,
    limit: Duration,
) -> Command {
    let mut command = command::limited(program("mpirun", library), limit);
    clean(&mut command);
    let oversubscribe = matches!(library, Library::Hetccl { .. } | Library::OpenMpi);
    if oversubscribe {
        command.arg("--oversubscribe");
    }
    if let Library::Hetccl { prefix, transport } = library {
        let prefix = prefix.display().to_string();
        command.envs(component_environment(&prefix, &default_component_path()));
        command.args(["--mca", "coll", components, "--mca", "coll_hetccl_transport", transport]);
    }
    command.args(["-n", &ranks.to_string()]);
    command
}

/// As [`mpirun_with`], by the Open MPI of a wheel of PyPI's in a Python environment. Such an Open MPI loads no components, so
/// hetccl's is preloaded. Programs compiled with a distribution's Open MPI of the same line run with it.
pub fn mpirun_of_wheel(
    environment: &Path,
    library: Library<'_>,
    components: &str,
    ranks: usize,
    limit: Duration,
) -> Command {
    let mut command = command::limited(environment.join("bin/mpirun"), limit);
    clean(&mut command);
    command.env("LD_LIBRARY_PATH", environment.join("lib"));
    command.args(["--oversubscribe", "-x", "LD_LIBRARY_PATH"]);
    if let Library::Hetccl { prefix, transport } = library {
        let component = prefix.join("lib/openmpi").join(crate::install::COMPONENT);
        command.args(["-x", &format!("LD_PRELOAD={}", component.display())]);
        command.args(["--mca", "coll", components, "--mca", "coll_hetccl_transport", transport]);
    }
    command.args(["-n", &ranks.to_string()]);
    command
}

/// Runs a program under `mpirun` and returns its standard output.
///
/// # Errors
/// When it does not succeed in time; the error holds the end of what it printed.
pub fn run(
    library: Library<'_>,
    ranks: usize,
    limit: Duration,
    program: &Path,
    arguments: &[&str],
) -> Result<String> {
    let mut command = mpirun(library, ranks, limit);
    command.arg(program).args(arguments);
    finish(&mut command, limit)
}

/// Runs a command with a time limit and returns its standard output.
///
/// # Errors
/// As for [`run`].
pub fn finish(command: &mut Command, limit: Duration) -> Result<String> {
    let output = command::output(command)?;
    if !output.status.success() {
        let why = match output.status.code() {
            Some(124 | 137) => format!("did not end within {} s", limit.as_secs()),
            _ => format!("ended with {}", output.status),
        };
        bail!("{}\n  {why}\n{}", command::describe(command), command::tail(&output));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
