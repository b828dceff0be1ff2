//! `cargo xtask test-failures`: what the other ranks hear when one fails in a collective, and after what time.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Result, bail};

use crate::mpi::{self, Library};
use crate::{command, emulate, install};

/// The collectives of `tests/c/failures.c`.
pub const COLLECTIVES: [&str; 16] = [
    "barrier",
    "bcast",
    "allreduce",
    "reduce",
    "scan",
    "exscan",
    "allgather",
    "allgatherv",
    "gather",
    "gatherv",
    "scatter",
    "scatterv",
    "alltoall",
    "alltoallv",
    "reduce_scatter",
    "reduce_scatter_block",
];

/// Ways of messages: a name, the transport, shared memory, the kind of buffers.
pub const WAYS: [Way; 4] = [
    Way { name: "shared memory", transport: "auto", shared: "auto", memory: "host" },
    Way { name: "ucx", transport: "ucx", shared: "off", memory: "host" },
    Way { name: "pml", transport: "pml", shared: "off", memory: "host" },
    Way { name: "emulated CUDA over ucx", transport: "ucx", shared: "off", memory: "cuda" },
];

/// Forms of a collective.
pub const FORMS: [&str; 3] = ["blocking", "nonblocking", "persistent"];

/// How a case's messages travel.
#[derive(Clone, Copy, Debug)]
pub struct Way {
    /// For people.
    pub name: &'static str,
    /// `coll_hetccl_transport`.
    pub transport: &'static str,
    /// `coll_hetccl_shared_memory`.
    pub shared: &'static str,
    /// Kind of buffers.
    pub memory: &'static str,
}

/// Which part of the matrix.
#[derive(clap::Args)]
pub struct Args {
    /// Only these collectives
    #[arg(long, value_delimiter = ',')]
    collectives: Vec<String>,
    /// Only these ranks
    #[arg(long, value_delimiter = ',', default_value = "0,1,2,3")]
    victims: Vec<usize>,
    /// Only ways whose name begins so
    #[arg(long, default_value = "")]
    way: String,
    /// Only these forms of the collectives
    #[arg(long, value_delimiter = ',', default_values = FORMS)]
    forms: Vec<String>,
    /// Only these kinds of failure
    #[arg(long, value_delimiter = ',', default_value = "killed,stopped")]
    kinds: Vec<String>,
    /// An installation, instead of one of what is here
    #[arg(long)]
    prefix: Option<PathBuf>,
}

/// What the ranks of one case have said.
#[derive(Debug)]
pub struct Heard {
    /// (rank, MPI error class, milliseconds) of the calls that failed.
    pub failed: Vec<(usize, i32, u64)>,
    /// Ranks whose call has ended well: their part of the collective did not need the victim.
    pub done: Vec<usize>,
    /// All that was printed.
    pub text: String,
}

/// Ranks of every case.
const RANKS: usize = 4;
const LIMIT: Duration = Duration::from_secs(30);

/// Runs one case: `kind`, `collective`, `victim` and form as `tests/c/failures.c` has them.
///
/// # Errors
/// It can't be started or does not end in time.
pub fn case(
    prefix: &Path,
    program: &Path,
    way: Way,
    (kind, collective, victim, form): (&str, &str, usize, &str),
    parameters: &[&str],
) -> Result<Heard> {
    let library = Library::Hetccl { prefix, transport: way.transport };
    let mut mpirun = mpi::mpirun(library, RANKS, LIMIT);
    // Otherwise mpirun ends everybody when one dies.
    mpirun.args(["--mca", "orte_abort_on_non_zero_status", "0"]);
    mpirun.args(["--mca", "coll_hetccl_shared_memory", way.shared]);
    if way.memory != "host" {
        emulate::devices(&mut mpirun)?;
    }
    for pair in parameters.chunks(2) {
        mpirun.arg("--mca").args(pair);
    }
    mpirun.arg(program).args([kind, collective, &victim.to_string(), way.memory, form]);
    let output = command::output(&mut mpirun)?;
    let text = format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    let mut heard = Heard { failed: Vec::new(), done: Vec::new(), text };
    for line in heard.text.lines() {
        if let Some(failed) = failure(line) {
            heard.failed.push(failed);
        } else if let Some(rank) = line.strip_prefix("rank ").and_then(|l| l.split_once(": ok ")) {
            heard.done.extend(rank.0.parse::<usize>().ok());
        }
    }
    Ok(heard)
}

