//! The C programs of `tests/c` under `mpirun --mca coll hetccl`, on each way that messages can take and several numbers of
//! ranks.

use std::time::Duration;

use hetccl_tests::{TRANSPORTS, prefix, program};
use xtask::command;
use xtask::mpi::{self, Library};

const LIMIT: Duration = Duration::from_secs(120);

/// For gigabytes, on a busy machine.
const LARGE_LIMIT: Duration = Duration::from_secs(600);

/// How blocking collectives travel inside the node: by each wire, and by shared memory of each kind over each wire.
const WAYS: [(&str, &str); 4] =
    [("ucx", "off"), ("pml", "off"), ("ucx", "anonymous"), ("pml", "file")];

/// Runs a program everywhere; it fails itself when a check fails.
fn everywhere(name: &str, ranks: &[usize], arguments: &[&str]) {
    along(&WAYS, LIMIT, name, ranks, arguments);
}

/// As [`everywhere`], on these ways only and with a time limit for each run.
fn along(ways: &[(&str, &str)], limit: Duration, name: &str, ranks: &[usize], arguments: &[&str]) {
    let Some(prefix) = prefix(name) else { return };
    let program = program(name);
    let mut checks = 0;
    for &(transport, shared) in ways {
        for &ranks in ranks {
            let way = format!("{name} on {ranks} ranks over {transport}, shared memory {shared}");
            let mut command = mpi::mpirun(Library::Hetccl { prefix, transport }, ranks, limit);
            command.args(["--mca", "coll_hetccl_shared_memory", shared]);
            let output = command::output(command.arg(&program).args(arguments)).unwrap();
            let status = output.status;
            assert!(status.success(), "{way}: {status}\n{}", command::tail(&output));
            let text = String::from_utf8_lossy(&output.stdout);
            for line in text.lines().filter(|line| line.starts_with("SKIPPED")) {
                println!("{line} ({way})");
            }
            let passed = text.lines().filter(|line| line.starts_with("ok ")).count();
            assert!(passed > 0, "{way} checked nothing:\n{text}");
            checks += passed;
        }
    }
    println!("{name}: {checks} checks held");
}

#[test]
fn operations() {
    everywhere("operations", &[1, 2, 3, 4, 5], &[]);
}

#[test]
fn layouts() {
    everywhere("layouts", &[1, 2, 3, 4, 5], &[]);
}

#[test]
fn requests_and_threads() {
    everywhere("requests", &[1, 2, 3, 4, 5], &[]);
}

#[test]
fn shared_memory() {
    everywhere("shared", &[2, 3, 8], &[]);
}

#[test]
fn topologies_and_inter_communicators() {
    everywhere("groups", &[1, 2, 3, 4, 5, 8], &[]);
}

#[test]
fn spawn_connect_accept_merge() {
    everywhere("groups", &[1, 2, 3], &["dynamic"]);
}

#[test]
fn errors() {
    everywhere("errors", &[1, 2, 3, 5], &[]);
}

#[test]
fn memory_stays_flat_over_20000_communicators() {
    everywhere("churn", &[2], &["20000"]);
}

#[test]
fn buffers_past_2_gib() {
    // A wire and shared memory: which of each makes no difference to the length of a buffer.
    along(&[WAYS[0], WAYS[3]], LARGE_LIMIT, "large", &[2], &[]);
}

#[test]
fn finalize_with_a_collective_left_over() {
    everywhere("leftover", &[1, 3], &[]);
}

#[test]
fn abort_ends_the_job() {
    let Some(prefix) = prefix("abort") else { return };
    let program = program("leftover");
    for transport in TRANSPORTS {
        let library = Library::Hetccl { prefix, transport };
        let mut command = mpi::mpirun(library, 3, LIMIT);
        let output = command::output(command.arg(&program).arg("abort")).unwrap();
        assert_eq!(output.status.code(), Some(3), "{}", command::tail(&output));
    }
}
