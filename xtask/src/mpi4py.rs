//! mpi4py's own test suite under hetccl: what passes with stock Open MPI must pass.
//!
//! `tests/mpi4py/run.py` runs one test module and notes the outcome of each test on each rank as it goes, so that a
//! module that hangs still shows what it did. Stock's outcomes are kept, as they don't change.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::command::{self, step};
use crate::mpi::{self, Library};
use crate::{install, setup};

const VERSION: &str = "4.1.2";

/// One module's time; a module that takes longer is ended and its missing tests count as not run.
const MODULE_LIMIT: Duration = Duration::from_secs(90);
/// Starting processes takes seconds a test, with and without hetccl, and at times Open MPI's launcher fails or never
/// comes back ("LOOKUP timed out"), in another test each time. So there, for stock as for hetccl, tests that have not
/// passed are run again.
const SPAWNING: [&str; 3] = ["test_spawn", "test_dynproc", "test_util_pool"];
const SPAWN_LIMIT: Duration = Duration::from_secs(150);
const SPAWN_ATTEMPTS: usize = 6;

/// The part of the suite that `cargo xtask test` runs: all that is collective by name, and what communicators,
/// topologies, operations, threads and one-sided windows do with collectives underneath.
const QUICK: &[&str] = &[
    "test_cco_",
    "test_comm",
    "test_op",
    "test_ulfm",
    "test_threads",
    "test_rma",
    "test_io",
    "test_win",
    "test_msgspec",
    "test_datatype",
    "test_request",
    "test_util_pkl5",
];

/// Options.
#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    /// Numbers of ranks
    #[arg(long, value_delimiter = ',', default_values_t = [1, 2, 3, 4, 5])]
    pub ranks: Vec<usize>,
    /// Transports
    #[arg(long, value_delimiter = ',', default_values_t = ["ucx".to_owned(), "pml".to_owned()])]
    pub transport: Vec<String>,
    /// Only the part that `cargo xtask test` runs
    #[arg(long)]
    pub quick: bool,
    /// Only modules whose names start so, such as test_spawn
    #[arg(long, value_delimiter = ',')]
    pub module: Vec<String>,
}

/// Outcome by test: the worst of all ranks.
type Outcomes = BTreeMap<String, String>;

/// Runs and compares. Whether nothing fails that passes with stock Open MPI.
///
/// # Errors
/// What could not be installed or built.
pub fn run(args: &Args) -> Result<bool> {
    setup::packages(&[setup::BUILD, setup::TEST])?;
    let prefix = command::target_dir().join("prefix");
    step("building and installing", || install::release(&prefix))?;
    compare(args, &prefix)
}

/// As [`run`], with an installation that is there.
///
/// # Errors
/// When mpi4py can't be installed.
pub fn compare(args: &Args, prefix: &Path) -> Result<bool> {
    let suite = step("installing mpi4py and numpy", Suite::prepare)?;
    let modules = suite.modules(args)?;
    let mut table = Vec::new();
    let mut regressions = Vec::new();
    for &ranks in &args.ranks {
        let stock =
            step(&format!("stock Open MPI, {ranks} ranks"), || suite.stock(ranks, &modules))?;
        table.push(row("stock", ranks, &stock));
        for transport in &args.transport {
            let library = Library::Hetccl { prefix, transport };
            let ours = step(&format!("hetccl over {transport}, {ranks} ranks"), || {
                suite.outcomes(library, ranks, &modules)
            })?;
            table.push(row(transport, ranks, &ours));
            for (test, outcome) in &stock {
                let now = ours.get(test).map_or("not run", String::as_str);
                if outcome == "ok" && now != "ok" {
                    regressions.push(format!(
                        "{test}: ok with stock, {now} over {transport}, {ranks} ranks"
                    ));
                }
            }
        }
    }
    println!(
        "\n{:<7} {:>5} {:>6} {:>7} {:>7} {:>8}",
        "", "ranks", "ok", "skipped", "failed", "not run"
    );
    for line in table {
        println!("{line}");
    }
    for line in &regressions {
        println!("REGRESSION {line}");
    }
    println!("{} tests fail that pass with stock Open MPI", regressions.len());
    Ok(regressions.is_empty())
}

