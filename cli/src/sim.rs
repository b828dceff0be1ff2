//! `hetccl sim`: a collective on a described cluster, in virtual time.

use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use hetccl_core::Collective;
use hetccl_sim::cluster::Cluster;
use hetccl_sim::study::{COLLECTIVES, Row, Study, plot};
use serde::Serialize;

#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    hetccl sim --cluster hetccl-paper --collective allreduce --bytes 1M..4G\n  \
    hetccl sim --cluster mixed-node --collective allgather --bytes 64M --json\n\n\
    Bytes: the vector; for allgather, gather, scatter and alltoall, what all ranks (or the root) have together.")]
pub struct Args {
    /// The cluster file, or the name of one that is installed with hetccl (in share/hetccl/clusters)
    #[arg(long)]
    cluster: PathBuf,
    /// allreduce, reduce_scatter_block, allgather, bcast, reduce, gather, scatter, alltoall or barrier
    #[arg(long, default_value = "allreduce")]
    collective: String,
    /// One size, or FROM..TO in steps of factor 4; K, M and G are powers of 1024
    #[arg(long, default_value = "1M..4G", value_parser = parse_range)]
    bytes: Range,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Write a plot (SVG)
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
    /// Leave out the flat ring, the host relay and the single owner
    #[arg(long)]
    no_compare: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Range {
    first: u64,
    last: u64,
}

#[derive(Serialize)]
struct Results {
    results: Vec<Row>,
}

/// Simulates and prints.
///
/// # Errors
/// When the cluster file is wrong, the collective unknown, or the output can't be written.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let collective = collective(&args.collective)?;
    let cluster = load(&args.cluster)?;
    let title = format!("{} on {}", collective.name(), cluster.name);
    let study = Study::new(cluster, collective);
    let mut rows = Vec::new();
    for bytes in args.bytes.sizes() {
        let bar = progress(bytes);
        rows.push(study.row(bytes, !args.no_compare, |part| {
            bar.set_position((part * 1000.0) as u64);
        }));
        bar.finish_and_clear();
        if collective == Collective::Barrier {
            break;
        }
    }
    if let Some(path) = &args.plot {
        let svg = plot(&title, &rows).map_err(anyhow::Error::msg)?;
        std::fs::write(path, svg).with_context(|| format!("cannot write {}", path.display()))?;
    }
    let mut out = std::io::stdout().lock();
    let written = if args.json {
        serde_json::to_writer(&mut out, &Results { results: rows })
            .map_err(Into::into)
            .and_then(|()| writeln!(out))
    } else {
        table(&mut out, &title, &rows)
    };
    match written {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        other => Ok(other?),
    }
}

/// A file, or one by its name among those that are installed beside this program.
fn load(named: &Path) -> anyhow::Result<Cluster> {
    let plain = named.components().count() == 1 && !named.exists();
    let program = std::env::current_exe().context("finding the folder of this program")?;
    let folder = program.parent().unwrap_or(&program).join("../share/hetccl/clusters");
    let installed = folder.join(named).with_extension("toml");
    let file = if plain && installed.is_file() { &installed } else { named };
    Cluster::load(file).with_context(|| match names(&folder) {
        names if plain && !names.is_empty() => {
            format!("no cluster of this name is installed; those that are: {}", names.join(", "))
        }
        _ => "the cluster can't be used".into(),
    })
}

/// The clusters in a folder.
fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let stem = |file: PathBuf| Some(file.file_stem()?.to_str()?.to_owned());
    let mut names: Vec<String> = entries.filter_map(|entry| stem(entry.path())).collect();
    names.sort();
    names
}

fn collective(name: &str) -> anyhow::Result<Collective> {
    let Some(&found) = COLLECTIVES.iter().find(|c| c.name() == name) else {
        let known: Vec<&str> = COLLECTIVES.iter().map(|c| c.name()).collect();
        bail!("--collective {name}: allowed are {}", known.join(", "));
    };
    Ok(found)
}

/// A bar on terminals, for runs that take a while.
fn progress(bytes: u64) -> indicatif::ProgressBar {
    if !std::io::stderr().is_terminal() {
        return indicatif::ProgressBar::hidden();
    }
    let bar = indicatif::ProgressBar::new(1000);
    if let Ok(style) =
        indicatif::ProgressStyle::with_template("{msg} {bar:40} {percent} % {elapsed}")
    {
        bar.set_style(style);
    }
    bar.set_message(format!("{bytes} bytes"));
    bar
}

fn table(out: &mut impl Write, title: &str, rows: &[Row]) -> std::io::Result<()> {
    writeln!(out, "{title}\n")?;
    writeln!(
        out,
        "{:>12} {:>12} {:>12} {:>6} {:>12} {:>12} {:>12}  algorithm",
        "bytes", "time us", "bound us", "x", "flat ring", "host relay", "single owner"
    )?;
    let optional = |time: Option<f64>| time.map_or("-".to_owned(), |us| format!("{us:.1}"));
    for row in rows {
        writeln!(
            out,
            "{:>12} {:>12.1} {:>12.1} {:>6.2} {:>12} {:>12} {:>12}  {}",
            row.bytes,
            row.time_us,
            row.lower_bound_us,
            row.time_us / row.lower_bound_us.max(f64::MIN_POSITIVE),
            optional(row.flat_ring_us),
            optional(row.host_relay_us),
            optional(row.single_owner_us),
            row.algorithm
        )?;
    }
    Ok(())
}

impl Range {
    fn sizes(self) -> impl Iterator<Item = u64> {
        let last = self.last;
        std::iter::successors(Some(self.first), move |bytes| bytes.checked_mul(4))
            .take_while(move |&bytes| bytes <= last)
    }
}

fn parse_range(text: &str) -> Result<Range, String> {
    let (first, last) = text.split_once("..").unwrap_or((text, text));
    let range = Range { first: parse_bytes(first)?, last: parse_bytes(last)? };
    if range.first == 0 || range.first > range.last {
        return Err("allowed are SIZE or FROM..TO, with FROM at least 1 and at most TO".to_owned());
    }
    Ok(range)
}

fn parse_bytes(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
    let shift = match text[digits.len()..]
        .to_ascii_lowercase()
        .trim_end_matches("ib")
        .trim_end_matches('b')
    {
        "" => 0,
        "k" => 10,
        "m" => 20,
        "g" => 30,
        other => return Err(format!("unit {other} in {text}; allowed are K, M and G")),
    };
    digits
        .parse::<u64>()
        .ok()
        .and_then(|number| number.checked_mul(1 << shift))
        .filter(|&bytes| bytes <= 1 << 40)
        .ok_or_else(|| format!("{text} is no size; allowed are numbers up to 1024G"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_go_in_steps_of_four() {
        let range = parse_range("1M..64M").unwrap();
        assert_eq!(range.sizes().collect::<Vec<_>>(), [1 << 20, 4 << 20, 16 << 20, 64 << 20]);
        assert_eq!(parse_range("8KiB").unwrap(), Range { first: 8192, last: 8192 });
        for wrong in ["", "0", "4G..1M", "3T", "-1", "x..y"] {
            assert!(parse_range(wrong).is_err(), "{wrong}");
        }
    }
}
