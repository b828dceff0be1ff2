//! Runs the schedules of all ranks in virtual time.

use std::sync::Arc;

use hetccl_core::algorithms::Algorithm;
use hetccl_core::verify::process_of;
use hetccl_core::{Binding, Call, Rank, Reduction, Run, TransportError};
use rand::SeedableRng;
use rand::rngs::SmallRng;

use crate::groups::{Groups, Queue};
use crate::memory::{Arithmetic, ELEMENT_BYTES, Memory};
use crate::network::{Happening, Network};
use crate::rank::SimRank;

/// The machine and the bad luck.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Config {
    /// Everything random follows from it.
    pub seed: u64,
    /// Alpha: time from the last byte's departure to its arrival.
    pub latency_ns: u64,
    /// 1 / beta: a sender's link rate.
    pub bytes_per_ns: f64,
    /// Gamma: time to reduce a byte.
    pub reduce_ns_per_byte: f64,
    /// Most random extra delay of a message and of a rank's turn.
    pub jitter_ns: u64,
    /// Half of the messages arrive twice, and so does the word that they have.
    pub duplicates: bool,
    /// A rank that is lost.
    pub loss: Option<Loss>,
}

/// Time between a loss and the look at the others that ranks take which wait long, as `runtime::watch` has it: a dead process is
/// seen by all, also by those that wait for somebody else.
pub const LOOK_NS: u64 = 100_000_000;

impl Default for Config {
    fn default() -> Self {
        Config {
            seed: 1,
            latency_ns: 1_000,
            bytes_per_ns: 10.0,
            reduce_ns_per_byte: 0.05,
            jitter_ns: 0,
            duplicates: false,
            loss: None,
        }
    }
}

/// When a rank is lost: instead of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loss {
    /// The process, by its place in the list of calls.
    pub process: usize,
    /// Messages, copies and reductions that it begins before its end. With more than its schedule has, it is not lost.
    pub after_steps: usize,
}

/// How a rank ended.
#[derive(Clone, Debug)]
pub enum RankResult {
    /// With its output.
    Done(Vec<[u32; 2]>),
    /// With an error.
    Failed(TransportError),
    /// It was lost.
    Lost,
}

/// A finished run.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// How each rank ended.
    pub ranks: Vec<RankResult>,
    /// Virtual time until the last rank ended.
    pub makespan_ns: u64,
    /// Messages of all ranks.
    pub messages: usize,
    /// Their bytes.
    pub bytes: usize,
}

/// A run that did not end as it must.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{what}\n  replay: HETCCL_SIM_SEED={seed} ({algorithm}, {config:?})")]
pub struct Failure {
    /// What went wrong.
    pub what: String,
    /// The seed.
    pub seed: u64,
    /// The algorithm.
    pub algorithm: &'static str,
    /// The configuration.
    pub config: Config,
}

/// Ranks get so many turns before a run counts as endless.
const MOST_TURNS: usize = 50_000_000;

/// All ranks of a communicator.
pub struct Simulation {
    config: Config,
    arithmetic: Arithmetic,
}

impl Simulation {
    /// A simulation of this machine; reductions compute with `arithmetic`.
    pub fn new(config: Config, arithmetic: Arithmetic) -> Simulation {
        Simulation { config, arithmetic }
    }

