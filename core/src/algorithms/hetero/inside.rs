//! Bcast and reduce inside a unit: by the vendor's library where it is a library group, by messages elsewhere.

use crate::algorithms::patterns::Tree;
use crate::builder::Builder;
use crate::schedule::{GroupCollective, Span, StepId};
use crate::topology::Unit;

/// Nothing of a span.
pub fn none_of(span: Span) -> Span {
    Span { len: 0, ..span }
}

/// Sends `data`, which the unit's rank with coordinate `root` has, to the others, who get it in `data`. By messages: a binomial tree.
pub fn bcast(b: &mut Builder, (unit, index): (&Unit, usize), root: usize, data: Span) {
    let members = unit.ranks.len();
    if members == 1 || data.len == 0 {
        return;
    }
    if unit.library {
        let (from, into) =
            if index == root { (data, none_of(data)) } else { (none_of(data), data) };
        b.group(GroupCollective::Bcast, root, from, into);
        return;
    }
    let tree = Tree::new((index + members - root) % members, members, 2);
    let rank = |node: usize| unit.ranks[(node + root) % members];
    if let Some(parent) = tree.parent() {
        b.recv(rank(parent), data);
    }
    for child in tree.children().into_iter().rev() {
        b.send(rank(child), data);
    }
}

/// Combines what the unit's ranks have in `from` at the one with coordinate `root`, in its `into`. By messages: all to the root, which
/// adds them up in the order of coordinates, with two arrivals at a time in `places`.
pub fn reduce(
    b: &mut Builder,
    (unit, index): (&Unit, usize),
    root: usize,
    from: Span,
    into: Span,
    places: &[Span],
) {
    let members = unit.ranks.len();
    if from.len == 0 {
        return;
    }
    if members == 1 {
        b.copy(from, into);
        return;
    }
    if unit.library {
        let into = if index == root { into } else { none_of(from) };
        b.group(GroupCollective::Reduce, root, from, into);
        return;
    }
    if index != root {
        b.send(unit.ranks[root], from);
        return;
    }
    let mut sum = from;
    for step in 1..members {
        let place = places[step % places.len()].part(0, from.len);
        b.recv(unit.ranks[(root + step) % members], place);
        b.reduce(sum, place, into);
        sum = into;
    }
}

/// Reduce-scatter of `whole`'s equal parts, and what is left over to the last rank: the library's steps, for `stages`.
pub fn library_reduce_scatter(
    b: &mut Builder,
    members: usize,
    index: usize,
    (whole, own): (Span, Span),
) -> Vec<StepId> {
    let part = whole.len / members;
    let scattered = b.group(
        GroupCollective::ReduceScatter,
        0,
        whole.part(0, part * members),
        own.part(0, part),
    );
    let rest = whole.part(part * members, whole.len % members);
    let last = index + 1 == members;
    let into = if last { own.part(part, rest.len) } else { none_of(own) };
    let reduced = b.group(GroupCollective::Reduce, members - 1, rest, into);
    scattered.into_iter().chain(reduced).collect()
}

/// The way back of [`library_reduce_scatter`], in one buffer.
pub fn library_allgather(
    b: &mut Builder,
    members: usize,
    index: usize,
    (whole, own): (Span, Span),
) -> Vec<StepId> {
    let part = whole.len / members;
    let gathered =
        b.group(GroupCollective::Allgather, 0, own.part(0, part), whole.part(0, part * members));
    let rest = whole.part(part * members, whole.len % members);
    let (from, into) =
        if index + 1 == members { (rest, none_of(rest)) } else { (none_of(rest), rest) };
    let spread = b.group(GroupCollective::Bcast, members - 1, from, into);
    gathered.into_iter().chain(spread).collect()
}