/// `rank R: class C after T ms`
pub(crate) fn failure(line: &str) -> Option<(usize, i32, u64)> {
    let (rank, rest) = line.strip_prefix("rank ")?.split_once(": class ")?;
    let (class, time) = rest.split_once(" after ")?;
    Some((rank.parse().ok()?, class.parse().ok()?, time.strip_suffix(" ms")?.parse().ok()?))
}

/// The matrix; whether every surviving rank has come to an end each time.
///
/// # Errors
/// Something can't be built or started.
pub fn run(args: &Args) -> Result<bool> {
    if !mpi::available(Library::OpenMpi) {
        println!("SKIPPED failures: no mpicc and mpirun of Open MPI on PATH");
        return Ok(true);
    }
    let prefix = install::or_release(args.prefix.as_deref())?;
    let program = mpi::compile("failures", Library::OpenMpi)?;
    if let Some(unknown) = args.collectives.iter().find(|c| !COLLECTIVES.contains(&c.as_str())) {
        bail!("no collective {unknown}; there are {}", COLLECTIVES.join(", "));
    }
    let before = leftovers();
    let mut tally = Tally::default();
    for way in WAYS.iter().filter(|way| way.name.starts_with(&args.way)) {
        for (form, kind) in args.forms.iter().flat_map(|f| args.kinds.iter().map(move |k| (f, k))) {
            let mut row = Tally::default();
            for collective in COLLECTIVES.into_iter().filter(|&name| args.takes(name)) {
                for &victim in &args.victims {
                    let what = (kind.as_str(), collective, victim, form.as_str());
                    row.add(*way, what, &case(&prefix, &program, *way, what, &QUICK)?);
                }
            }
            println!("{}, {form}, {kind}: {row}", way.name);
            tally.join(&row);
        }
    }
    let left = leftovers().saturating_sub(before);
    println!("{tally}, {left} files left in /dev/shm");
    Ok(tally.endless == 0 && left == 0)
}

/// A stopped process is given up after so long.
const QUICK: [&str; 2] = ["coll_hetccl_peer_timeout_seconds", "1"];

impl Args {
    fn takes(&self, collective: &str) -> bool {
        self.collectives.is_empty() || self.collectives.iter().any(|name| name == collective)
    }
}

/// What some cases have shown.
#[derive(Debug, Default)]
struct Tally {
    cases: usize,
    endless: usize,
    errors: usize,
    unconcerned: usize,
    /// Times to all errors, ms.
    times_ms: Vec<u64>,
}

impl Tally {
    fn add(
        &mut self,
        way: Way,
        (kind, collective, victim, form): (&str, &str, usize, &str),
        heard: &Heard,
    ) {
        let ended = heard.failed.len() + heard.done.len() == RANKS - 1;
        let slowest = heard.failed.iter().map(|failed| failed.2).max().unwrap_or(0);
        self.cases += 1;
        self.endless += usize::from(!ended);
        self.errors += heard.failed.len();
        self.unconcerned += heard.done.len();
        self.times_ms.extend(heard.failed.iter().map(|failed| failed.2));
        println!(
            "{}{kind} rank {victim} in {form} {collective}, {}: {} errors, {} did not need it, slowest {slowest} ms",
            if ended { "" } else { "FAILED " },
            way.name,
            heard.failed.len(),
            heard.done.len()
        );
        if !ended {
            println!("{}", heard.text);
        }
    }

    fn join(&mut self, other: &Tally) {
        self.cases += other.cases;
        self.endless += other.endless;
        self.errors += other.errors;
        self.unconcerned += other.unconcerned;
        self.times_ms.extend(&other.times_ms);
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut times = self.times_ms.clone();
        times.sort_unstable();
        let median = times.get(times.len() / 2).copied().unwrap_or(0);
        let slowest = times.last().copied().unwrap_or(0);
        write!(
            f,
            "{} cases, {} without an end; {} ranks had an error (median after {median} ms, slowest {slowest} ms), {} did not \
             need the rank",
            self.cases, self.endless, self.errors, self.unconcerned
        )
    }
}

/// hetccl's files in /dev/shm; other processes of this machine may have some of their own, but only for a moment.
pub fn leftovers() -> usize {
    let names = std::fs::read_dir("/dev/shm").into_iter().flatten().flatten();
    names.filter(|file| file.file_name().to_string_lossy().starts_with("hetccl-segment")).count()
}
