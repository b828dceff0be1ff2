//! What the simulated times must be, against lower bounds and other schedules.

use std::path::Path;

use hetccl_core::Collective;
use hetccl_sim::cluster::Cluster;
use hetccl_sim::study::{ELEMENT_BYTES, Study};

const MIB: u64 = 1 << 20;

/// The sizes to take: all of them for `cargo xtask simulate --check`, otherwise the first.
fn sizes(all: &[u64]) -> &[u64] {
    if std::env::var_os("HETCCL_ALL_SIZES").is_some() { all } else { &all[..1] }
}

fn study(cluster: &str, collective: Collective) -> Study {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../clusters").join(cluster);
    Study::new(Cluster::load(&path).unwrap(), collective)
}

/// Time over lower bound.
fn over_bound(cluster: &str, collective: Collective, mib: u64) -> f64 {
    let row = study(cluster, collective).row(mib * MIB, false, |_| ());
    println!("{} {mib} MiB on {cluster}: {row:?}", collective.name());
    assert!(row.time_us >= row.lower_bound_us, "faster than possible: {row:?}");
    row.time_us / row.lower_bound_us
}

#[test]
fn the_published_testbed_is_near_its_bound_and_ahead_of_the_others() {
    for &mib in sizes(&[64, 256, 1024]) {
        let row = study("hetccl-paper.toml", Collective::Allreduce).row(mib * MIB, true, |_| ());
        let ratio = row.time_us / row.lower_bound_us;
        assert!(ratio < 1.12, "{mib} MiB: {ratio}");
        assert!(row.flat_ring_us.unwrap() > row.time_us, "{row:?}");
        assert!(row.host_relay_us.unwrap() > 3.0 * row.time_us, "{row:?}");
        assert!(row.single_owner_us.unwrap() > 1.8 * row.time_us, "{row:?}");
    }
}

#[test]
fn unequal_groups_are_near_their_bound_and_gain_by_weights() {
    for cluster in ["unequal-8-4.toml", "unequal-8-2-6.toml"] {
        for &mib in sizes(&[256, 1024]) {
            let ratio = over_bound(cluster, Collective::Allreduce, mib);
            assert!(ratio < 1.15, "{cluster} {mib} MiB: {ratio}");
        }
    }
}

#[test]
fn a_mixed_node_uses_all_cards() {
    let ratio = over_bound("mixed-node.toml", Collective::Allreduce, 256);
    assert!(ratio < 1.1, "{ratio}");
}

#[test]
fn the_model_picks_what_is_nearly_the_best() {
    for cluster in ["hetccl-paper.toml", "h100-mi300x-2.toml"] {
        let study = study(cluster, Collective::Allreduce);
        for &bytes in sizes(&[MIB, 8 << 10, 64 * MIB]) {
            let count = study.count(bytes);
            let picked = study.choice(count);
            let time = |(name, chunk)| study.time(name, chunk, count, |_| ()).us();
            let chunks = (16..26).step_by(2).map(|power| (1 << power) / ELEMENT_BYTES);
            let by_chunk = chunks.flat_map(|chunk| [("hetero", chunk), ("hetero_cells", chunk)]);
            let whole = ["hetero_latency", "recursive_doubling", "ring"].map(|n| (n, usize::MAX));
            let all = by_chunk.chain(whole);
            let best = all.map(|c| (time(c), c)).min_by(|a, b| a.0.total_cmp(&b.0)).unwrap();
            let over = time(picked) / best.0;
            println!("{cluster} {bytes}: picked {picked:?}, best {best:?}, {over:.2}");
            assert!(
                over < 1.5,
                "{cluster} {bytes} bytes: picked {picked:?}, {over:.2} times the best {best:?}"
            );
        }
    }
}

#[test]
fn other_collectives_on_the_published_testbed() {
    use Collective::*;
    for (collective, most) in [
        (Bcast, 1.3),
        (Allgather, 1.3),
        (ReduceScatterBlock, 1.3),
        (Gather, 1.3),
        (Scatter, 1.3),
        (Alltoall, 1.3),
        (Reduce, 1.3),
    ] {
        let ratio = over_bound("hetccl-paper.toml", collective, 256);
        assert!(ratio < most, "{}: {ratio}", collective.name());
    }
}
