//! Every algorithm in the simulator: with delays, reordering and duplicates the results are right.

mod common;

use common::{all_sizes, calls_for, check_results, seeds, simulate};
use hetccl_core::Collective;
use hetccl_core::algorithms::ALGORITHMS;
use hetccl_core::verify::cases::{self, Variant};
use hetccl_sim::{Config, RankResult};

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
                    let duplicates = seed.is_multiple_of(4);
                    let config =
                        Config { seed, jitter_ns: 20_000, duplicates, ..Config::default() };
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
