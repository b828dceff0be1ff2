//! Every collective between threads that each have a mapping of one segment.

use std::cell::RefCell;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};

use hetccl_core::{
    Call, Collective, Datatype, Layout as Blocks, Rank, Reduction, ReductionOp, Region, Root,
};

use super::blocking::Lane;
use super::*;
use crate::host::ExternalReducer;
use crate::process::Request;

thread_local! {
    /// Whether another rank of this thread's test has failed.
    static FAILED: RefCell<Option<Arc<AtomicBool>>> = const { RefCell::new(None) };
}

/// A rank that waits for one that has failed would wait for ever.
fn give_up_with_the_others() {
    FAILED.with_borrow(|failed| {
        assert!(!failed.as_ref().is_some_and(|f| f.load(Ordering::Relaxed)), "another rank failed");
    });
}

/// Runs `body` on each rank's thread.
fn ranks(n: usize, ring_bytes: usize, body: impl Fn(&mut Lane, usize) + Sync) {
    segments(n, ring_bytes, |segment, rank| {
        let waiter = Waiter::new(give_up_with_the_others, true);
        body(&mut Lane::new(&segment, rank, Vec::new(), waiter), rank);
    });
}

/// Runs `body` on each rank's thread, with a mapping of one segment.
fn segments(n: usize, ring_bytes: usize, body: impl Fn(Arc<Segment>, usize) + Sync) {
    let layout = Layout::new(n, ring_bytes);
    let (first, descriptor) =
        Segment::create(layout, SegmentKind::Anonymous, Path::new("/dev/shm")).unwrap();
    let ready = Arc::new(Barrier::new(n));
    let failed = Arc::new(AtomicBool::new(false));
    let mut first = Some(first);
    std::thread::scope(|scope| {
        for rank in 0..n {
            let segment = match rank {
                0 => first.take().unwrap(),
                _ => Segment::open(layout, &descriptor, Path::new("/dev/shm")).unwrap(),
            };
            let (ready, body) = (Arc::clone(&ready), &body);
            let failed = Arc::clone(&failed);
            scope.spawn(move || {
                FAILED.set(Some(Arc::clone(&failed)));
                ready.wait();
                let run = std::panic::AssertUnwindSafe(|| body(Arc::new(segment), rank));
                if let Err(panic) = std::panic::catch_unwind(run) {
                    failed.store(true, Ordering::Relaxed);
                    std::panic::resume_unwind(panic);
                }
            });
        }
    });
}

const SUM: (ReductionOp, Datatype) = (ReductionOp::Sum, Datatype::Float64);

/// Lengths on both sides of every threshold, of the slot, the chunk and the ring.
const COUNTS: [usize; 12] = [0, 1, 6, 7, 13, 64, 512, 1025, 2049, 5000, 20_000, 100_003];

fn value(rank: usize, i: usize) -> f64 {
    (rank + 1) as f64 + (i % 7) as f64
}

fn contribution(rank: usize, count: usize) -> Vec<f64> {
    (0..count).map(|i| value(rank, i)).collect()
}

fn sum(ranks: std::ops::Range<usize>, count: usize) -> Vec<f64> {
    (0..count).map(|i| ranks.clone().map(|r| value(r, i)).sum()).collect()
}

fn bytes(v: &[f64]) -> *const u8 {
    v.as_ptr().cast()
}

fn bytes_mut(v: &mut [f64]) -> *mut u8 {
    v.as_mut_ptr().cast()
}

