//! Every algorithm of the table through the verifier.

use hetccl_core::algorithms::{ALGORITHMS, Algorithm, Scope};
use hetccl_core::verify::cases::{self, Variant};
use hetccl_core::verify::{self, Report};
use hetccl_core::{Call, Collective};

const SIZES: [usize; 21] =
    [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 31, 32, 33, 64];

/// Most ranks of the algorithms by groups, which have many schedules a case, where not [`all_sizes`] are taken.
const GROUPED: usize = 9;

/// Whether to take all sizes of the algorithms by groups, as `cargo xtask simulate --check` does; without, the small ones.
fn all_sizes() -> bool {
    std::env::var_os("HETCCL_ALL_SIZES").is_some()
}

#[derive(Default)]
struct Tally {
    cases: usize,
    steps: usize,
    messages: usize,
}

impl Tally {
    fn check(&mut self, algorithm: &Algorithm, calls: &[Call]) {
        if !calls.iter().all(|call| algorithm.can_do(call)) {
            return;
        }
        let Report { steps, messages, .. } =
            verify::check(algorithm, calls).unwrap_or_else(|violation| panic!("{violation}"));
        self.cases += 1;
        self.steps += steps;
        self.messages += messages;
    }
}

/// Small sizes see every combination, large ones some.
fn variants(collective: Collective, size: usize) -> Vec<Variant> {
    let small = size <= 6;
    let counts: &[usize] = match (small, collective) {
        (_, Collective::Barrier) => &[0],
        (true, _) => &[0, 1, size - 1, size, size + 1, 13],
        (false, _) => &[1, size + 1, 7],
    };
    let roots: Vec<usize> = match (collective.rooted(), small) {
        (false, _) => vec![0],
        (true, true) => (0..size).collect(),
        (true, false) => vec![0, size / 2, size - 1],
    };
    let chunks: &[usize] = if small { &[usize::MAX, 1, 3] } else { &[usize::MAX, 3] };
    let seeds: &[u64] = if small { &[1, 2, 3, 4, 6, 9] } else { &[2, 3, 4] };
    let mut variants = Vec::new();
    for &count in counts {
        for &root in &roots {
            for (i, &seed) in seeds.iter().enumerate() {
                for in_place in [false, true] {
                    let ordered = collective.reduces() && (i + usize::from(in_place)) % 2 == 1;
                    let chunk = chunks[(i + root + count) % chunks.len()];
                    variants.push(Variant { count, root, in_place, ordered, chunk, seed });
                }
            }
        }
    }
    variants
}

#[test]
fn every_algorithm_on_intra_communicators() {
    for algorithm in ALGORITHMS.iter().filter(|a| a.scope == Scope::Intra) {
        let mut tally = Tally::default();
        for &collective in algorithm.collectives {
            let grouped = algorithm.name.starts_with("hetero") && !all_sizes();
            for size in SIZES.into_iter().filter(|&size| !grouped || size <= GROUPED) {
                for variant in variants(collective, size) {
                    tally.check(algorithm, &cases::intra(collective, size, &variant));
                }
            }
        }
        report(algorithm, &tally);
    }
}

#[test]
fn every_algorithm_on_inter_communicators() {
    for algorithm in ALGORITHMS.iter().filter(|a| a.scope == Scope::Inter) {
        let mut tally = Tally::default();
        for &collective in algorithm.collectives {
            for sizes in
                [(1, 1), (1, 2), (2, 1), (3, 2), (2, 5), (4, 4), (7, 3), (16, 17), (33, 31)]
            {
                let large = sizes.0 + sizes.1 > 16;
                for variant in variants(collective, if large { 16 } else { 4 }) {
                    let variant = Variant { in_place: false, ..variant };
                    tally.check(algorithm, &cases::inter(collective, sizes, &variant));
                }
            }
        }
        report(algorithm, &tally);
    }
}

fn report(algorithm: &Algorithm, tally: &Tally) {
    let names: Vec<&str> = algorithm.collectives.iter().map(|c| c.name()).collect();
    println!(
        "verified {:>6} cases, {:>9} steps, {:>9} messages: {} ({:?}) by {}",
        tally.cases,
        tally.steps,
        tally.messages,
        names.join(", "),
        algorithm.scope,
        algorithm.name
    );
    assert!(tally.cases > 0, "{} was never tried", algorithm.name);
}
