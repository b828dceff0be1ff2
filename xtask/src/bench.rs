//! `cargo xtask bench mpi`: MPI libraries in turn on the same machine, in one go.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::command::{self, step};
use crate::mpi::{self, Library};
use crate::{install, plot, setup};

const LIMIT: Duration = Duration::from_secs(600);

/// Options.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Ranks
    #[arg(short = 'n', long, default_value_t = 2)]
    pub ranks: usize,
    /// How often each library runs, in alternation
    #[arg(long, default_value_t = 3)]
    pub alternations: usize,
    /// Largest message in bytes
    #[arg(long, default_value_t = 4 << 20)]
    pub max_bytes: usize,
    /// Only these collectives
    #[arg(long, value_delimiter = ',')]
    pub collective: Vec<String>,
    /// What carries hetccl's messages: auto, ucx or pml
    #[arg(long, default_value = "auto")]
    pub transport: String,
    /// Leave MPICH out: with more ranks than cores it takes milliseconds a call
    #[arg(long)]
    pub without_mpich: bool,
}

/// (collective in the program's order, bytes)
type Point = (usize, String, u64);

/// Microseconds by point.
type Times = BTreeMap<Point, Vec<f64>>;

/// Measures and prints. Whether every result was right.
///
/// # Errors
/// What could not be installed, built or run.
pub fn run(args: &Args) -> Result<bool> {
    let bench: &[setup::Packages] =
        if args.without_mpich { &[setup::BUILD] } else { &[setup::BUILD, setup::BENCH] };
    setup::packages(bench)?;
    let prefix = command::target_dir().join("prefix");
    step("building and installing", || install::release(&prefix))?;
    let hetccl = Library::Hetccl { prefix: &prefix, transport: &args.transport };
    let mut libraries = vec![("hetccl", hetccl), ("Open MPI", Library::OpenMpi)];
    if !args.without_mpich {
        libraries.push(("MPICH", Library::Mpich));
    }
    let mut programs: Vec<PathBuf> = Vec::new();
    for &(_, library) in &libraries {
        programs.push(mpi::compile("bench", library)?);
    }
    let mut times = vec![Times::new(); libraries.len()];
    let mut all_right = true;
    for round in 1..=args.alternations {
        for (i, &(name, library)) in libraries.iter().enumerate() {
            let text = step(&format!("{name}, round {round} of {}", args.alternations), || {
                let (most, only) = (args.max_bytes.to_string(), args.collective.join(","));
                mpi::run(library, args.ranks, LIMIT, &programs[i], &[&most, &only])
            })?;
            all_right &= add(&mut times[i], &text)?;
        }
    }
    report(args, &times)?;
    Ok(all_right)
}

fn add(times: &mut Times, text: &str) -> Result<bool> {
    let mut right = true;
    let mut order: Vec<String> = Vec::new();
    for line in text.lines().filter(|line| line.starts_with('{')) {
        let value: Value = serde_json::from_str(line).with_context(|| format!("in {line:?}"))?;
        let name = value["collective"].as_str().unwrap_or_default().to_owned();
        if !order.contains(&name) {
            order.push(name.clone());
        }
        let point = (order.len(), name, value["bytes"].as_u64().unwrap_or(0));
        times.entry(point).or_default().push(value["us"].as_f64().unwrap_or(f64::NAN));
        right &= value["ok"].as_bool().unwrap_or(false);
    }
    Ok(right)
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}

fn report(args: &Args, times: &[Times]) -> Result<()> {
    let nothing = Times::new();
    let [ours, openmpi, rest @ ..] = times else { return Ok(()) };
    let mpich = rest.first().unwrap_or(&nothing);
    println!("\n{} ranks, medians of {} alternations, microseconds", args.ranks, args.alternations);
    println!(
        "{:<22} {:>9} {:>10} {:>10} {:>10} {:>11} {:>8}",
        "collective", "bytes", "hetccl", "Open MPI", "MPICH", "to Open MPI", "to best"
    );
    let mut rows = Vec::new();
    let mut panels: Vec<(String, Vec<plot::Point>)> = Vec::new();
    let (mut log_default, mut log_best) = (0.0, 0.0);
    for (point, values) in ours {
        let (_, name, bytes) = point;
        let of = |library: &Times| library.get(point).map_or(f64::NAN, |v| median(v));
        let (us, default, other) = (median(values), of(openmpi), of(mpich));
        let best = default.min(other);
        println!(
            "{name:<22} {bytes:>9} {us:>10.2} {default:>10.2} {:>10} {:>11.2} {:>8.2}",
            if other.is_nan() { "-".to_owned() } else { format!("{other:.2}") },
            us / default,
            us / best
        );
        rows.push(json!({"collective": name, "bytes": bytes, "ranks": args.ranks, "hetccl_us": us,
                         "openmpi_us": default, "mpich_us": other}));
        if panels.last().is_none_or(|(last, _)| last != name) {
            panels.push((name.clone(), Vec::new()));
        }
        if let Some((_, points)) = panels.last_mut() {
            points.push((*bytes as f64, us / best));
        }
        log_default += (us / default).ln();
        log_best += (us / best).ln();
    }
    let n = rows.len().max(1) as f64;
    println!(
        "geometric mean: {:.2} of Open MPI's time, {:.2} of the best peer's",
        (log_default / n).exp(),
        (log_best / n).exp()
    );
    let folder = command::target_dir().join("bench");
    std::fs::create_dir_all(&folder)?;
    let stem = folder.join(format!("mpi-{}", args.ranks));
    std::fs::write(stem.with_extension("json"), serde_json::to_string_pretty(&rows)?)?;
    let title = format!("hetccl's time over the best peer's, {} ranks, host memory", args.ranks);
    std::fs::write(stem.with_extension("svg"), plot::ratios(&title, &panels))?;
    println!("written: {0}.json, {0}.svg", stem.display());
    Ok(())
}