#[test]
fn reductions_of_every_length() {
    for n in [2, 3, 5] {
        ranks(n, 64 << 10, |lane, me| {
            for round in 0..3 {
                for count in COUNTS {
                    let mine = contribution(me, count);
                    let mut out = vec![-1.0; count];
                    // SAFETY: the buffers have `count` elements.
                    unsafe { lane.allreduce(bytes(&mine), bytes_mut(&mut out), count, &SUM) }
                        .unwrap();
                    assert_eq!(out, sum(0..n, count), "allreduce of {count}");
                    let root = (count + round) % n;
                    let mut out = if me == root { mine.clone() } else { Vec::new() };
                    let at = bytes_mut(&mut out);
                    let input = if me == root { at.cast_const() } else { bytes(&mine) };
                    // SAFETY: as above.
                    unsafe { lane.reduce(input, at, count, &SUM, root) }.unwrap();
                    if me == root {
                        assert_eq!(out, sum(0..n, count), "reduce of {count} in place");
                    }
                    let mut out = mine.clone();
                    let at = bytes_mut(&mut out);
                    // SAFETY: as above.
                    unsafe { lane.scan(at, at, count, &SUM, true) }.unwrap();
                    assert_eq!(out, sum(0..me + 1, count), "scan of {count} in place");
                    let mut out = vec![-1.0; count];
                    // SAFETY: as above.
                    unsafe { lane.scan(bytes(&mine), bytes_mut(&mut out), count, &SUM, false) }
                        .unwrap();
                    let want = if me == 0 { vec![-1.0; count] } else { sum(0..me, count) };
                    assert_eq!(out, want, "exscan of {count}");
                }
            }
        });
    }
}

#[test]
fn reduce_scatter_of_every_length() {
    for n in [2, 3, 4] {
        ranks(n, 64 << 10, |lane, me| {
            for count in COUNTS {
                for in_place in [false, true] {
                    let elements = |r: usize| if r == 1 { count } else { count / 2 + r };
                    let total: usize = (0..n).map(elements).sum();
                    let start: usize = (0..me).map(elements).sum();
                    let mut mine = contribution(me, total);
                    let mut out = vec![-1.0; elements(me)];
                    let input = bytes_mut(&mut mine);
                    let output = if in_place { input } else { bytes_mut(&mut out) };
                    // SAFETY: the buffers have what the lengths say.
                    unsafe { lane.reduce_scatter(input.cast_const(), output, elements, &SUM) }
                        .unwrap();
                    let got = if in_place { &mine[..elements(me)] } else { &out[..] };
                    let want = &sum(0..n, total)[start..start + elements(me)];
                    assert_eq!(got, want, "count {count}, in place {in_place}");
                }
            }
        });
    }
}

#[test]
fn movements_of_every_length() {
    for n in [2, 3, 5] {
        ranks(n, 64 << 10, |lane, me| {
            for count in COUNTS {
                let root = count % n;
                let len = count * 8;
                let mine = contribution(me, count);
                let mut out = contribution(if me == root { me } else { 99 }, count);
                // SAFETY: the buffers have what the lengths say.
                unsafe { lane.bcast(bytes_mut(&mut out).cast(), len, root) }.unwrap();
                assert_eq!(out, contribution(root, count), "bcast");
                let mut out = vec![-1.0; count * n];
                let at = bytes_mut(&mut out);
                let into = |r: usize| (at.wrapping_add(r * len), len);
                // SAFETY: as above.
                unsafe { lane.gather((bytes(&mine), len), into, root, true) }.unwrap();
                let everything: Vec<f64> = (0..n).flat_map(|r| contribution(r, count)).collect();
                if me == root {
                    assert_eq!(out, everything, "gather");
                }
                out.fill(-2.0);
                // SAFETY: as above.
                unsafe { lane.allgather((bytes(&mine), len), into) }.unwrap();
                assert_eq!(out, everything, "allgather of {count}");
                let mut block = vec![-1.0; count];
                let to = (bytes_mut(&mut block), len);
                let from = |r: usize| (into(r).0.cast_const(), len);
                // SAFETY: as above.
                unsafe { lane.scatter(to, from, root, true) }.unwrap();
                assert_eq!(block, mine, "scatter");
                lane.barrier().unwrap();
            }
        });
    }
}

