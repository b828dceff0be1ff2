//! `cargo xtask soak`: random collectives for a long time, on every way and through both interfaces; results, memory and
//! descriptors checked, and what the others hear when a rank is killed at a random moment.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use crate::mpi::{self, Library};
use crate::{command, emulate, failures, install, nccl, plot};

/// How long, and what is to be written.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Minutes for all ways together
    #[arg(long, default_value_t = 30.0)]
    minutes: f64,
    /// Every choice follows from it
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Only ways whose name has one of these in it
    #[arg(long, value_delimiter = ',')]
    ways: Vec<String>,
    /// An installation, instead of one of what is here
    #[arg(long)]
    prefix: Option<PathBuf>,
    /// Ranks killed on each way that can lose one
    #[arg(long, default_value_t = 3)]
    kills: usize,
    /// Print the result as JSON on the last line
    #[arg(long)]
    json: bool,
    /// Where the plot of memory over time goes; target/soak.svg otherwise
    #[arg(long)]
    plot: Option<PathBuf>,
}

/// Who makes the calls, and how messages travel.
#[derive(Clone, Copy, Debug)]
enum Interface {
    /// The component, by mpirun: transport, shared memory, kinds of buffers by rank.
    Mpi(&'static str, &'static str, &'static str),
    /// The NCCL or RCCL library: the vendor of each rank.
    Nccl(&'static [&'static str]),
}

const WAYS: [(&str, Interface); 7] = [
    ("shared memory", Interface::Mpi("auto", "auto", "host")),
    ("ucx", Interface::Mpi("ucx", "off", "host")),
    ("pml", Interface::Mpi("pml", "off", "host")),
    ("emulated CUDA", Interface::Mpi("ucx", "off", "cuda")),
    ("emulated CUDA, ROCm and host", Interface::Mpi("auto", "auto", "cuda,rocm,host,cuda")),
    ("NCCL on emulated CUDA", Interface::Nccl(&["cuda", "cuda", "cuda"])),
    ("NCCL and RCCL together", Interface::Nccl(&["cuda", "rocm", "cuda"])),
];

/// Ranks of each MPI job.
const RANKS: usize = 4;
/// Time for starting and ending a job, and for survivors to hear of a loss.
const ROOM: Duration = Duration::from_secs(60);
/// A stopped or silent peer is given up after so long; a killed one at once.
const PEER_TIMEOUT: [&str; 2] = ["coll_hetccl_peer_timeout_seconds", "5"];
/// Lines about progress come so often.
const TELL_INTERVAL: Duration = Duration::from_secs(30);
/// Calls of a rank before its memory is judged: caches and pools fill first.
const WARM_CALLS: u64 = 10_000;
/// Samples after that without which nothing is said of its memory.
const ENOUGH_SAMPLES: usize = 24;
/// Growth of resident memory from the first half of them to the second that counts as flat.
const ALLOWED_KIB: f64 = 2048.0;
/// Sizes are random, so that schedules fill their cache and never come again: a small one fills soon.
const SMALL_CACHE: [&str; 2] = ["coll_hetccl_schedule_cache_bytes", "262144"];

/// How a rank was at a moment.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Sample {
    rank: usize,
    seconds: f64,
    calls: u64,
    kib: f64,
    descriptors: u64,
}

/// `soak rank R at T s: N calls, K KiB, D descriptors`
fn sample(line: &str) -> Option<Sample> {
    let (rank, rest) = line.strip_prefix("soak rank ")?.split_once(" at ")?;
    let (seconds, rest) = rest.split_once(" s: ")?;
    let (calls, rest) = rest.split_once(" calls, ")?;
    let (kib, rest) = rest.split_once(" KiB, ")?;
    Some(Sample {
        rank: rank.parse().ok()?,
        seconds: seconds.parse().ok()?,
        calls: calls.parse().ok()?,
        kib: kib.parse().ok()?,
        descriptors: rest.strip_suffix(" descriptors")?.parse().ok()?,
    })
}

/// What one way's run has shown.
#[derive(Debug)]
struct Record {
    name: &'static str,
    samples: Vec<Sample>,
    problems: Vec<String>,
    kills: Vec<Kill>,
}

/// A rank that was killed, and what the others heard.
#[derive(Debug)]
struct Kill {
    victim: usize,
    after_ms: u64,
    errors: usize,
    slowest_ms: u64,
}

/// What is needed to start the programs.
struct Setting {
    prefix: PathBuf,
    mpi_program: PathBuf,
    nccl: Option<Nccl>,
}

/// The libraries of NCCL's interface, and the program linked to each.
struct Nccl {
    libraries: PathBuf,
    programs: [PathBuf; 2],
}