fn row(name: &str, ranks: usize, outcomes: &Outcomes) -> String {
    let count = |word: &str| outcomes.values().filter(|o| *o == word).count();
    format!(
        "{name:<7} {ranks:>5} {:>6} {:>7} {:>7} {:>8}",
        count("ok"),
        count("skipped"),
        count("failed"),
        count("not run")
    )
}

/// mpi4py, built against the system's Open MPI, and its tests.
struct Suite {
    python: PathBuf,
    tests: PathBuf,
    folder: PathBuf,
}

impl Suite {
    fn prepare() -> Result<Suite> {
        let folder = command::target_dir().join("mpi4py");
        std::fs::create_dir_all(&folder)?;
        let folder = folder.canonicalize()?;
        let python = folder.join("venv/bin/python");
        let tests = folder.join(format!("mpi4py-{VERSION}/test"));
        let suite = Suite { python, tests, folder };
        if suite.folder.join("ready").exists() {
            return Ok(suite);
        }
        command::capture(
            Command::new("python3").args(["-m", "venv"]).arg(suite.folder.join("venv")),
        )?;
        let requirement = format!("mpi4py=={VERSION}");
        let mut install = Command::new(&suite.python);
        install.env("MPICC", mpicc());
        install.args([
            "-m",
            "pip",
            "install",
            "--quiet",
            "--no-binary",
            "mpi4py",
            &requirement,
            "numpy",
        ]);
        command::capture(&mut install).context("pip could not install mpi4py and numpy")?;
        let mut download = Command::new(&suite.python);
        download.current_dir(&suite.folder);
        download.args(["-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:"]);
        command::capture(download.arg(&requirement))?;
        let archive = format!("mpi4py-{VERSION}.tar.gz");
        command::capture(Command::new("tar").current_dir(&suite.folder).args(["xf", &archive]))?;
        std::fs::write(suite.folder.join("ready"), "")?;
        Ok(suite)
    }

