//! Warm-up, check, rounds.

use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::call::Call;
use crate::foreign::Foreign;
use crate::library::Library;
use crate::library::mpi::Mpi;
use crate::library::nccl::{self, Nccl, UniqueId};
use crate::memory::{Buffer, Place};
use crate::options::{Plan, Via};
use crate::report::{Report, Row};
use crate::start::{self, Rank};

/// The time of a call is the median of this many rounds, each the slowest rank's mean.
const ROUNDS: usize = 5;
const ROUND_SECONDS: f64 = 0.02;

/// What a rank does.
pub(crate) fn rank(plan: &Plan, rank: Rank) -> Result<ExitCode> {
    let (rank, size, id, mpi) = match rank {
        Rank::ByParent { rank, id } => (rank, plan.ranks, Some(id), None),
        Rank::ByMpi => {
            let mpi = Mpi::new()?;
            (mpi.rank, mpi.size, None, Some(mpi))
        }
    };
    if plan.root >= size {
        bail!("--root {} with {size} ranks", plan.root);
    }
    let memory = plan.memory_of(rank);
    let place =
        Place::new(memory, start::local_rank(rank)).with_context(|| format!("rank {rank}"))?;
    let mut library: Box<dyn Library + '_> = match (plan.via, mpi) {
        (Via::Mpi, Some(mpi)) => Box::new(mpi),
        (Via::Mpi, None) => bail!("ranks that hetccl started itself have no MPI"),
        (Via::Nccl, mpi) => {
            let file = plan.library(memory)?;
            let library = Foreign::open(&[&file.to_string_lossy()], false)?;
            let id = match (id, &mpi) {
                (Some(id), _) => id,
                (None, Some(mpi)) => shared_id(&library, mpi)?,
                (None, None) => bail!("nobody has made an id for the ranks to meet by"),
            };
            Box::new(
                Nccl::new(library, &place, id, rank, size, mpi)
                    .with_context(|| format!("rank {rank}"))?,
            )
        }
    };
    let calls = plan.calls(rank, size);
    let mut report = Report::new(plan, &library.describe(), size, rank == 0)?;
    let bar = progress(rank, calls.len());
    let mut wrong = false;
    for call in &calls {
        bar.set_message(format!("{} {} bytes", call.collective.name(), call.bytes()));
        let row = measure(plan, library.as_mut(), &place, call).with_context(|| {
            format!("rank {rank} of {size}: {} of {} bytes", call.collective.name(), call.bytes())
        })?;
        wrong |= row.wrong.is_some_and(|wrong| wrong > 0);
        bar.suspend(|| report.row(row))?;
        bar.inc(1);
    }
    bar.finish_and_clear();
    library.finish()?;
    report.finish()?;
    Ok(ExitCode::from(if wrong { crate::WRONG_RESULT } else { 0 }))
}

fn shared_id(library: &Foreign, mpi: &Mpi) -> Result<UniqueId> {
    let mut id = UniqueId([0; 128]);
    if mpi.rank == 0 {
        id = nccl::unique_id(library)?;
    }
    mpi.share(&mut id.0)?;
    Ok(id)
}

/// On rank 0's terminal, nowhere else.
fn progress(rank: usize, calls: usize) -> ProgressBar {
    let target = if rank == 0 && std::io::stderr().is_terminal() {
        ProgressDrawTarget::stderr()
    } else {
        ProgressDrawTarget::hidden()
    };
    let style = ProgressStyle::with_template("{wide_bar} {pos}/{len} {msg}");
    ProgressBar::with_draw_target(Some(calls as u64), target)
        .with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

fn measure(plan: &Plan, library: &mut dyn Library, place: &Place, call: &Call) -> Result<Row> {
    let width = call.datatype.bytes();
    let mut input = place.buffer(call.input_count() * width)?;
    let mut output = place.buffer(call.output_room() * width)?;
    let mut host = vec![0; call.input_count() * width];
    call.fill(&mut host);
    input.put(&host)?;
    let wrong = if plan.check { Some(check(library, call, &input, &mut output)?) } else { None };
    for _ in 0..plan.warm_up {
        library.call(call, &input, &output)?;
    }
    library.wait()?;
    let one = round(library, call, &input, &output, 1)?;
    let fitting = (ROUND_SECONDS / one.max(1e-9)).clamp(5.0, 1000.0) as u32;
    let iterations = plan.iterations.unwrap_or(fitting);
    let mut times = Vec::new();
    for _ in 0..ROUNDS {
        times.push(round(library, call, &input, &output, iterations)?);
    }
    times.sort_by(f64::total_cmp);
    Ok(Row::new(call, times[ROUNDS / 2], times[0], times[ROUNDS - 1], iterations, wrong))
}

/// Wrong elements of the rank with most of them, after one call into a buffer of rubbish.
fn check(
    library: &mut dyn Library,
    call: &Call,
    input: &Buffer,
    output: &mut Buffer,
) -> Result<u64> {
    let mut host = vec![0xee; call.output_count() * call.datatype.bytes()];
    output.put(&host)?;
    library.largest(0.0)?;
    library.call(call, input, output)?;
    library.wait()?;
    output.get(&mut host)?;
    Ok(library.largest(call.wrong(&host) as f64)? as u64)
}

/// Seconds per call of the slowest rank, all beginning together.
fn round(
    library: &mut dyn Library,
    call: &Call,
    input: &Buffer,
    output: &Buffer,
    iterations: u32,
) -> Result<f64> {
    library.largest(0.0)?;
    let start = Instant::now();
    for _ in 0..iterations {
        library.call(call, input, output)?;
    }
    library.wait()?;
    let mine = start.elapsed().as_secs_f64() / f64::from(iterations);
    library.largest(mine)
}