    /// Runs a collective. `input` and `output` give each process's initial elements.
    ///
    /// # Errors
    /// A run that does not end, or leaves messages behind although no rank was lost.
    pub fn run(
        &self,
        algorithm: &'static Algorithm,
        calls: &[Call],
        initial: impl Fn(usize) -> (Vec<[u32; 2]>, Vec<[u32; 2]>),
    ) -> Result<Outcome, Failure> {
        let random = SmallRng::seed_from_u64(self.config.seed);
        let mut network = Network::new(self.config, random, calls.len());
        let mut groups = Groups::default();
        let mut ranks: Vec<SimRank> = (0..calls.len())
            .map(|process| self.start(algorithm, calls, process, &initial(process)))
            .collect();
        let mut pending = vec![true; calls.len()];
        for process in 0..calls.len() {
            let delay = network.jitter_ns();
            network.schedule(delay, Happening::Turn(process));
        }
        let mut total = 0;
        while let Some(happening) = network.next() {
            let woken = match happening {
                Happening::Turn(process) => {
                    pending[process] = false;
                    vec![process]
                }
                Happening::Arrival(lane) => vec![lane.to],
                // Those who wait for a lost rank hear of it.
                Happening::Loss(_) => (0..ranks.len()).collect(),
                Happening::Look => {
                    ranks.iter_mut().for_each(|rank| rank.give_up(&network));
                    continue;
                }
            };
            for process in woken {
                total += 1;
                if total > MOST_TURNS {
                    return Err(self.failure(algorithm, "ranks run without an end".into()));
                }
                let wish =
                    ranks[process].turn(&mut network, &self.config, self.arithmetic, &mut groups);
                if let Some(delay) = wish
                    && !pending[process]
                {
                    pending[process] = true;
                    let jitter = network.jitter_ns();
                    network.schedule(delay + jitter, Happening::Turn(process));
                }
            }
        }
        self.conclude(algorithm, &network, ranks)
    }

    fn start(
        &self,
        algorithm: &Algorithm,
        calls: &[Call],
        process: usize,
        (input, output): &(Vec<[u32; 2]>, Vec<[u32; 2]>),
    ) -> SimRank {
        let call = &calls[process];
        let schedule = Arc::new((algorithm.build)(call));
        let scratch = Run::scratch_bytes(&schedule, ELEMENT_BYTES);
        let memory = Memory::new(input, output, scratch);
        let [input, output, scratch] = memory.regions();
        let mut run = Run::new(schedule);
        run.start(Binding {
            input,
            output,
            scratch,
            element_bytes: ELEMENT_BYTES,
            reduction: Some(Reduction::External(0)),
            sequence: 0,
        });
        let reachable = call.size() + call.group.remote_len();
        let peers =
            (0..reachable).map(|rank| process_of(calls, process, Rank::from(rank))).collect();
        let loss = self.config.loss.filter(|loss| loss.process == process);
        let library = Queue::new(call.topology.as_ref(), process);
        SimRank::new(process, run, memory, peers, loss.map(|loss| loss.after_steps), library)
    }

    fn conclude(
        &self,
        algorithm: &'static Algorithm,
        network: &Network,
        ranks: Vec<SimRank>,
    ) -> Result<Outcome, Failure> {
        let mut makespan_ns = 0;
        let mut results = Vec::with_capacity(ranks.len());
        for rank in ranks {
            if network.is_lost(rank.process) {
                results.push(RankResult::Lost);
                continue;
            }
            makespan_ns = makespan_ns.max(rank.ended_ns).max(network.now_ns());
            results.push(match rank.ended {
                Some(Ok(())) => RankResult::Done(rank.memory.output()),
                Some(Err(error)) => RankResult::Failed(error),
                None => {
                    let what = format!(
                        "process {} waits for ever, {} steps unfinished",
                        rank.process,
                        rank.run.unfinished()
                    );
                    return Err(self.failure(algorithm, what));
                }
            });
        }
        if self.config.loss.is_none()
            && !self.config.duplicates
            && let Some(lane) = network.left_over().first()
        {
            return Err(self.failure(algorithm, format!("a message was never received: {lane:?}")));
        }
        Ok(Outcome {
            ranks: results,
            makespan_ns,
            messages: network.messages,
            bytes: network.bytes,
        })
    }

    fn failure(&self, algorithm: &'static Algorithm, what: String) -> Failure {
        Failure { what, seed: self.config.seed, algorithm: algorithm.name, config: self.config }
    }
}