#[test]
fn blocks_of_different_lengths() {
    // What `a` sends to `b`, in elements.
    let elements = |count: usize, a: usize, b: usize| (count * (a + 1) + b) % (2 * count + 3);
    for n in [2, 3, 4] {
        ranks(n, 64 << 10, |lane, me| {
            for count in COUNTS {
                let sent: Vec<Vec<f64>> =
                    (0..n).map(|to| contribution(me * n + to, elements(count, me, to))).collect();
                let mut got: Vec<Vec<f64>> =
                    (0..n).map(|from| vec![-1.0; elements(count, from, me)]).collect();
                let rooms: Vec<(*mut u8, usize)> =
                    got.iter_mut().map(|v| (bytes_mut(v), v.len() * 8)).collect();
                let from = |r: usize| (bytes(&sent[r]), sent[r].len() * 8);
                // SAFETY: the vectors have what the lengths say.
                unsafe { lane.alltoall(from, |r| rooms[r], false) }.unwrap();
                for (peer, block) in got.iter().enumerate() {
                    let want = contribution(peer * n + me, elements(count, peer, me));
                    assert_eq!(block, &want, "from {peer}, {count}");
                }
                let mut block = vec![-1.0; elements(count, 1, me)];
                let room = (bytes_mut(&mut block), block.len() * 8);
                // SAFETY: as above.
                unsafe { lane.scatter(room, from, 1, false) }.unwrap();
                assert_eq!(block, contribution(n + me, elements(count, 1, me)), "scatterv");
                let own = &sent[(me + 1) % n];
                let mut all: Vec<Vec<f64>> =
                    (0..n).map(|r| vec![-1.0; elements(count, r, (r + 1) % n)]).collect();
                let rooms: Vec<(*mut u8, usize)> =
                    all.iter_mut().map(|v| (bytes_mut(v), v.len() * 8)).collect();
                // SAFETY: as above.
                unsafe { lane.allgather((bytes(own), own.len() * 8), |r| rooms[r]) }.unwrap();
                for (r, block) in all.iter().enumerate() {
                    let to = (r + 1) % n;
                    assert_eq!(block, &contribution(r * n + to, elements(count, r, to)));
                }
            }
        });
    }
}

#[test]
fn alltoall_in_place_swaps_blocks() {
    ranks(3, 32 << 10, |lane, me| {
        for count in COUNTS {
            let mut data: Vec<f64> =
                (0..3).flat_map(|to| contribution(me * 3 + to, count)).collect();
            let at = bytes_mut(&mut data);
            let run = |r: usize| (at.wrapping_add(r * count * 8), count * 8);
            let from = |r: usize| (run(r).0.cast_const(), run(r).1);
            // SAFETY: the buffer has three blocks.
            unsafe { lane.alltoall(from, run, true) }.unwrap();
            let want: Vec<f64> = (0..3).flat_map(|r| contribution(r * 3 + me, count)).collect();
            assert_eq!(data, want, "{count}");
        }
    });
}

/// Concatenates digits in base 10 modulo a prime, which does not commute: elements are (value, power of 10).
struct Concatenate;

const PRIME: u64 = 1_000_000_007;

impl ExternalReducer for Concatenate {
    unsafe fn reduce(&self, _: usize, left: *const u8, inout: *mut u8, count: usize) {
        for i in 0..count {
            // SAFETY: both hold `count` pairs.
            unsafe {
                let l = left.cast::<[u64; 2]>().add(i).read_unaligned();
                let r = inout.cast::<[u64; 2]>().add(i).read_unaligned();
                let both = [(l[0] * r[1] + r[0]) % PRIME, l[1] * r[1] % PRIME];
                inout.cast::<[u64; 2]>().add(i).write_unaligned(both);
            }
        }
    }
}

#[test]
fn operations_that_do_not_commute_see_rank_order() {
    ranks(5, 64 << 10, |lane, me| {
        let concatenate: (&dyn ExternalReducer, usize, usize) = (&Concatenate, 0, 16);
        for count in [1, 3, 100, 3000, 9000] {
            let mine = vec![[me as u64 + 1, 10]; count];
            let mut out = vec![[0u64; 2]; count];
            let (input, output) = (mine.as_ptr().cast(), out.as_mut_ptr().cast());
            // SAFETY: the buffers have `count` pairs.
            unsafe { lane.allreduce(input, output, count, &concatenate) }.unwrap();
            assert_eq!(out, vec![[12345, 100_000]; count]);
            // SAFETY: as above.
            unsafe { lane.scan(input, output, count, &concatenate, true) }.unwrap();
            let (value, power) = ([1, 12, 123, 1234, 12345][me], 10u64.pow(me as u32 + 1));
            assert_eq!(out, vec![[value, power]; count]);
        }
    });
}

