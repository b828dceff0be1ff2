//! `cargo xtask bench mpi`: MPI libraries in turn on the same machine, in one go.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
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
    /// Leave MPICH out
    #[arg(long)]
    pub without_mpich: bool,
    /// Print the points as JSON, instead of a table
    #[arg(long)]
    pub json: bool,
}

/// Open MPI's components that do collectives inside a node, and what puts each first.
const OPEN_MPI: [(&str, &[&str]); 4] = [
    ("tuned", &[]),
    ("sm", &["--mca", "coll_sm_priority", "90"]),
    ("han", &["--mca", "coll_han_priority", "90"]),
    ("adapt", &["--mca", "coll_adapt_priority", "90"]),
];

/// What is measured: a name, a library, and arguments of its `mpirun`.
struct Contender<'a> {
    name: &'static str,
    library: Library<'a>,
    arguments: &'static [&'static str],
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
    let mut contenders = vec![Contender { name: "hetccl", library: hetccl, arguments: &[] }];
    for (name, arguments) in OPEN_MPI {
        contenders.push(Contender { name, library: Library::OpenMpi, arguments });
    }
    if !args.without_mpich {
        contenders.push(Contender { name: "MPICH", library: Library::Mpich, arguments: &[] });
    }
    let mut programs: Vec<PathBuf> = Vec::new();
    for contender in &contenders {
        programs.push(mpi::compile("bench", contender.library)?);
    }
    let mut times = vec![Times::new(); contenders.len()];
    let mut all_right = true;
    for round in 1..=args.alternations {
        for (i, contender) in contenders.iter().enumerate() {
            let what = format!("{}, round {round} of {}", contender.name, args.alternations);
            let text = step(&what, || measure(args, contender, &programs[i]))?;
            all_right &= add(&mut times[i], &text)?;
        }
    }
    let names: Vec<&str> = contenders.iter().map(|contender| contender.name).collect();
    report(args, &names, &times)?;
    Ok(all_right)
}

fn measure(args: &Args, contender: &Contender<'_>, program: &Path) -> Result<String> {
    let (most, only) = (args.max_bytes.to_string(), args.collective.join(","));
    let mut command = mpi::mpirun(contender.library, args.ranks, LIMIT);
    command.args(contender.arguments).arg(program).args([most, only]);
    command::capture(&mut command)
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

/// One point: the collective, bytes, each contender's time in order, and hetccl's over the best of the others.
struct Row {
    collective: String,
    bytes: u64,
    us: Vec<f64>,
    ratio: f64,
}

fn rows(times: &[Times]) -> Vec<Row> {
    let row = |point: &Point| {
        let of = |library: &Times| library.get(point).map_or(f64::NAN, |values| median(values));
        let us: Vec<f64> = times.iter().map(of).collect();
        let best = us[1..].iter().copied().fold(f64::NAN, f64::min);
        Row { collective: point.1.clone(), bytes: point.2, ratio: us[0] / best, us }
    };
    times[0].keys().map(row).collect()
}

/// Ratios above this are listed after the table.
const WORTH_A_WORD: f64 = 1.10;

fn report(args: &Args, names: &[&str], times: &[Times]) -> Result<()> {
    let rows = rows(times);
    let points: Vec<Value> = rows
        .iter()
        .map(|row| {
            let us: BTreeMap<&str, f64> = names.iter().copied().zip(row.us.clone()).collect();
            json!({"collective": row.collective, "bytes": row.bytes, "ranks": args.ranks, "us": us,
                   "ratio_to_best_peer": row.ratio})
        })
        .collect();
    let text = serde_json::to_string_pretty(&points)?;
    if args.json {
        println!("{text}");
    } else {
        print_table(args, names, &rows);
    }
    let folder = command::target_dir().join("bench");
    std::fs::create_dir_all(&folder)?;
    let stem = folder.join(format!("mpi-{}", args.ranks));
    std::fs::write(stem.with_extension("json"), text)?;
    let title = format!("hetccl's time over the best peer's, {} ranks, host memory", args.ranks);
    std::fs::write(stem.with_extension("svg"), plot::ratios(&title, &panels(&rows)))?;
    eprintln!("written: {0}.json, {0}.svg", stem.display());
    Ok(())
}

fn print_table(args: &Args, names: &[&str], rows: &[Row]) {
    println!("\n{} ranks, medians of {} alternations, microseconds", args.ranks, args.alternations);
    print!("{:<21} {:>8}", "collective", "bytes");
    names.iter().for_each(|name| print!(" {name:>9}"));
    println!(" {:>8}", "to best");
    for row in rows {
        print!("{:<21} {:>8}", row.collective, row.bytes);
        for us in &row.us {
            let text = if us.is_nan() { "-".to_owned() } else { format!("{us:.2}") };
            print!(" {text:>9}");
        }
        println!(" {:>8.2}", row.ratio);
    }
    let (sum, n) = rows.iter().fold((0.0, 0), |(sum, n), row| (sum + row.ratio.ln(), n + 1));
    println!("geometric mean: {:.2} of the best peer's time", (sum / f64::from(n.max(1))).exp());
    let mut slow: Vec<&Row> = rows.iter().filter(|row| row.ratio > WORTH_A_WORD).collect();
    slow.sort_by(|a, b| b.ratio.total_cmp(&a.ratio));
    println!("above {WORTH_A_WORD:.2}: {}", if slow.is_empty() { "none" } else { "" });
    for row in slow {
        println!("  {} {} {:.2}", row.collective, row.bytes, row.ratio);
    }
}

/// The rows of each collective, for the plot.
fn panels(rows: &[Row]) -> Vec<(String, Vec<plot::Point>)> {
    let mut panels: Vec<(String, Vec<plot::Point>)> = Vec::new();
    for row in rows {
        if panels.last().is_none_or(|(last, _)| *last != row.collective) {
            panels.push((row.collective.clone(), Vec::new()));
        }
        if let Some((_, points)) = panels.last_mut() {
            points.push((row.bytes as f64, row.ratio));
        }
    }
    panels
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_is_to_the_best_peer_that_was_measured() {
        let at = |us: f64| Times::from([((1, "bcast".to_owned(), 8), vec![us])]);
        let rows = rows(&[at(1.0), at(4.0), at(2.0), Times::new()]);
        assert_eq!(rows[0].ratio, 0.5);
        assert!(rows[0].us[3].is_nan());
        assert_eq!(panels(&rows), [("bcast".to_owned(), vec![(8.0, 0.5)])]);
    }
}
