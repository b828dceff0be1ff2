//! What the tests of the simulator share: calls, their buffers and what must come out.
#![allow(dead_code, reason = "each test uses a part")]

use hetccl_core::algorithms::{Algorithm, Scope};
use hetccl_core::verify::cases::{self, Variant};
use hetccl_core::verify::{Wanted, sizes, wanted};
use hetccl_core::{Buffer, Call, Collective};
use hetccl_sim::{Arithmetic, Config, Outcome, RankResult, Simulation};

/// Element `index` of a process's buffer at the start: all different.
fn initial_element(process: usize, buffer: Buffer, index: usize) -> [u32; 2] {
    let which = if buffer == Buffer::Input { 1 } else { 2 };
    [(2 * process + 3 + index * 10) as u32 | 1, (process * 1000 + index * 7 + which) as u32]
}

fn initial(calls: &[Call], process: usize) -> (Vec<[u32; 2]>, Vec<[u32; 2]>) {
    let (input, output) = sizes(&calls[process]);
    let fill = |buffer, len| (0..len).map(|i| initial_element(process, buffer, i)).collect();
    (fill(Buffer::Input, input), fill(Buffer::Output, output))
}

/// What the output must be; `None` where MPI does not say.
fn expected(calls: &[Call], process: usize, arithmetic: Arithmetic) -> Vec<Option<[u32; 2]>> {
    let list = wanted(calls, process);
    list.into_iter()
        .enumerate()
        .map(|(index, wanted)| match wanted {
            Wanted::Anything => None,
            Wanted::Untouched => Some(initial_element(process, Buffer::Output, index)),
            Wanted::Copy(from, buffer, at) => Some(initial_element(from, buffer, at)),
            Wanted::Sum(processes, buffers, at) => {
                let elements =
                    processes.iter().zip(buffers).map(|(&p, b)| initial_element(p, b, at));
                elements.reduce(|left, right| arithmetic.combine(left, right))
            }
        })
        .collect()
}

fn arithmetic(calls: &[Call]) -> Arithmetic {
    if calls[0].ordered { Arithmetic::Affine } else { Arithmetic::Sum }
}

/// Runs a call; a failure says how to repeat it.
pub fn simulate(algorithm: &'static Algorithm, calls: &[Call], config: Config) -> Outcome {
    Simulation::new(config, arithmetic(calls))
        .run(algorithm, calls, |process| initial(calls, process))
        .unwrap_or_else(|failure| panic!("{failure}\n  {:?}", calls[0]))
}

/// Compares the outputs of ranks that are done with what they must be.
pub fn check_results(algorithm: &Algorithm, calls: &[Call], outcome: &Outcome, seed: u64) {
    for (process, result) in outcome.ranks.iter().enumerate() {
        let RankResult::Done(output) = result else { continue };
        let wanted = expected(calls, process, arithmetic(calls));
        for (index, (found, wanted)) in output.iter().zip(wanted).enumerate() {
            assert!(
                wanted.is_none_or(|wanted| wanted == *found),
                "{} by {}, process {process}, element {index}: {found:?} instead of {wanted:?}; \
                 replay: HETCCL_SIM_SEED={seed}\n{:?}",
                calls[process].collective.name(),
                algorithm.name,
                calls[process]
            );
        }
    }
}

/// The seeds of a run: one from the environment, or some.
pub fn seeds(default: std::ops::Range<u64>) -> Vec<u64> {
    match std::env::var("HETCCL_SIM_SEED").ok().and_then(|text| text.parse().ok()) {
        Some(seed) => vec![seed],
        None => default.collect(),
    }
}

/// Whether to take all sizes of the algorithms by groups, as `cargo xtask simulate --check` does; without, the small ones.
pub fn all_sizes() -> bool {
    std::env::var_os("HETCCL_ALL_SIZES").is_some()
}

/// Calls for an algorithm at many sizes.
pub fn calls_for(
    algorithm: &Algorithm,
    collective: Collective,
    size: usize,
    seed: u64,
) -> Vec<Call> {
    let variant = Variant {
        count: if collective == Collective::Barrier { 0 } else { size + seed as usize % 4 },
        root: seed as usize % size,
        in_place: seed.is_multiple_of(3) && algorithm.scope == Scope::Intra,
        ordered: seed % 2 == 1 && collective.reduces(),
        chunk: [usize::MAX, 2, 1][seed as usize % 3],
        seed,
    };
    match algorithm.scope {
        Scope::Intra => cases::intra(collective, size, &variant),
        Scope::Inter => cases::inter(collective, (size, size / 2 + 1), &variant),
    }
}
