//! Whether any two steps of a rank touch the same memory, one of them writing, without an order between them.

use crate::schedule::{Buffer, Schedule, Span, Step};

/// The processes whose schedules are looked at: all of a few, some of many.
pub(super) fn sample(processes: usize) -> Vec<usize> {
    if processes <= 8 {
        return (0..processes).collect();
    }
    let mut some = vec![0, 1, 2, processes / 2, processes / 2 + 1, processes - 2, processes - 1];
    some.dedup();
    some
}

struct Access {
    step: usize,
    span: Span,
    writes: bool,
}

/// # Errors
/// The two steps.
pub(super) fn check(schedule: &Schedule) -> Result<(), String> {
    let mut accesses = accesses(schedule);
    let before = ancestors(schedule);
    accesses.sort_by_key(|access| (access.span.buffer, access.span.start));
    for (i, a) in accesses.iter().enumerate() {
        for b in &accesses[i + 1..] {
            if b.span.buffer != a.span.buffer || b.span.start >= a.span.end() {
                break;
            }
            let (early, late) = (a.step.min(b.step), a.step.max(b.step));
            if early != late && (a.writes || b.writes) && !before.contains(early, late) {
                return Err(format!(
                    "race: steps {early} ({:?}) and {late} ({:?}) touch the same memory in no order",
                    schedule.steps()[early],
                    schedule.steps()[late]
                ));
            }
        }
    }
    Ok(())
}

fn accesses(schedule: &Schedule) -> Vec<Access> {
    let mut accesses = Vec::new();
    for (step, &what) in schedule.steps().iter().enumerate() {
        let (reads, writes) = match what {
            Step::Send { from, .. } => (vec![from], None),
            Step::Recv { into, .. } => (vec![], Some(into)),
            Step::Copy { from, into } => (vec![from], Some(into)),
            Step::Reduce { left, right, into } => (vec![left, right], Some(into)),
            Step::Group { from, into, .. } => (vec![from], Some(into)),
        };
        let reads = reads.into_iter().map(|span| (span, false));
        for (mut span, writes) in reads.chain(writes.map(|span| (span, true))) {
            if schedule.in_place() && span.buffer == Buffer::Input {
                span.buffer = Buffer::Output;
            }
            if span.len > 0 {
                accesses.push(Access { step, span, writes });
            }
        }
    }
    accesses
}

/// Which steps come before which, as a bit matrix.
struct Before {
    words: usize,
    bits: Vec<u64>,
}

impl Before {
    fn contains(&self, early: usize, late: usize) -> bool {
        self.bits[late * self.words + early / 64] >> (early % 64) & 1 == 1
    }
}

fn ancestors(schedule: &Schedule) -> Before {
    let n = schedule.steps().len();
    let words = n.div_ceil(64);
    let mut before = Before { words, bits: vec![0; n * words] };
    for step in 0..n {
        for next in schedule.successors(crate::schedule::StepId(step as u32)) {
            let next = next.0 as usize;
            for word in 0..words {
                before.bits[next * words + word] |= before.bits[step * words + word];
            }
            before.bits[next * words + step / 64] |= 1 << (step % 64);
        }
    }
    before
}
