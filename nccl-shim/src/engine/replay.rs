//! Graphs of the program's that have work of this communicator in them, and their launches.
//!
//! ```text
//! recorded in the graph   ready = 1; wait until done is 1; done = 0     for each call or group (order.rs: a pair of words)
//! at each launch          a host function beside the work tells the engine, which wakes
//! engine                  ready is 1: ready = 0, the works run as they were recorded, done = 1
//! ```
//!
//! The engine takes the calls of a graph in the order in which they were recorded, the same on all ranks, whatever order
//! their streams come to them in.

use super::task::Running;
use crate::operation::Work;
use crate::order::Pair;

/// A call or group as it was recorded.
#[derive(Debug)]
pub(crate) struct Recorded {
    /// The recording's number.
    pub(crate) graph: u64,
    pub(crate) pair: Pair,
    pub(crate) works: Vec<Work>,
}

/// A graph.
#[derive(Debug)]
struct Graph {
    id: u64,
    calls: Vec<Recorded>,
    /// The call that comes next.
    next: usize,
    /// Launches that were told of, minus those whose calls have all ended. The word may come after the work.
    under_way: i64,
}

/// All graphs that may be launched.
#[derive(Debug, Default)]
pub(super) struct Replays {
    graphs: Vec<Graph>,
}

/// A call of a graph, until it has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CallInGraph {
    graph: u64,
    call: usize,
}

impl Replays {
    /// Takes in what was recorded.
    pub(super) fn record(&mut self, recorded: Recorded) {
        let id = recorded.graph;
        match self.graphs.iter_mut().find(|graph| graph.id == id) {
            Some(graph) => graph.calls.push(recorded),
            None => self.graphs.push(Graph { id, calls: vec![recorded], next: 0, under_way: 0 }),
        }
    }

    /// A graph has been launched.
    pub(super) fn launched(&mut self, id: u64) {
        if let Some(graph) = self.graphs.iter_mut().find(|graph| graph.id == id) {
            graph.under_way += 1;
        }
    }

    /// A graph can't be launched any more.
    pub(super) fn gone(&mut self, id: u64) {
        let gone = self.graphs.extract_if(.., |graph| graph.id == id);
        gone.flat_map(|graph| graph.calls).for_each(|recorded| recorded.pair.give_back());
    }

    /// Whether calls of launched graphs are still to come.
    pub(super) fn are_awaited(&self) -> bool {
        self.graphs.iter().any(|graph| graph.under_way > 0)
    }

    /// A call whose stream has come to it. A graph that has begun goes before others.
    pub(super) fn next(&mut self) -> Option<Running> {
        let ready = |graph: &&mut Graph| graph.calls[graph.next].pair.take_ready();
        let (begun, others): (Vec<_>, Vec<_>) =
            self.graphs.iter_mut().partition(|graph| graph.next > 0);
        let graph = begun.into_iter().chain(others).find(ready)?;
        let place = CallInGraph { graph: graph.id, call: graph.next };
        Some(Running::again(place, graph.calls[graph.next].works.clone()))
    }

    /// A call has ended: its stream goes on.
    pub(super) fn end(&mut self, place: CallInGraph) {
        let Some(graph) = self.graphs.iter_mut().find(|graph| graph.id == place.graph) else {
            return;
        };
        graph.next = (place.call + 1) % graph.calls.len();
        if graph.next == 0 {
            graph.under_way -= 1;
        }
        graph.calls[place.call].pair.let_go();
    }

    /// Lets the streams of all launches go on, as if their calls had ended.
    pub(super) fn dismiss(&mut self) {
        for graph in &mut self.graphs {
            (graph.next, graph.under_way) = (0, 0);
            for recorded in &graph.calls {
                if recorded.pair.take_ready() {
                    recorded.pair.let_go();
                }
            }
        }
    }

    /// Lets all streams go on for good.
    pub(super) fn release(&self) {
        for recorded in self.graphs.iter().flat_map(|graph| &graph.calls) {
            recorded.pair.let_go();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replays(graphs: &[(u64, usize)]) -> Replays {
        let mut replays = Replays::default();
        for &(graph, calls) in graphs {
            for _ in 0..calls {
                replays.record(Recorded { graph, pair: Pair::for_tests(), works: Vec::new() });
            }
        }
        replays
    }

    fn write_ready(replays: &Replays, graph: usize, call: usize) {
        replays.graphs[graph].calls[call]
            .pair
            .ready()
            .store(1, std::sync::atomic::Ordering::Release);
    }

    fn place(replays: &mut Replays) -> Option<CallInGraph> {
        replays.next().map(|running| running.place().expect("a graph's"))
    }

    #[test]
    fn calls_of_a_graph_keep_the_order_of_their_recording() {
        let mut replays = replays(&[(7, 2)]);
        write_ready(&replays, 0, 1);
        assert_eq!(place(&mut replays), None, "the second is ready, the first is not");
        write_ready(&replays, 0, 0);
        let first = place(&mut replays).unwrap();
        assert_eq!(first, CallInGraph { graph: 7, call: 0 });
        replays.end(first);
        let second = place(&mut replays).unwrap();
        assert_eq!(second, CallInGraph { graph: 7, call: 1 });
        replays.end(second);
        assert_eq!(place(&mut replays), None);
    }

    #[test]
    fn a_graph_that_has_begun_goes_first() {
        let mut replays = replays(&[(1, 1), (2, 2)]);
        write_ready(&replays, 1, 0);
        let begun = place(&mut replays).unwrap();
        replays.end(begun);
        write_ready(&replays, 0, 0);
        write_ready(&replays, 1, 1);
        assert_eq!(place(&mut replays), Some(CallInGraph { graph: 2, call: 1 }));
    }

    #[test]
    fn the_word_of_a_launch_may_come_after_its_work() {
        let mut replays = replays(&[(1, 1)]);
        for early in [false, true] {
            if early {
                replays.launched(1);
                assert!(replays.are_awaited());
            }
            write_ready(&replays, 0, 0);
            let call = place(&mut replays).unwrap();
            replays.end(call);
            if !early {
                replays.launched(1);
            }
            assert!(!replays.are_awaited());
        }
    }
}
