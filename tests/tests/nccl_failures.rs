//! Ranks of the NCCL and RCCL libraries that are killed or stopped in an allreduce: what the others see, and how soon.

use std::path::Path;
use std::process::Child;
use std::time::Duration;

use hetccl_tests::{nccl, vendor_library};
use xtask::command;

const LIMIT: Duration = Duration::from_secs(120);
/// After which a stopped rank has failed.
const PEER_TIMEOUT_SECONDS: f64 = 2.0;
const VICTIM: usize = 1;

/// The rank that stops or ends itself.
struct Victim(Child);

impl Drop for Victim {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs a job whose rank 1 ends in a way; the longest times from its end to a stream that goes on.
fn job(vendors: &[&str], end: &str, way: &str) -> f64 {
    job_with(vendors, end, way, &[])
}

/// The same, with variables. NCCL_HOSTID lets ranks on one emulated device have a vendor's library.
fn job_with(vendors: &[&str], end: &str, way: &str, variables: &[(&str, &Path)]) -> f64 {
    let file = nccl::job_file();
    let what = format!("{vendors:?}, {end}, {way}");
    let start = |rank: usize| {
        let limit = (rank != VICTIM).then_some(LIMIT);
        let mut start = nccl::on_emulated("nccl_failures", vendors[rank], limit);
        let numbers = [rank, vendors.len()].map(|number| number.to_string());
        start.args(numbers).args([&file, &VICTIM.to_string(), end, way]);
        start.env("HETCCL_PEER_TIMEOUT", PEER_TIMEOUT_SECONDS.to_string());
        if !variables.is_empty() {
            start.envs(variables.iter().copied()).env("NCCL_HOSTID", rank.to_string());
        }
        start.spawn().expect("the program was compiled")
    };
    let mut ranks: Vec<Option<Child>> = (0..vendors.len()).map(|rank| Some(start(rank))).collect();
    let victim = Victim(ranks[VICTIM].take().expect("it was started"));
    let mut slowest = 0.0f64;
    for (rank, child) in ranks.into_iter().enumerate().filter_map(|(r, c)| Some((r, c?))) {
        let output = child.wait_with_output().expect("the rank runs");
        let held = nccl::held(&format!("rank {rank} of {what}"), &output);
        assert!(held >= 5, "{what}: only {held} checks\n{}", command::tail(&output));
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let times = text.lines().filter(|line| line.starts_with("time "));
        let freed = times.clone().find(|line| line.contains("a stream that goes on"));
        let seconds = freed.and_then(|line| line.split(' ').nth(2)?.parse().ok());
        slowest = slowest.max(seconds.unwrap_or_else(|| panic!("{what}: no time in {text}")));
        times.for_each(|line| println!("{what}: {line}"));
        for line in text.lines().filter(|line| line.starts_with("text ")) {
            println!("{what}: {line}");
        }
    }
    drop(victim);
    nccl::remove_job(&file);
    slowest
}

/// Three ranks of either vendor, and of both.
const JOBS: [[&str; 3]; 3] =
    [["cuda", "cuda", "cuda"], ["rocm", "rocm", "rocm"], ["cuda", "rocm", "cuda"]];

#[test]
fn a_killed_rank_is_named_at_once_and_the_others_go_on() {
    for (vendors, end, way) in [
        (JOBS[0], "kill", "shrink"),
        (JOBS[1], "late", "shrink"),
        (JOBS[2], "kill", "shrink"),
        (JOBS[0], "late", "rebuild"),
        (JOBS[1], "kill", "rebuild"),
        (JOBS[2], "late", "rebuild"),
    ] {
        let seconds = job(&vendors, end, way);
        assert!(seconds < 5.0, "{vendors:?}, {end}: {seconds} s");
    }
}

/// Rank 0 waits for the victim in their vendor's library, rank 2 for messages.
#[test]
fn a_rank_that_ends_inside_a_vendors_library_is_named_and_the_others_go_on() {
    let folder = nccl::libraries();
    let libraries = [0, 1].map(|i| vendor_library(&folder, i, "failing", &["-DVERSION=22803"]));
    let calls = folder.join(format!("failing.{}", std::process::id()));
    let variables = [
        ("HETCCL_GROUP_LIBRARY", Path::new("on")),
        ("HETCCL_DELEGATE", Path::new("0")),
        ("HETCCL_NCCL_LIBRARY", &libraries[0]),
        ("HETCCL_RCCL_LIBRARY", &libraries[1]),
        ("TEST_CALLS", &calls),
    ];
    for (vendors, end, way) in [
        (["cuda", "cuda", "rocm"], "kill", "shrink"),
        (["rocm", "rocm", "cuda"], "late", "shrink"),
        (["cuda", "cuda", "rocm"], "late", "rebuild"),
        (["cuda", "cuda", "rocm"], "late", "watchdog"),
    ] {
        let seconds = job_with(&vendors, end, way, &variables);
        assert!(seconds < 5.0, "{vendors:?}, {end}: {seconds} s");
        let text = std::fs::read_to_string(&calls).unwrap_or_default();
        let _ = std::fs::remove_file(&calls);
        assert!(text.lines().any(|line| line == "ncclCommAbort"), "{vendors:?}, {end}: {text}");
    }
}

/// The first and the last rank: one connects to the other, which waits.
#[test]
fn a_rank_that_ends_before_a_shrink_is_named() {
    for way in ["without0", "without2"] {
        job(&JOBS[2], "late", way);
    }
}

#[test]
fn a_stopped_rank_is_named_after_the_time_limit() {
    for vendors in JOBS {
        let seconds = job(&vendors, "stop", "shrink");
        let limit = PEER_TIMEOUT_SECONDS;
        assert!((limit * 0.7..limit + 5.0).contains(&seconds), "{vendors:?}: {seconds} s");
    }
}

#[test]
fn a_watchdog_like_pytorchs_ends_the_process() {
    for (vendors, end) in [(JOBS[0], "kill"), (JOBS[2], "late")] {
        let seconds = job(&vendors, end, "watchdog");
        assert!(seconds < 5.0, "{vendors:?}, {end}: {seconds} s");
    }
}