#[test]
fn different_lengths_are_an_error_here_and_harm_nobody() {
    ranks(3, 32 << 10, |lane, me| {
        for (long, short) in [(4, 2), (40, 20), (60_000, 3), (60_000, 50_000)] {
            let mut data = contribution(7, long);
            let len = if me == 1 { short * 8 } else { long * 8 };
            // SAFETY: the buffer is long enough.
            let outcome = unsafe { lane.bcast(bytes_mut(&mut data), len, 0) };
            assert_eq!(outcome.is_err(), me == 1, "bcast of {long}");
            let mut out = vec![0.0; long];
            // SAFETY: as above.
            let outcome =
                unsafe { lane.allreduce(bytes(&data), bytes_mut(&mut out), len / 8, &SUM) };
            assert!(outcome.is_err(), "allreduce of {long}");
            lane.barrier().unwrap();
            // SAFETY: as above.
            unsafe { lane.allreduce(bytes(&data), bytes_mut(&mut out), short, &SUM) }.unwrap();
            assert_eq!(out[..short], data[..short].iter().map(|x| 3.0 * x).collect::<Vec<_>>());
        }
    });
}

#[test]
fn a_root_that_runs_ahead_waits_for_its_slots_and_its_ring() {
    ranks(4, 32 << 10, |lane, me| {
        for i in 0..3000usize {
            let count = [1, 7, 300, 511, 40][i % 5];
            let mut data = if me == 0 { vec![i as f64; count] } else { vec![-1.0; count] };
            // SAFETY: the buffer has `count` elements.
            unsafe { lane.bcast(bytes_mut(&mut data), count * 8, 0) }.unwrap();
            assert!(data.iter().all(|&x| x == i as f64), "{i}");
            if me == 2 && i % 100 == 0 {
                std::thread::yield_now();
            }
        }
    });
}

#[test]
fn a_random_mixture_keeps_all_in_step() {
    use rand::{Rng, SeedableRng};
    for seed in 0..6u64 {
        let n = 2 + seed as usize % 4;
        ranks(n, 32 << 10, |lane, me| {
            let mut random = rand::rngs::SmallRng::seed_from_u64(seed);
            for step in 0..400 {
                let (kind, root) = (random.random_range(0..5), random.random_range(0..n));
                let count = COUNTS[random.random_range(0..COUNTS.len() - 1)];
                let mine = contribution(me, count);
                let mut out = vec![-1.0; count];
                let (input, output) = (bytes(&mine), bytes_mut(&mut out));
                // SAFETY: the buffers have `count` elements.
                unsafe {
                    match kind {
                        0 => lane.allreduce(input, output, count, &SUM).unwrap(),
                        1 => lane.reduce(input, output, count, &SUM, root).unwrap(),
                        2 => lane.scan(input, output, count, &SUM, true).unwrap(),
                        3 => {
                            let from = |_: usize| (input, count * 8);
                            lane.scatter((output, count * 8), from, root, true).unwrap();
                        }
                        _ => lane.barrier().unwrap(),
                    }
                }
                let want = match kind {
                    0 => sum(0..n, count),
                    1 if me == root => sum(0..n, count),
                    2 => sum(0..me + 1, count),
                    3 => contribution(root, count),
                    _ => vec![-1.0; count],
                };
                assert_eq!(out, want, "seed {seed}, step {step}, kind {kind}");
            }
        });
    }
}

