//! No algorithm counts on the wire to hold a message: every schedule also ends when no send finishes before its
//! receive has started, as large messages behave on real networks.
//!
//! The verifier's own run lets a send finish at once, so a circle of sends that wait for each other's receives passes
//! there. Windows of messages show such circles only with more peers than a window holds, hence the large sizes.

use std::collections::HashMap;

use hetccl_core::algorithms::{ALGORITHMS, Algorithm, Scope};
use hetccl_core::verify::cases::{self, Variant};
use hetccl_core::verify::process_of;
use hetccl_core::{Block, Call, Collective, Layout, Neighbours, Rank, Schedule, Step, StepId};

/// Both ends of a message: sender, receiver, number.
type Message = (usize, usize, u16);

/// Runs all schedules with sends that finish together with their receives.
///
/// # Errors
/// The steps that have started and wait for ever, at most four of them.
fn run(calls: &[Call], schedules: &[Schedule]) -> Result<(), String> {
    let mut waiting: Vec<Vec<u32>> = schedules.iter().map(|s| s.waits_for().to_vec()).collect();
    let mut unfinished: usize = schedules.iter().map(|s| s.steps().len()).sum();
    let mut started: HashMap<(Message, bool), (usize, StepId)> = HashMap::new();
    let mut ready = Vec::new();
    let mut groups: HashMap<(usize, usize), Vec<(usize, StepId)>> = HashMap::new();
    let mut behind = vec![0; calls.len()];
    for (process, counts) in waiting.iter().enumerate() {
        let free = (0..counts.len()).filter(|&i| counts[i] == 0);
        ready.extend(free.map(|i| (process, StepId(i as u32))));
    }
    while let Some((process, id)) = ready.pop() {
        let other_end = |peer| process_of(calls, process, peer);
        let (message, sends) = match schedules[process].steps()[id.0 as usize] {
            Step::Send { peer, message, .. } => ((process, other_end(peer), message), true),
            Step::Recv { peer, message, .. } => ((other_end(peer), process, message), false),
            Step::Group { .. } => {
                let met = groups.entry(meeting(calls, process, &mut behind)).or_default();
                met.push((process, id));
                if met.len() == members(calls, process) {
                    for finished in std::mem::take(met) {
                        unfinished -= 1;
                        release(schedules, &mut waiting, &mut ready, finished);
                    }
                }
                continue;
            }
            Step::Copy { .. } | Step::Reduce { .. } => {
                unfinished -= 1;
                release(schedules, &mut waiting, &mut ready, (process, id));
                continue;
            }
        };
        match started.remove(&(message, !sends)) {
            Some(partner) => {
                unfinished -= 2;
                for finished in [partner, (process, id)] {
                    release(schedules, &mut waiting, &mut ready, finished);
                }
            }
            None => {
                started.insert((message, sends), (process, id));
            }
        }
    }
    if unfinished == 0 {
        return Ok(());
    }
    let stuck: Vec<String> = started
        .iter()
        .take(4)
        .map(|((message, _), (process, id))| format!("process {process} {id:?} {message:?}"))
        .collect();
    Err(format!("{unfinished} steps wait for ever, among them {stuck:?}"))
}

/// The library group of a process, and how many collectives there are behind it.
fn meeting(calls: &[Call], process: usize, behind: &mut [usize]) -> (usize, usize) {
    let hierarchy = calls[process].topology.as_ref();
    let group = hierarchy.and_then(|hierarchy| hierarchy.library_group(process));
    behind[process] += 1;
    (group.expect("only ranks of library groups have such steps"), behind[process])
}

fn members(calls: &[Call], process: usize) -> usize {
    let hierarchy = calls[process].topology.as_ref();
    let group = hierarchy.and_then(|h| Some(h.library_groups()[h.library_group(process)?].len()));
    group.expect("only ranks of library groups have such steps")
}

fn release(
    schedules: &[Schedule],
    waiting: &mut [Vec<u32>],
    ready: &mut Vec<(usize, StepId)>,
    (process, id): (usize, StepId),
) {
    for &next in schedules[process].successors(id) {
        let count = &mut waiting[process][next.0 as usize];
        *count -= 1;
        if *count == 0 {
            ready.push((process, next));
        }
    }
}

