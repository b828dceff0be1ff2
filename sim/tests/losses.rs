//! A rank is lost instead of each step of its schedule, in every algorithm: all others end, with a result or an error, in bounded
//! virtual time, and results are right.
//!
//! `cargo xtask simulate --losses` takes more sizes, roots and orders, and every step of long schedules; replay with HETCCL_SIM_SEED.

mod common;

use common::{all_sizes, calls_for, check_results, seeds, simulate};
use hetccl_core::algorithms::{ALGORITHMS, Algorithm};
use hetccl_core::{Call, TransportError};
use hetccl_sim::{Config, LOOK_NS, Loss, RankResult};

/// What is left to do after the look, and before it.
const BOUND_NS: u64 = LOOK_NS + 10_000_000;
/// Steps of a schedule that are taken when not all are.
const SOME_STEPS: usize = 12;

/// What has been seen.
#[derive(Debug, Default)]
struct Tally {
    cases: usize,
    done: usize,
    /// By the transport's own error, and by the look at the others.
    told: usize,
    looked: usize,
    slowest_ns: u64,
}

impl Tally {
    /// Loses `process` instead of its step `after_steps`; whether there was such a step.
    fn lose(
        &mut self,
        algorithm: &'static Algorithm,
        calls: &[Call],
        loss: Loss,
        (seed, jitter_ns): (u64, u64),
    ) -> bool {
        let duplicates = seed.is_multiple_of(2);
        let config = Config { seed, jitter_ns, duplicates, loss: Some(loss), ..Config::default() };
        let outcome = simulate(algorithm, calls, config);
        let named = || format!("{} {:?} {config:?}", algorithm.name, calls[0].collective);
        if !matches!(outcome.ranks[loss.process], RankResult::Lost) {
            let all_done = outcome.ranks.iter().all(|rank| matches!(rank, RankResult::Done(_)));
            assert!(all_done, "a rank failed and none was lost: {}", named());
            return false;
        }
        assert!(outcome.makespan_ns < BOUND_NS, "{} ns: {}", outcome.makespan_ns, named());
        check_results(algorithm, calls, &outcome, seed);
        self.cases += 1;
        self.slowest_ns = self.slowest_ns.max(outcome.makespan_ns);
        for rank in &outcome.ranks {
            match rank {
                RankResult::Done(_) => self.done += 1,
                RankResult::Failed(TransportError::GivenUp { .. }) => self.looked += 1,
                RankResult::Failed(_) => self.told += 1,
                RankResult::Lost => {}
            }
        }
        true
    }

    fn lose_at_each_step(
        &mut self,
        algorithm: &'static Algorithm,
        calls: &[Call],
        process: usize,
        luck: (u64, u64),
    ) {
        let steps = (algorithm.build)(&calls[process]).steps().len();
        let stride = if all_sizes() { 1 } else { steps.div_ceil(SOME_STEPS).max(1) };
        for after_steps in (0..steps).step_by(stride) {
            let loss = Loss { process, after_steps };
            assert!(
                self.lose(algorithm, calls, loss, luck),
                "{}: no step {after_steps}",
                algorithm.name
            );
        }
        let loss = Loss { process, after_steps: steps };
        assert!(
            !self.lose(algorithm, calls, loss, luck),
            "{}: more steps than it has",
            algorithm.name
        );
    }
}

#[test]
fn everybody_ends_when_a_rank_is_lost_at_any_step() {
    let sizes: &[usize] = if all_sizes() { &[2, 3, 4, 5, 7, 8, 9] } else { &[2, 3, 5] };
    let seeds = seeds(if all_sizes() { 1..9 } else { 2..3 });
    let mut tally = Tally::default();
    for &algorithm in ALGORITHMS {
        for &collective in algorithm.collectives {
            for (&size, &seed) in
                sizes.iter().flat_map(|size| seeds.iter().map(move |seed| (size, seed)))
            {
                let calls = calls_for(algorithm, collective, size, seed);
                if !calls.iter().all(|call| algorithm.can_do(call)) {
                    continue;
                }
                for process in 0..calls.len() {
                    for jitter_ns in [2_000, 50_000] {
                        tally.lose_at_each_step(algorithm, &calls, process, (seed, jitter_ns));
                    }
                }
            }
        }
    }
    println!("simulated {tally:?}");
    assert!(tally.done > 0 && tally.told > 0 && tally.looked > 0, "{tally:?}");
}