    fn modules(&self, args: &Args) -> Result<Vec<String>> {
        let mut modules = Vec::new();
        for entry in std::fs::read_dir(&self.tests)? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            if let Some(module) = name.strip_suffix(".py").filter(|m| m.starts_with("test_")) {
                let starts = |list: &[&str]| list.iter().any(|start| module.starts_with(start));
                let named: Vec<&str> = args.module.iter().map(String::as_str).collect();
                if (!args.quick || starts(QUICK)) && (named.is_empty() || starts(&named)) {
                    modules.push(module.to_owned());
                }
            }
        }
        if modules.is_empty() {
            bail!("no test module in {} is called that", self.tests.display());
        }
        modules.sort();
        Ok(modules)
    }

    fn stock(&self, ranks: usize, modules: &[String]) -> Result<Outcomes> {
        let mut all = Outcomes::new();
        for module in modules {
            let kept = self.folder.join(format!("stock-{ranks}-{module}.json"));
            let outcomes = match std::fs::read_to_string(&kept) {
                Ok(text) => serde_json::from_str(&text)?,
                Err(_) => {
                    let outcomes = self.module(Library::OpenMpi, ranks, module)?;
                    std::fs::write(&kept, serde_json::to_string(&outcomes)?)?;
                    outcomes
                }
            };
            all.extend(outcomes);
        }
        Ok(all)
    }

    fn outcomes(&self, library: Library<'_>, ranks: usize, modules: &[String]) -> Result<Outcomes> {
        let mut all = Outcomes::new();
        for module in modules {
            all.extend(self.module(library, ranks, module)?);
        }
        Ok(all)
    }

    /// Runs a module; what does not end in time is "not run".
    fn module(&self, library: Library<'_>, ranks: usize, module: &str) -> Result<Outcomes> {
        let spawns = SPAWNING.contains(&module);
        let attempts = if spawns { SPAWN_ATTEMPTS } else { 1 };
        let mut outcomes = Outcomes::new();
        let mut names = vec![module.to_owned()];
        for attempt in 1..=attempts {
            let (now, output) = self.attempt(library, ranks, &names, spawns)?;
            outcomes.extend(now);
            let bad =
                |(_, outcome): &(&String, &String)| !["ok", "skipped"].contains(&outcome.as_str());
            names = outcomes.iter().filter(bad).map(|(test, _)| test.clone()).collect();
            if names.is_empty() {
                break;
            }
            let described: Vec<String> =
                names.iter().map(|test| format!("{test} {}", outcomes[test])).collect();
            if spawns {
                println!("    {module}, attempt {attempt}: {} not passed", described.len());
            }
            if attempt == attempts && !matches!(library, Library::OpenMpi) {
                println!("    {module}: {}\n{}", described.join(", "), command::tail(&output));
            }
        }
        Ok(outcomes)
    }

    /// One run of a module or of some tests.
    fn attempt(
        &self,
        library: Library<'_>,
        ranks: usize,
        names: &[String],
        spawns: bool,
    ) -> Result<(Outcomes, std::process::Output)> {
        let results = self.folder.join("results");
        let _ = std::fs::remove_dir_all(&results);
        std::fs::create_dir_all(&results)?;
        let limit = if spawns { SPAWN_LIMIT } else { MODULE_LIMIT };
        let mut command = mpi::mpirun(library, ranks, limit);
        // Processes that tests start look for the tests' own modules.
        command.env("PYTHONPATH", &self.tests);
        command.arg(&self.python).arg(command::root().join("tests/mpi4py/run.py"));
        command.arg(&self.tests).arg(&results).args(names);
        let output = command::output(&mut command)?;
        Ok((collect(&results, ranks)?, output))
    }
}

fn mpicc() -> &'static str {
    if command::exists("mpicc.openmpi") { "mpicc.openmpi" } else { "mpicc" }
}

/// Reads what each rank noted: a line `start TEST` for each test, then a line `OUTCOME TEST` as each ends.
fn collect(folder: &Path, ranks: usize) -> Result<Outcomes> {
    let mut worst = Outcomes::new();
    for rank in 0..ranks {
        let mut own = Outcomes::new();
        let text = std::fs::read_to_string(folder.join(rank.to_string())).unwrap_or_default();
        for line in text.lines() {
            if let Some((word, test)) = line.split_once(' ') {
                let outcome = if word == "start" { "not run" } else { word };
                own.insert(test.to_owned(), outcome.to_owned());
            }
        }
        for (test, outcome) in own {
            let entry = worst.entry(test).or_insert_with(|| outcome.clone());
            if severity(&outcome) > severity(entry) {
                *entry = outcome;
            }
        }
    }
    Ok(worst)
}

fn severity(outcome: &str) -> u8 {
    match outcome {
        "skipped" => 0,
        "ok" => 1,
        "failed" => 2,
        _ => 3,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_rank_counts() {
        let folder = std::env::temp_dir().join(format!("hetccl-xtask-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("0"), "start a\nok a\nstart b\nok b\nstart c\n").unwrap();
        std::fs::write(folder.join("1"), "start a\nok a\nstart b\nfailed b\n").unwrap();
        let outcomes = collect(&folder, 2).unwrap();
        std::fs::remove_dir_all(&folder).unwrap();
        let expected = [("a", "ok"), ("b", "failed"), ("c", "not run")];
        assert_eq!(outcomes, expected.map(|(t, o)| (t.to_owned(), o.to_owned())).into());
    }
}
