//! Parts of schedules that several algorithms are made of. The whole algorithms cite their sources.

use std::collections::VecDeque;

use crate::algorithms::patterns::{Fold, Tree, even_range};
use crate::builder::Builder;
use crate::schedule::{Span, StepId};
use crate::types::Rank;

/// A binomial or k-nomial tree with any root: node numbers are ranks relative to the root.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rooted {
    tree: Tree,
    root: usize,
    size: usize,
}

impl Rooted {
    pub(crate) fn new(rank: usize, size: usize, root: usize, radix: usize) -> Rooted {
        Rooted { tree: Tree::new((rank + size - root) % size, size, radix), root, size }
    }

    /// The rank of a node.
    pub(crate) fn rank(&self, node: usize) -> Rank {
        Rank::from((node + self.root) % self.size)
    }

    pub(crate) fn parent(&self) -> Option<Rank> {
        self.tree.parent().map(|node| self.rank(node))
    }

    /// Nearest first.
    pub(crate) fn children(&self) -> Vec<Rank> {
        self.tree.children().into_iter().map(|node| self.rank(node)).collect()
    }
}

/// Hands `data` down a tree: a rank that is not the root receives it first. Farthest children, who have the most
/// to pass on, come first.
pub(crate) fn tree_bcast(b: &mut Builder, tree: &Rooted, data: Span) {
    if let Some(parent) = tree.parent() {
        b.recv(parent, data);
    }
    for child in tree.children().into_iter().rev() {
        b.send(child, data);
    }
}

/// Reduces `input` up a tree, and returns where the tree root's result is: `output` where it is given, or `input` for a
/// root without children. Other ranks get `None`.
///
/// Children are combined nearest first, so with root 0 the order is that of the ranks.
pub(crate) fn tree_reduce(
    b: &mut Builder,
    tree: &Rooted,
    input: Span,
    output: Option<Span>,
) -> Option<Span> {
    let children = tree.children();
    let mut sum = input;
    if !children.is_empty() {
        let into = output.unwrap_or_else(|| b.scratch(input.len));
        // Two places to receive in: the next child's data comes while the last one's is reduced.
        let places: Vec<Span> = (0..children.len().min(2)).map(|_| b.scratch(input.len)).collect();
        for (i, &child) in children.iter().enumerate() {
            let arrived = places[i % places.len()];
            b.recv(child, arrived);
            b.reduce(sum, arrived, into);
            sum = into;
        }
    }
    match tree.parent() {
        Some(parent) => {
            b.send(parent, sum);
            None
        }
        None => Some(sum),
    }
}

/// Sends and receives of one rank, none of which depends on another.
#[derive(Debug, Default)]
pub(crate) struct Exchange {
    pub(crate) sends: Vec<(Rank, Span)>,
    pub(crate) recvs: Vec<(Rank, Span)>,
}

impl Exchange {
    /// Adds the steps, with at most `window` sends and as many receives at a time.
    ///
    /// Receives are posted in the order given; both lists should start with different peers on different ranks. Where
    /// both are longer than the window, all ranks must have their messages in one common order (of steps, say), or
    /// sends that wait for their receives may wait in a circle.
    pub(crate) fn build(self, b: &mut Builder, window: usize) {
        let (mut sending, mut receiving) = (VecDeque::new(), VecDeque::new());
        let mut recvs = self.recvs.into_iter();
        let mut sends = self.sends.into_iter();
        loop {
            let (recv, send) = (recvs.next(), sends.next());
            if recv.is_none() && send.is_none() {
                return;
            }
            if let Some((peer, into)) = recv {
                let step = b.recv(peer, into);
                in_window(b, &mut receiving, step, window);
            }
            if let Some((peer, from)) = send {
                let step = b.send(peer, from);
                in_window(b, &mut sending, step, window);
            }
        }
    }
}

/// Makes `step` wait for the one that is `window` steps before it.
fn in_window(b: &mut Builder, steps: &mut VecDeque<StepId>, step: StepId, window: usize) {
    if steps.len() == window
        && let Some(earlier) = steps.pop_front()
    {
        b.after(earlier, step);
    }
    steps.push_back(step);
}

/// Reduce-scatter by recursive halving among the active ranks of a fold, after the folding itself: active rank number j
/// ends with part j of an even cut of `input`'s sum, at its place in `output`.
///
/// Source: R. Rabenseifner, "Optimization of Collective Reduction Operations", ICCS 2004.
pub(crate) fn halve(b: &mut Builder, fold: &Fold, input: Span, output: Span, in_place: bool) {
    let count = input.len;
    let mut sum = input;
    let mut arrivals = None;
    if let Some((peer, true)) = fold.partner() {
        let arrived = b.scratch(count);
        b.recv(peer, arrived);
        b.reduce(arrived, sum, output);
        (sum, arrivals) = (output, Some(arrived));
    }
    let number = fold.number().unwrap_or(0);
    let (mut low, mut high) = (0, fold.active());
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        let peer = number ^ (middle - low);
        let (kept, given) = if number < middle {
            ((low, middle), (middle, high))
        } else {
            ((middle, high), (low, middle))
        };
        let place = |(from, to)| even_range(count, fold.active(), from, to);
        let part = |whole: Span, range| {
            let block = place(range);
            whole.part(block.start, block.len)
        };
        // The first arrival may land in the output itself: nothing is there yet.
        let free = sum != output && !in_place;
        let arrived = if free {
            part(output, kept)
        } else {
            let all = *arrivals.get_or_insert_with(|| b.scratch(place(kept).len));
            all.part(0, place(kept).len)
        };
        b.recv(fold.rank_of(peer), arrived);
        b.send(fold.rank_of(peer), part(sum, given));
        b.reduce(arrived, part(sum, kept), part(output, kept));
        sum = output;
        (low, high) = kept;
    }
    if sum != output {
        b.copy(sum, output);
    }
}