#[test]
fn who_waits_for_a_process_that_is_gone_hears_of_it() {
    let mut child = std::process::Command::new("true").spawn().unwrap();
    let gone = child.id() as i32;
    child.wait().unwrap();
    let layout = Layout::new(2, 32 << 10);
    let (segment, _) =
        Segment::create(layout, SegmentKind::Anonymous, Path::new("/dev/shm")).unwrap();
    let pids = vec![std::process::id() as i32, gone];
    let mut lane = Lane::new(&Arc::new(segment), 0, pids, Waiter::new(|| (), true));
    assert_eq!(lane.barrier(), Err(LaneError::PeerGone { peer: 1 }));
}

#[test]
fn a_lane_comes_back_from_the_pool_where_it_was() {
    let layout = Layout::new(2, 32 << 10);
    let make = || {
        let (segment, _) =
            Segment::create(layout, SegmentKind::Anonymous, Path::new("/dev/shm")).unwrap();
        let segment = Arc::new(segment);
        let blocking = Lane::new(&segment, 0, Vec::new(), Waiter::new(|| (), false));
        Lanes { blocking, polled: polled::Lane::all(&segment, 0, &[]) }
    };
    let members: Members = Arc::from([1, 2].as_slice());
    let mut pool = Pool::new(layout.segment_bytes());
    let lane = make();
    assert_eq!(lane.finished(), 0);
    let id = lane.id();
    pool.put(Arc::clone(&members), lane);
    assert!(pool.take(&members, id, 1).is_none());
    let lane = pool.take(&members, id, 0).unwrap();
    assert!(pool.take_any(&members).is_none());
    pool.put(Arc::clone(&members), lane);
    // There is room for one.
    pool.put(Arc::clone(&members), make());
    assert_eq!(pool.take_any(&members).map(|lane| lane.id()), Some(id));
    assert!(pool.take_any(&members).is_none());
}

#[test]
fn a_named_segment_leaves_no_file_and_a_full_file_system_is_an_error() {
    let folder = std::env::temp_dir().join(format!("hetccl-segments-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let layout = Layout::new(2, 32 << 10);
    let (mut first, descriptor) = Segment::create(layout, SegmentKind::Named, &folder).unwrap();
    let second = Segment::open(layout, &descriptor, &folder).unwrap();
    first.seal();
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0);
    assert_eq!(first.id(), second.id());
    let error = Segment::open(layout, &descriptor, &folder).unwrap_err();
    assert!(error.to_string().contains("opening"), "{error}");
    std::fs::remove_dir(&folder).unwrap();
    let error = Segment::create(layout, SegmentKind::Named, &folder).unwrap_err();
    assert!(error.to_string().contains("creating"), "{error}");
}

/// A polled collective of a test: what it is asked, and the numbers it reads and writes.
struct Asked {
    call: &'static Call,
    input: &'static [f64],
    output: &'static mut [f64],
}

impl Asked {
    /// Lives as long as the test's process, whatever becomes of the collective.
    fn new(call: Call, input: Vec<f64>, output: usize) -> Asked {
        let output = vec![-1.0; output].leak();
        Asked { call: Box::leak(Box::new(call)), input: input.leak(), output }
    }

    fn request(&mut self) -> Request<'static> {
        let reduces = self.call.collective.reduces();
        let region = |at: *const f64, len: usize| Region {
            address: hetccl_core::Address(at.expose_provenance()),
            len_bytes: len * 8,
            memory: hetccl_core::MemoryType::Host,
        };
        Request {
            call: self.call,
            element_bytes: if reduces { 8 } else { 1 },
            reduction: reduces.then_some(Reduction::Predefined(SUM.0, SUM.1)),
            input: region(self.input.as_ptr(), self.input.len()),
            output: region(self.output.as_mut_ptr(), self.output.len()),
            fill_output: false,
            declinable: false,
            average: false,
            mode: crate::Mode::Nonblocking,
        }
    }
}