/// Soaks every way; whether all was well.
///
/// # Errors
/// Something can't be built or started.
pub fn run(args: &Args) -> Result<bool> {
    if !mpi::available(Library::OpenMpi) {
        println!("SKIPPED soak: no mpicc and mpirun of Open MPI on PATH");
        return Ok(true);
    }
    let named =
        |name: &str| args.ways.is_empty() || args.ways.iter().any(|w| name.contains(w.as_str()));
    let ways: Vec<_> = WAYS.into_iter().filter(|(name, _)| named(name)).collect();
    if ways.is_empty() {
        bail!("no way is called so; there are {}", WAYS.map(|way| way.0).join("; "));
    }
    let with_nccl = ways.iter().any(|(_, interface)| matches!(interface, Interface::Nccl(_)));
    let setting = set_up(args, with_nccl)?;
    let time = Duration::from_secs_f64(args.minutes * 60.0 / ways.len() as f64);
    let before = failures::leftovers();
    let mut records = Vec::new();
    for (number, (name, interface)) in ways.into_iter().enumerate() {
        let seed = args.seed.wrapping_mul(1000).wrapping_add(number as u64);
        println!("==> {name}, seed {seed}, {:.0} s", time.as_secs_f64());
        let mut record = steady(&setting, name, interface, seed, time)?;
        if let Interface::Mpi(transport, shared, memory) = interface {
            for kill in 0..args.kills as u64 {
                let way = failures::Way { name, transport, shared, memory };
                lose_one(&setting, way, seed.wrapping_add(kill * 7919), &mut record)?;
            }
        }
        judge(&mut record);
        records.push(record);
    }
    let left = failures::leftovers().saturating_sub(before);
    conclude(args, &records, left)
}

fn set_up(args: &Args, with_nccl: bool) -> Result<Setting> {
    Ok(Setting {
        prefix: install::or_release(args.prefix.as_deref())?,
        mpi_program: mpi::compile("soak", Library::OpenMpi)?,
        nccl: if with_nccl { Some(set_up_nccl()?) } else { None },
    })
}

fn set_up_nccl() -> Result<Nccl> {
    let libraries = nccl::libraries()?;
    let programs =
        ["libnccl.so", "librccl.so"].map(|library| nccl::compile("soak_nccl", &libraries, library));
    let [cuda, rocm] = programs;
    Ok(Nccl { libraries, programs: [cuda?, rocm?] })
}

fn mpirun(setting: &Setting, way: failures::Way, limit: Duration) -> Result<Command> {
    let library = Library::Hetccl { prefix: &setting.prefix, transport: way.transport };
    let mut mpirun = mpi::mpirun(library, RANKS, limit);
    mpirun.args(["--mca", "coll_hetccl_shared_memory", way.shared, "--mca"]).args(SMALL_CACHE);
    if way.memory != "host" {
        emulate::devices(&mut mpirun)?;
    }
    Ok(mpirun)
}

/// Runs a way for a time, with nobody lost.
fn steady(
    setting: &Setting,
    name: &'static str,
    interface: Interface,
    seed: u64,
    time: Duration,
) -> Result<Record> {
    let (seed, seconds) = (seed.to_string(), time.as_secs_f64().to_string());
    let limit = time + ROOM;
    let commands = match interface {
        Interface::Mpi(transport, shared, memory) => {
            let mut run =
                mpirun(setting, failures::Way { name, transport, shared, memory }, limit)?;
            run.arg(&setting.mpi_program).args([&seed, &seconds, memory]);
            vec![run]
        }
        Interface::Nccl(vendors) => {
            let nccl = setting.nccl.as_ref().context("the NCCL libraries were not built")?;
            nccl_ranks(nccl, vendors, [&seed, &seconds], limit)?
        }
    };
    let mut record = Record { name, samples: Vec::new(), problems: Vec::new(), kills: Vec::new() };
    let (mut children, lines) = start(commands)?;
    let mut told = Instant::now();
    for line in lines {
        if let Some(sample) = sample(&line) {
            record.samples.push(sample);
            if told.elapsed() >= TELL_INTERVAL {
                told = Instant::now();
                println!("    {line}");
            }
        } else if line.contains("FAILED") || line.contains("panicked") {
            println!("    {line}");
            record.problems.push(line);
        }
    }
    for child in &mut children {
        let status = child.wait()?;
        if !status.success() {
            record.problems.push(format!("a process ended with {status}"));
        }
    }
    Ok(record)
}