#[derive(Default)]
struct Tally {
    cases: usize,
    failures: Vec<String>,
}

impl Tally {
    /// Nothing, where the algorithm can't do the calls.
    fn check(&mut self, algorithm: &Algorithm, calls: &[Call]) {
        if !calls.iter().all(|call| algorithm.can_do(call)) {
            return;
        }
        self.cases += 1;
        let schedules: Vec<Schedule> = calls.iter().map(|call| (algorithm.build)(call)).collect();
        if let Err(what) = run(calls, &schedules) {
            let (name, collective) = (algorithm.name, calls[0].collective.name());
            let (size, remote) = (calls[0].size(), calls[0].group.remote_size.unwrap_or(0));
            self.failures.push(format!("{collective} by {name}, {size} + {remote} ranks: {what}"));
        }
    }

    fn finish(self) {
        println!("{} cases end with sends that wait for their receives", self.cases);
        assert!(self.cases > 0, "nothing was tried");
        assert!(self.failures.is_empty(), "{}", self.failures.join("\n"));
    }
}

fn variants(collective: Collective, size: usize) -> impl Iterator<Item = Variant> {
    let roots = if collective.rooted() { vec![0, size - 1] } else { vec![0] };
    roots.into_iter().flat_map(move |root| {
        [(false, 1), (true, 2), (false, 4)].map(|(in_place, seed)| Variant {
            root,
            in_place,
            seed,
            chunk: 3,
            ordered: collective.reduces() && seed == 4,
            ..Variant::plain(7)
        })
    })
}

#[test]
fn intra_communicators() {
    let mut tally = Tally::default();
    for algorithm in ALGORITHMS.iter().filter(|a| a.scope == Scope::Intra) {
        for &collective in algorithm.collectives {
            for size in [1, 2, 3, 4, 5, 7, 8, 13, 16, 33, 80, 128] {
                for variant in variants(collective, size) {
                    tally.check(algorithm, &cases::intra(collective, size, &variant));
                }
            }
        }
    }
    tally.finish();
}

#[test]
fn inter_communicators() {
    let sizes = [(1, 1), (1, 2), (3, 2), (33, 31), (1, 100), (80, 80), (70, 110), (97, 40)];
    let mut tally = Tally::default();
    for algorithm in ALGORITHMS.iter().filter(|a| a.scope == Scope::Inter) {
        for &collective in algorithm.collectives {
            for sizes in sizes {
                for variant in variants(collective, sizes.0.min(sizes.1)) {
                    tally.check(algorithm, &cases::inter(collective, sizes, &variant));
                }
            }
        }
    }
    tally.finish();
}

/// Everybody is everybody's neighbour, and each rank names its successor first, as sources and as destinations.
#[test]
fn neighbourhoods_larger_than_a_window() {
    let mut tally = Tally::default();
    for collective in Collective::ALL.into_iter().filter(|c| c.name().starts_with("neighbor")) {
        for size in [40, 80, 130] {
            let calls: Vec<Call> =
                (0..size).map(|rank| everybodys_neighbour(collective, rank, size)).collect();
            for algorithm in ALGORITHMS {
                tally.check(algorithm, &calls);
            }
        }
    }
    assert_eq!(tally.cases, 15);
    tally.finish();
}

fn everybodys_neighbour(collective: Collective, rank: usize, size: usize) -> Call {
    let list: Vec<Option<Rank>> =
        (1..=size).map(|distance| Some(Rank::from((rank + distance) % size))).collect();
    let blocks: Vec<Block> = (0..size).map(|i| Block { start: i, len: 1 }).collect();
    let gathers =
        matches!(collective, Collective::NeighborAllgather | Collective::NeighborAllgatherv);
    let send = if gathers { &blocks[..1] } else { &blocks[..] };
    let layout = Layout::Blocks { send: send.into(), recv: blocks.clone().into() };
    let mut call = Call::new(collective, rank, size, layout);
    call.neighbours = Some(Neighbours {
        sources: list.clone().into(),
        destinations: list.into(),
        cartesian: false,
    });
    call
}