/// The collective number `i` of a mixture, the same kind and length on all ranks, and its result.
fn polled_collective(i: usize, n: usize, me: usize) -> (Asked, Vec<f64>) {
    let (count, root) = (COUNTS[i * 5 % COUNTS.len()], i % n);
    let call = |collective, count| Call::new(collective, me, n, Blocks::uniform(count));
    let everybody = |from: &dyn Fn(usize) -> Vec<f64>| (0..n).flat_map(from).collect();
    match i % 6 {
        0 => {
            let call = call(Collective::Allreduce, count);
            (Asked::new(call, contribution(me, count), count), sum(0..n, count))
        }
        1 => {
            let mut call = call(Collective::Bcast, count * 8);
            call.root = Root::Rank(Rank(root as u32));
            // The root's buffer is its input, the others' their output.
            let len = if me == root { 0 } else { count };
            let want = contribution(root, len);
            (Asked::new(call, contribution(me, count), len), want)
        }
        2 => {
            let call = call(Collective::Alltoall, count * 8);
            let input = everybody(&|to| contribution(me * n + to, count));
            let want = everybody(&|from| contribution(from * n + me, count));
            (Asked::new(call, input, count * n), want)
        }
        3 => {
            let call = call(Collective::Scan, count);
            (Asked::new(call, contribution(me, count), count), sum(0..me + 1, count))
        }
        4 => {
            let call = call(Collective::Allgather, count * 8);
            let want = everybody(&|r| contribution(r, count));
            (Asked::new(call, contribution(me, count), count * n), want)
        }
        _ => (Asked::new(call(Collective::Barrier, 0), Vec::new(), 0), Vec::new()),
    }
}

#[test]
fn polled_collectives_overlap_each_other_and_blocking_ones() {
    for n in [2, 3, 5] {
        segments(n, 64 << 10, |segment, me| {
            let waiter = Waiter::new(give_up_with_the_others, true);
            let mut blocking = Lane::new(&segment, me, Vec::new(), waiter);
            let mut flow = Flow::new(polled::Lane::all(&segment, me, &[]), &Concatenate, true);
            let mut started = Vec::new();
            let mut ended = Vec::new();
            for i in 0..150 {
                let (mut asked, want) = polled_collective(i, n, me);
                // SAFETY: `asked` lives for ever, and is looked at when the collective is over.
                unsafe { flow.start(asked.request(), i) };
                started.push((asked, want));
                if i % 7 == me {
                    flow.poll(&mut ended);
                }
                if i % 40 == 39 {
                    // Ranks come here with different ones of the others behind them.
                    blocking.barrier().unwrap();
                }
            }
            while !flow.is_idle() {
                flow.poll(&mut ended);
                give_up_with_the_others();
                std::thread::yield_now();
            }
            let mut numbers: Vec<usize> = ended.iter().map(|(i, _)| *i).collect();
            numbers.sort_unstable();
            assert!(numbers.into_iter().eq(0..150), "each ends once");
            assert!(ended.iter().all(|(_, outcome)| outcome.is_ok()));
            for (i, (asked, want)) in started.iter().enumerate() {
                assert_eq!(asked.output, want, "number {i}, {n} ranks");
            }
            let counts: u64 = flow.into_lanes().unwrap().iter().map(polled::Lane::finished).sum();
            assert_eq!(counts, 150);
        });
    }
}

#[test]
fn lanes_with_something_under_way_are_not_given_back() {
    segments(2, 32 << 10, |segment, me| {
        let mut flow = Flow::new(polled::Lane::all(&segment, me, &[]), &Concatenate, true);
        if me == 0 {
            let (mut asked, _) = polled_collective(5, 2, me);
            // SAFETY: as above.
            unsafe { flow.start(asked.request(), 0) };
            let mut ended = Vec::new();
            flow.poll(&mut ended);
            assert!(ended.is_empty(), "the other rank never comes");
            assert!(flow.into_lanes().is_none());
            let mut lost = Flow::new(polled::Lane::all(&segment, me, &[]), &Concatenate, true);
            for token in 0..3 {
                let (mut asked, _) = polled_collective(5, 2, me);
                // SAFETY: as above.
                unsafe { lost.start(asked.request(), token) };
            }
            lost.poll(&mut ended);
            assert_eq!(lost.oldest().min(), Some(&0));
            let mut given_up = lost.give_up();
            given_up.sort_unstable();
            assert_eq!(given_up, [0, 1, 2]);
        }
    });
}