fn nccl_ranks(
    nccl: &Nccl,
    vendors: &[&str],
    [seed, seconds]: [&str; 2],
    limit: Duration,
) -> Result<Vec<Command>> {
    let meeting = nccl.libraries.join(format!("soak-id.{}.{seed}", std::process::id()));
    // Left by an earlier process of this number.
    let _ = std::fs::remove_file(&meeting);
    let size = vendors.len().to_string();
    let ranks = vendors.iter().enumerate();
    ranks
        .map(|(rank, &vendor)| {
            let program = &nccl.programs[usize::from(vendor == "rocm")];
            let mut run = command::limited(program, limit);
            emulate::devices(&mut run)?;
            let drivers = emulate::library_path(&emulate::folder());
            let path = format!("{}:{drivers}", nccl.libraries.display());
            run.env("LD_LIBRARY_PATH", path).env("NCCL_DEBUG", "WARN");
            run.args([seed, seconds, vendor, &rank.to_string(), &size]).arg(&meeting);
            Ok(run)
        })
        .collect()
}

/// Starts processes; the lines that they print, as they come.
fn start(commands: Vec<Command>) -> Result<(Vec<Child>, Receiver<String>)> {
    let (sender, lines) = mpsc::channel();
    let mut children = Vec::new();
    for mut command in commands {
        let what = command::describe(&command);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().with_context(|| format!("could not start: {what}"))?;
        let streams: [Option<Box<dyn std::io::Read + Send>>; 2] = [
            child.stdout.take().map(|stream| Box::new(stream) as Box<_>),
            child.stderr.take().map(|stream| Box::new(stream) as Box<_>),
        ];
        for stream in streams.into_iter().flatten() {
            let sender = sender.clone();
            std::thread::spawn(move || {
                for line in BufReader::new(stream).lines().map_while(Result::ok) {
                    let _ = sender.send(line);
                }
            });
        }
        children.push(child);
    }
    Ok((children, lines))
}

/// Kills a random rank at a random moment; every other rank must come to an error.
fn lose_one(setting: &Setting, way: failures::Way, seed: u64, record: &mut Record) -> Result<()> {
    let (victim, after_ms) = (seed as usize % RANKS, 200 + seed.wrapping_mul(2_654_435_761) % 3000);
    let mut run = mpirun(setting, way, ROOM)?;
    // Otherwise mpirun ends everybody when one dies.
    run.args(["--mca", "orte_abort_on_non_zero_status", "0", "--mca"]).args(PEER_TIMEOUT);
    run.arg(&setting.mpi_program).args([&seed.to_string(), "60", way.memory]);
    let output = command::output(run.args([&victim.to_string(), &after_ms.to_string()]))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let heard: Vec<_> = text.lines().filter_map(failures::failure).collect();
    let slowest_ms = heard.iter().map(|failed| failed.2).max().unwrap_or(0);
    let kill = Kill { victim, after_ms, errors: heard.len(), slowest_ms };
    println!(
        "    rank {victim} killed after {after_ms} ms: {} errors on {} survivors, slowest {slowest_ms} ms",
        kill.errors,
        RANKS - 1
    );
    if kill.errors != RANKS - 1 || text.contains("FAILED") {
        let told = format!("seed {seed}: {kill:?}\n{}", command::tail(&output));
        println!("{told}");
        record.problems.push(told);
    }
    record.kills.push(kill);
    Ok(())
}

/// Adds what has grown to the problems.
fn judge(record: &mut Record) {
    let ranks = record.samples.iter().map(|sample| sample.rank).max().map_or(0, |most| most + 1);
    for rank in 0..ranks {
        let warm = record.samples.iter().filter(|s| s.rank == rank && s.calls >= WARM_CALLS);
        let warm: Vec<_> = warm.copied().collect();
        if warm.len() < ENOUGH_SAMPLES {
            println!("    rank {rank}: too few calls to say anything of its memory");
            continue;
        }
        record.problems.extend(growth(&warm).map(|what| format!("rank {rank}: {what}")));
    }
}

/// What has grown on one rank from the first half of its samples to the second.
fn growth(samples: &[Sample]) -> Option<String> {
    let (first, last) = samples.split_at(samples.len() / 2);
    let mean = |part: &[Sample]| part.iter().map(|s| s.kib).sum::<f64>() / part.len() as f64;
    let most = |part: &[Sample]| part.iter().map(|s| s.descriptors).max().unwrap_or(0);
    let grown = mean(last) - mean(first);
    if grown > ALLOWED_KIB {
        return Some(format!("memory grew by {grown:.0} KiB, from {:.0} KiB", mean(first)));
    }
    (most(last) > most(first) + 4)
        .then(|| format!("descriptors grew from {} to {}", most(first), most(last)))
}

