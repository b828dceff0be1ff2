//! Every algorithm in the simulator: with delays and reordering the results are right; when a rank is lost everybody ends.

use hetccl_core::algorithms::{ALGORITHMS, Algorithm, Scope};
use hetccl_core::verify::cases::{self, Variant};
use hetccl_core::verify::{Wanted, sizes, wanted};
use hetccl_core::{Buffer, Call, Collective};
use hetccl_sim::{Arithmetic, Config, Loss, Outcome, RankResult, Simulation};

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

fn simulate(algorithm: &'static Algorithm, calls: &[Call], config: Config) -> Outcome {
    Simulation::new(config, arithmetic(calls))
        .run(algorithm, calls, |process| initial(calls, process))
        .unwrap_or_else(|failure| panic!("{failure}\n  {:?}", calls[0]))
}

fn check_results(algorithm: &Algorithm, calls: &[Call], outcome: &Outcome, seed: u64) {
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
fn seeds(default: std::ops::Range<u64>) -> Vec<u64> {
    match std::env::var("HETCCL_SIM_SEED").ok().and_then(|text| text.parse().ok()) {
        Some(seed) => vec![seed],
        None => default.collect(),
    }
}

/// Whether to take all sizes of the algorithms by groups, as `cargo xtask simulate --check` does; without, the small ones.
fn all_sizes() -> bool {
    std::env::var_os("HETCCL_ALL_SIZES").is_some()
}

/// Calls for an algorithm at many sizes.
fn calls_for(algorithm: &Algorithm, collective: Collective, size: usize, seed: u64) -> Vec<Call> {
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

const SIZES: [usize; 14] = [1, 2, 3, 4, 5, 7, 8, 13, 16, 17, 31, 32, 33, 64];

#[test]
fn results_are_right_under_delay_and_reordering() {
    for &algorithm in ALGORITHMS {
        let (mut runs, mut messages) = (0, 0);
        for &collective in algorithm.collectives {
            let most = if algorithm.name.starts_with("hetero") && !all_sizes() { 8 } else { 64 };
            for size in SIZES.into_iter().filter(|&size| size <= most) {
                for seed in seeds(1..if size > 17 { 4 } else { 9 }) {
                    let calls = calls_for(algorithm, collective, size, seed);
                    if !calls.iter().all(|call| algorithm.can_do(call)) {
                        continue;
                    }
                    let config = Config { seed, jitter_ns: 20_000, ..Config::default() };
                    let outcome = simulate(algorithm, &calls, config);
                    let done = outcome.ranks.iter().all(|r| matches!(r, RankResult::Done(_)));
                    assert!(done, "{}: a rank failed without a cause, seed {seed}", algorithm.name);
                    check_results(algorithm, &calls, &outcome, seed);
                    runs += 1;
                    messages += outcome.messages;
                }
            }
        }
        println!(
            "simulated {runs:>5} runs, {messages:>8} messages: {:?} {}",
            algorithm.collectives, algorithm.name
        );
        assert!(runs > 0, "{} was never run", algorithm.name);
    }
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let algorithm = hetccl_core::algorithms::by_name(Collective::Alltoall, "linear").unwrap();
    let calls = cases::intra(Collective::Alltoall, 9, &Variant::plain(5));
    let config = Config { seed: 77, jitter_ns: 5_000, ..Config::default() };
    let times: Vec<u64> = (0..3).map(|_| simulate(algorithm, &calls, config).makespan_ns).collect();
    assert!(times.windows(2).all(|pair| pair[0] == pair[1]), "{times:?}");
    let other = simulate(algorithm, &calls, Config { seed: 78, ..config });
    assert_ne!(other.makespan_ns, times[0]);
}

#[test]
fn everybody_ends_when_a_rank_is_lost_at_any_moment() {
    const BOUND_NS: u64 = 10_000_000;
    let (mut runs, mut failed) = (0, 0);
    for &algorithm in ALGORITHMS {
        for &collective in algorithm.collectives {
            for size in [2, 3, 5] {
                let calls = calls_for(algorithm, collective, size, 2);
                if !calls.iter().all(|call| algorithm.can_do(call)) {
                    continue;
                }
                for process in 0..calls.len() {
                    for after_turns in 0..6 {
                        let loss = Some(Loss { process, after_turns });
                        let config =
                            Config { seed: 5, jitter_ns: 2_000, loss, ..Config::default() };
                        let outcome = simulate(algorithm, &calls, config);
                        assert!(
                            outcome.makespan_ns < BOUND_NS,
                            "{}: {} ns",
                            algorithm.name,
                            outcome.makespan_ns
                        );
                        check_results(algorithm, &calls, &outcome, 5);
                        let errors =
                            outcome.ranks.iter().filter(|r| matches!(r, RankResult::Failed(_)));
                        failed += errors.count();
                        runs += 1;
                    }
                }
            }
        }
    }
    println!(
        "simulated {runs} losses, {failed} ranks ended with an error, the others with their results"
    );
    assert!(failed > 0);
}

#[test]
fn virtual_time_follows_the_cost_model() {
    // Ring allreduce: 2 (p - 1) steps of alpha + (n / p) beta, and (p - 1) n / p bytes reduced.
    let algorithm = hetccl_core::algorithms::by_name(Collective::Allreduce, "ring").unwrap();
    let (size, count) = (8, 64_000);
    let calls = cases::intra(Collective::Allreduce, size, &Variant::plain(count));
    let config = Config::default();
    let outcome = simulate(algorithm, &calls, config);
    let bytes = (count * 8) as f64;
    let steps = 2.0 * (size as f64 - 1.0);
    let wire = steps * (config.latency_ns as f64 + bytes / size as f64 / config.bytes_per_ns);
    let reducing = (size as f64 - 1.0) / size as f64 * bytes * config.reduce_ns_per_byte;
    let ratio = outcome.makespan_ns as f64 / (wire + reducing);
    assert!(
        (0.95..1.1).contains(&ratio),
        "{} ns against {} ns",
        outcome.makespan_ns,
        wire + reducing
    );
    assert_eq!(outcome.messages, size * 2 * (size - 1));
}
