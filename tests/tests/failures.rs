//! What users hear when something goes wrong in a collective: the scenarios of docs/failures.md. The whole matrix is
//! `cargo xtask test-failures`.

use std::process::Command;

use hetccl_tests::{prefix, program};
use xtask::command;
use xtask::failures::{Heard, WAYS, case, leftovers};

/// `MPI_ERR_OP` and its like, as Open MPI 4.1 numbers them.
const ERR_TYPE: i32 = 3;
const ERR_ROOT: i32 = 8;
const ERR_OP: i32 = 10;
const ERR_TRUNCATE: i32 = 15;
const ERR_OTHER: i32 = 16;

const QUICK: [&str; 2] = ["coll_hetccl_peer_timeout_seconds", "1"];

fn hear(way: usize, kind: &str, collective: &str, parameters: &[&str]) -> Option<Heard> {
    hear_form("blocking", way, kind, collective, parameters)
}

fn hear_form(
    form: &str,
    way: usize,
    kind: &str,
    collective: &str,
    parameters: &[&str],
) -> Option<Heard> {
    let prefix = prefix("failures")?;
    let program = program("failures");
    let heard = case(prefix, &program, WAYS[way], (kind, collective, 2, form), parameters);
    Some(heard.unwrap_or_else(|error| panic!("{error:#}")))
}

fn all_fail(heard: &Heard, words: &str, limit_ms: u64) {
    assert_eq!(heard.failed.len(), 3, "{}", heard.text);
    let slowest = heard.failed.iter().map(|failed| failed.2).max().unwrap_or(0);
    assert!(slowest < limit_ms, "{slowest} ms\n{}", heard.text);
    assert_eq!(heard.text.matches(words).count(), 3, "{words}\n{}", heard.text);
    let said = heard.text.lines().find(|line| line.contains(words)).unwrap_or_default();
    println!("after {slowest} ms: {said}");
}

#[test]
fn scenario_2_a_killed_rank_is_named_by_all_others_at_once() {
    let before = leftovers();
    for (way, named) in WAYS.iter().enumerate().take(3) {
        let Some(heard) = hear(way, "killed", "allreduce", &QUICK) else { return };
        assert_eq!(heard.failed.len(), 3, "{}: {}", named.name, heard.text);
        let soon = |&(_, class, ms): &(usize, i32, u64)| class == ERR_OTHER && ms < 5000;
        assert!(heard.failed.iter().all(soon), "{}: {}", named.name, heard.text);
        assert!(heard.text.contains("rank 2"), "{}", heard.text);
        assert!(heard.text.contains("allreduce number 3 on communicator 0"), "{}", heard.text);
    }
    assert_eq!(leftovers(), before, "files are left in /dev/shm");
}

#[test]
fn scenario_2_nonblocking_and_persistent_collectives_end_too() {
    for (form, way) in [("nonblocking", 0), ("persistent", 1), ("nonblocking", 2)] {
        let Some(heard) = hear_form(form, way, "killed", "allreduce", &QUICK) else { return };
        assert_eq!(heard.failed.len(), 3, "{form}, {}: {}", WAYS[way].name, heard.text);
        let said = heard.text.lines().find(|line| line.contains("rank 2 (host"));
        println!("{form}: {}", said.unwrap_or_else(|| panic!("{}", heard.text)));
    }
}

#[test]
fn scenario_3_nonblocking_collectives_that_differ_hear_both_calls() {
    let Some(heard) = hear_form("nonblocking", 0, "mismatch", "allreduce", &QUICK) else { return };
    let said = heard.text.lines().find(|line| line.contains("the ranks differ: rank 2 (host"));
    println!("{}", said.unwrap_or_else(|| panic!("{}", heard.text)));
}

#[test]
fn scenario_2_a_stopped_rank_is_named_after_the_time_limit() {
    let Some(heard) = hear(0, "stopped", "allreduce", &QUICK) else { return };
    all_fail(&heard, "has been stopped for 1 s", 10_000);
}

#[test]
fn scenario_3_ranks_that_differ_hear_both_calls() {
    for (kind, collective, class, words) in [
        ("mismatch", "allreduce", ERR_OTHER, "rank 2 (host"),
        ("operation", "allreduce", ERR_OP, "by maximum of float64"),
        ("datatype", "allreduce", ERR_TYPE, "sum of int64"),
        ("root", "scatter", ERR_ROOT, "with root 1"),
        ("count", "allreduce", ERR_TRUNCATE, "sent 16384 bytes where 32768 were expected"),
    ] {
        let Some(heard) = hear(0, kind, collective, &QUICK) else { return };
        assert!(heard.failed.iter().any(|failed| failed.1 == class), "{kind}\n{}", heard.text);
        let said = heard.text.lines().find(|line| line.contains(words));
        println!("{kind}: {}", said.unwrap_or_else(|| panic!("{kind}\n{}", heard.text)));
    }
}

#[test]
fn scenario_3_a_truncated_bcast_over_the_wire_ends() {
    let Some(heard) = hear(1, "count", "bcast", &QUICK) else { return };
    assert_eq!(heard.failed.len() + heard.done.len(), 4, "{}", heard.text);
    assert!(heard.failed.iter().any(|failed| failed.0 == 2), "{}", heard.text);
}

#[test]
fn scenario_4_a_late_rank_is_named_and_nothing_fails() {
    let Some(heard) = hear(0, "late", "allreduce", &["coll_hetccl_stall_seconds", "1"]) else {
        return;
    };
    assert_eq!(heard.done.len(), 4, "{}", heard.text);
    let said = heard.text.lines().find(|line| line.contains("not there: rank 2 (host"));
    println!("{}", said.unwrap_or_else(|| panic!("{}", heard.text)));
    assert!(heard.text.contains("waits since 1 s in allreduce by sum of float64 (32768 bytes)"));
}

#[test]
fn scenario_9_a_failed_device_reaches_the_other_ranks() {
    let Some(heard) = hear(3, "gone", "allreduce", &QUICK) else { return };
    assert_eq!(heard.failed.len(), 4, "{}", heard.text);
    let words = "has failed in the same call; it says why";
    let said = heard.text.lines().find(|line| line.contains(words));
    println!("{}", said.unwrap_or_else(|| panic!("{}", heard.text)));
}

#[test]
fn what_a_failed_rank_leaves_can_be_merged() {
    let Some(prefix) = prefix("dumps") else { return };
    let folder = command::target_dir().join(format!("dumps-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let library = xtask::mpi::Library::Hetccl { prefix, transport: "auto" };
    let mut mpirun = xtask::mpi::mpirun(library, 4, std::time::Duration::from_secs(30));
    mpirun.env("HETCCL_DUMP", &folder).args(["--mca", "orte_abort_on_non_zero_status", "0"]);
    mpirun.arg(program("failures")).args(["killed", "allreduce", "2"]);
    command::output(&mut mpirun).unwrap();
    let files: Vec<_> = std::fs::read_dir(&folder).unwrap().flatten().map(|f| f.path()).collect();
    assert_eq!(files.len(), 3, "{files:?}");
    let mut inspect = Command::new(prefix.join("bin/hetccl"));
    let text = command::capture(inspect.args(["inspect", "--merge"]).args(&files)).unwrap();
    assert!(text.contains("communicator 0: 3 of 4 ranks"), "{text}");
    assert!(text.contains("number 3: allreduce by sum of float64, 32768 bytes, failed"), "{text}");
    print!("{text}");
    std::fs::remove_dir_all(&folder).unwrap();
}