fn conclude(args: &Args, records: &[Record], left: usize) -> Result<bool> {
    println!();
    let mut well = left == 0;
    for record in records {
        println!("{}", summary(record));
        for problem in &record.problems {
            println!("  FAILED {problem}");
        }
        well &= record.problems.is_empty();
    }
    println!("{left} files left in /dev/shm");
    let plot = args.plot.clone().unwrap_or_else(|| command::target_dir().join("soak.svg"));
    draw(records, &plot)?;
    println!("memory over time: {}", plot.display());
    if args.json {
        println!("{}", as_json(args, records, left));
    }
    Ok(well)
}

fn summary(record: &Record) -> String {
    let calls = record.samples.iter().map(|sample| sample.calls).max().unwrap_or(0);
    let range = |of: fn(&Sample) -> f64| {
        let late = record.samples.iter().filter(|s| s.seconds * 3.0 >= last_second(record));
        let (least, most) = late.fold((f64::MAX, 0f64), |(least, most), sample| {
            (least.min(of(sample)), most.max(of(sample)))
        });
        format!("{least:.0} to {most:.0}")
    };
    let errors: usize = record.kills.iter().map(|kill| kill.errors).sum();
    let slowest = record.kills.iter().map(|kill| kill.slowest_ms).max().unwrap_or(0);
    format!(
        "{:<30} {calls} calls a rank in {:.0} s; after the first third {} KiB, {} descriptors; {} killed, {errors} errors, \
         slowest {slowest} ms",
        record.name,
        last_second(record),
        range(|sample| sample.kib),
        range(|sample| sample.descriptors as f64),
        record.kills.len()
    )
}

fn last_second(record: &Record) -> f64 {
    record.samples.iter().map(|sample| sample.seconds).fold(0.0, f64::max)
}

fn draw(records: &[Record], file: &Path) -> Result<()> {
    let panels: Vec<_> = records
        .iter()
        .map(|record| {
            let mut lines: Vec<Vec<plot::Point>> = Vec::new();
            for sample in &record.samples {
                lines.resize(lines.len().max(sample.rank + 1), Vec::new());
                lines[sample.rank].push((sample.seconds, sample.kib / 1024.0));
            }
            (record.name.to_owned(), lines)
        })
        .collect();
    let svg = plot::over_time("Resident memory of each rank, MiB over seconds", &panels);
    std::fs::write(file, svg).with_context(|| format!("writing {}", file.display()))
}

fn as_json(args: &Args, records: &[Record], left: usize) -> Value {
    let ways = records.iter().map(|record| {
        let samples = record.samples.iter().map(|s| {
            json!({"rank": s.rank, "seconds": s.seconds, "calls": s.calls, "kib": s.kib, "descriptors": s.descriptors})
        });
        let kills = record.kills.iter().map(|k| {
            json!({"victim": k.victim, "after_ms": k.after_ms, "errors": k.errors, "slowest_ms": k.slowest_ms})
        });
        json!({
            "name": record.name,
            "samples": samples.collect::<Vec<_>>(),
            "kills": kills.collect::<Vec<_>>(),
            "problems": record.problems,
        })
    });
    json!({
        "minutes": args.minutes,
        "seed": args.seed,
        "left_in_dev_shm": left,
        "ways": ways.collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(kib: impl Fn(usize) -> f64, descriptors: impl Fn(usize) -> u64) -> Vec<Sample> {
        let at = |i| Sample {
            rank: 0,
            seconds: i as f64,
            calls: i as u64,
            kib: kib(i),
            descriptors: descriptors(i),
        };
        (0..60).map(at).collect()
    }

    #[test]
    fn a_line_is_read() {
        let read = sample("soak rank 2 at 4.1 s: 131 calls, 27568 KiB, 31 descriptors").unwrap();
        let wanted = Sample { rank: 2, seconds: 4.1, calls: 131, kib: 27568.0, descriptors: 31 };
        assert_eq!(read, wanted);
        assert_eq!(sample("soak rank 2 has ended"), None);
    }

    #[test]
    fn what_grows_is_found_and_what_goes_up_and_down_is_not() {
        assert_eq!(growth(&samples(|i| 20_000.0 + 900.0 * (i % 2) as f64, |_| 30)), None);
        let leak = growth(&samples(|i| 20_000.0 + 200.0 * i as f64, |_| 30)).unwrap();
        assert!(leak.contains("memory grew by 6000 KiB"), "{leak}");
        let open = growth(&samples(|_| 20_000.0, |i| i as u64)).unwrap();
        assert!(open.contains("descriptors grew from 29 to 59"), "{open}");
    }
}
