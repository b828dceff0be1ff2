//! Fuzz targets: everything that reads bytes from outside, as functions that must return, whatever they are given.
//!
//! `cargo xtask fuzz` runs them under libFuzzer with coverage, on stable Rust; `tests/corpora.rs` gives them what is kept in
//! `corpus/`, and some seeded mutations of it.
#![forbid(unsafe_code)]

mod mutate;

use std::path::Path;

use hetccl_bootstrap::{Config, UNIQUE_ID_BYTES, UniqueId};
use hetccl_core::Collective;
use hetccl_runtime::Settings;
use hetccl_runtime::watch::Snapshot;
use hetccl_sim::cluster::Cluster;

pub use mutate::Mutator;

/// A target's name, which is its corpus's folder too, and what it does with some bytes.
pub type Target = (&'static str, fn(&[u8]));

/// All targets.
pub const TARGETS: &[Target] = &[
    ("unique_id", unique_id),
    ("bootstrap_frames", hetccl_bootstrap::fuzz::frames),
    ("bootstrap_settings", bootstrap_settings),
    ("rank_cards", hetccl_nccl::fuzz::cards),
    ("nccl_conf", nccl_conf),
    ("device_messages", hetccl_runtime::fuzz::device_messages),
    ("journal", journal),
    ("cluster_toml", cluster_toml),
    ("settings", settings),
    ("kernel_files", kernel_files),
];

/// A target by its name.
pub fn target(name: &str) -> Option<Target> {
    TARGETS.iter().find(|target| target.0 == name).copied()
}

/// The 128 bytes that ranks join with; what is read is written again as it was.
fn unique_id(bytes: &[u8]) {
    let mut id = [0; UNIQUE_ID_BYTES];
    let len = bytes.len().min(UNIQUE_ID_BYTES);
    id[..len].copy_from_slice(&bytes[..len]);
    if let Ok(read) = UniqueId::from_bytes(&id) {
        let again = UniqueId::from_bytes(&read.to_bytes()).expect("its own bytes are an id");
        assert_eq!(again, read);
    }
}

/// Lines of the environment, for the bootstrap.
fn bootstrap_settings(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let mut lines = text.lines();
    let pairs: Vec<_> = std::iter::from_fn(|| lines.next()?.split_once('=')).collect();
    let value = |name: &str| pairs.iter().find(|pair| pair.0 == name).map(|pair| pair.1.to_owned());
    if let Ok(config) = Config::from_variables(value) {
        assert!(!config.timeout.is_zero());
    }
}

fn nccl_conf(bytes: &[u8]) {
    hetccl_nccl::fuzz::configuration(&String::from_utf8_lossy(bytes));
}

/// Another process's journal; records say what can be printed.
fn journal(bytes: &[u8]) {
    let Ok(snapshot) = Snapshot::parse(bytes) else { return };
    assert!(!snapshot.host.contains(char::is_control));
    for operation in snapshot.communicators.iter().flat_map(|c| &c.operations) {
        assert!(!operation.call.to_string().is_empty());
        let _ = (operation.call.has_uniform_bytes(), operation.call.root());
    }
}

/// A cluster's description; one that is taken can be simulated, so all it says is in range.
fn cluster_toml(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    match Cluster::parse(&text, Path::new("fuzz.toml")) {
        Ok(cluster) => cluster.topology.validate().expect("it was validated"),
        Err(error) => assert!(error.to_string().contains("fuzz.toml"), "{error}"),
    }
}

/// Names and values of settings, a pair a line.
fn settings(bytes: &[u8]) {
    let mut settings = Settings::default();
    for line in String::from_utf8_lossy(bytes).lines().take(64) {
        let Some((name, value)) = line.split_once('=') else { continue };
        if let Ok(number) = value.parse() {
            let _ = settings.set_number(name, number);
        }
        let collective = Collective::ALL.iter().find(|collective| collective.name() == name);
        if let Some(&collective) = collective {
            let _ = settings.set_algorithm(collective, value);
        }
    }
    for element_bytes in [1, 3, 8, 1 << 20] {
        assert!(settings.chunk(element_bytes) > 0);
    }
}

/// Files of `/proc` and `/sys`.
fn kernel_files(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let _ = hetccl_runtime::rdma::largest_region_bytes(&text);
    let _ = hetccl_runtime::rdma::linux_version(&text);
    if let Some((state, _)) = hetccl_runtime::ucx::parse_stat(&text) {
        assert!(!matches!(state, 'Z' | 'X' | 'x'));
    }
}
