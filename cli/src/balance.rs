//! `hetccl balance`: a global batch shared among ranks of unequal speed.

use std::io::Write;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use hetccl_core::balance::{Split, split};
use serde::Serialize;

#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    hetccl balance --speeds 100x4,235x4 --batch 1024\n  \
    hetccl balance --speeds 100,100,310 --batch 96 --json\n  \
    hetccl balance --probe 'python train.py --samples 256 --device 0' \\\n    \
    --probe 'python train.py --samples 256 --device 1' --probe-samples 256 --batch 512\n\n\
    With the weights w, sum(w_i x_i) / sum(w_i) over the ranks' mean gradients x is the mean over the whole batch: every rank \
    multiplies its gradient by w_i / sum(w) before an allreduce that adds up (sim/examples/balanced_training.rs).")]
pub struct Args {
    /// Samples per second of each rank; 100x4 means four ranks of 100
    #[arg(
        long,
        value_delimiter = ',',
        required_unless_present = "probe",
        conflicts_with = "probe"
    )]
    speeds: Vec<String>,
    /// A command that works through --probe-samples samples as one rank will; once for each rank, run one after the other
    #[arg(long)]
    probe: Vec<String>,
    /// Samples that each probe command works through
    #[arg(long, requires = "probe")]
    probe_samples: Option<u32>,
    /// Probes run until so many seconds have passed, and once at least
    #[arg(long, default_value_t = 5.0)]
    probe_seconds: f64,
    /// Samples of a global batch
    #[arg(long)]
    batch: u64,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Report {
    batch: u64,
    ranks: Vec<RankReport>,
    step_s: f64,
    even_step_s: f64,
    ideal_step_s: f64,
}

#[derive(Serialize)]
struct RankReport {
    rank: usize,
    samples_per_s: f64,
    samples: u64,
    weight: u64,
}

/// Splits and prints.
///
/// # Errors
/// When speeds or batch make no sense, a probe fails, or the output can't be written.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let speeds = if args.probe.is_empty() {
        let lists: Result<Vec<Vec<f64>>, _> = args.speeds.iter().map(|s| parse(s)).collect();
        lists?.concat()
    } else {
        let Some(samples) = args.probe_samples else {
            bail!("--probe needs --probe-samples: how many samples the command works through");
        };
        let within = Duration::try_from_secs_f64(args.probe_seconds).context("--probe-seconds")?;
        let each = args.probe.iter().map(|command| probe(command, samples, within));
        each.collect::<anyhow::Result<_>>()?
    };
    let split = split(&speeds, args.batch)?;
    let report = report(args.batch, &speeds, &split);
    let mut out = std::io::stdout().lock();
    if args.json {
        serde_json::to_writer(&mut out, &report)?;
        writeln!(out)?;
    } else {
        print(&mut out, &report)?;
    }
    Ok(())
}

fn report(batch: u64, speeds: &[f64], split: &Split) -> Report {
    let rank = |(rank, (&samples_per_s, &samples))| RankReport {
        rank,
        samples_per_s,
        samples,
        weight: samples,
    };
    Report {
        batch,
        ranks: speeds.iter().zip(&split.samples).enumerate().map(rank).collect(),
        step_s: split.step_s,
        even_step_s: split.even_step_s,
        ideal_step_s: split.ideal_step_s,
    }
}

fn print(out: &mut impl Write, report: &Report) -> std::io::Result<()> {
    writeln!(out, "{:>6} {:>12} {:>8} {:>8}", "rank", "samples/s", "samples", "weight")?;
    for r in &report.ranks {
        writeln!(out, "{:>6} {:>12.2} {:>8} {:>8}", r.rank, r.samples_per_s, r.samples, r.weight)?;
    }
    let Report { step_s, even_step_s, ideal_step_s, .. } = report;
    writeln!(
        out,
        "\nstep {step_s:.4} s; even split {even_step_s:.4} s ({:.2} times that)",
        even_step_s / step_s
    )?;
    writeln!(
        out,
        "if samples could be divided: {ideal_step_s:.4} s ({:+.1} %)",
        (step_s / ideal_step_s - 1.0) * 100.0
    )
}

fn parse(text: &str) -> anyhow::Result<Vec<f64>> {
    let (speed, count) = text.trim().split_once('x').unwrap_or((text.trim(), "1"));
    let wrong = || format!("--speeds {text}: allowed are numbers, and NUMBERxCOUNT");
    let count: usize = count.parse().with_context(wrong)?;
    Ok(vec![speed.parse().with_context(wrong)?; count])
}

/// Samples per second of a command. The fastest run counts: the first warms up.
fn probe(command: &str, samples: u32, within: Duration) -> anyhow::Result<f64> {
    let begin = Instant::now();
    let mut best = f64::INFINITY;
    let mut runs = 0;
    while runs == 0 || begin.elapsed() < within {
        let start = Instant::now();
        // A probe's output would mix with the report.
        let output = Command::new("sh").args(["-c", command]).output();
        let output = output.with_context(|| format!("cannot run the probe `{command}`"))?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            bail!("the probe `{command}` ended with {}: {}", output.status, said.trim());
        }
        best = best.min(start.elapsed().as_secs_f64());
        runs += 1;
    }
    Ok(f64::from(samples) / best)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn speeds_may_have_a_count() {
        assert_eq!(parse("100x3").unwrap(), [100.0; 3]);
        assert_eq!(parse("2.5").unwrap(), [2.5]);
        assert!(parse("fast").is_err());
        assert!(parse("3xmany").is_err());
    }

    #[test]
    fn a_probe_measures_and_failures_are_told() {
        let speed = probe("sleep 0.05", 10, Duration::ZERO).unwrap();
        assert!((20.0..200.0).contains(&speed), "{speed}");
        let error =
            probe("echo no device >&2; exit 3", 10, Duration::ZERO).unwrap_err().to_string();
        assert!(error.contains("no device") && error.contains('3'), "{error}");
    }
}
