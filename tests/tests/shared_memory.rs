//! Where shared memory can't be had: the wire carries on, and it is said once per process for those who asked.

use std::process::{Command, Output};
use std::time::Duration;

use hetccl_tests::{prefix, program};
use xtask::command;
use xtask::mpi::{self, Library};

const LIMIT: Duration = Duration::from_secs(120);

/// `mpirun` of the stress program with a kind of shared memory, as one shell word each.
fn stress(kind: &str) -> Option<Command> {
    let prefix = prefix("shared memory")?;
    let mut mpirun = mpi::mpirun(Library::Hetccl { prefix, transport: "pml" }, 3, LIMIT);
    // Open MPI's own shared memory needs /dev/shm too.
    mpirun.args(["--mca", "btl", "self,tcp", "--mca", "coll_hetccl_shared_memory", kind]);
    mpirun.args(["--mca", "coll_hetccl_verbose", "1"]).arg(program("shared"));
    Some(mpirun)
}

/// Runs a command where /dev/shm has room for next to nothing; `None`, and said, where that can't be made.
fn with_a_tiny_dev_shm(mpirun: &Command) -> Option<Output> {
    let script = "mount -t tmpfs -o size=64k tmpfs /dev/shm && exec \"$@\"";
    let mut allowed = Command::new("unshare");
    allowed.args(["-m", "sh", "-c", script, "sh", "true"]);
    if !command::output(&mut allowed).is_ok_and(|output| output.status.success()) {
        println!("SKIPPED a tiny /dev/shm: this user may not mount one (unshare -m)");
        return None;
    }
    let mut inside = Command::new("unshare");
    inside.args(["-m", "sh", "-c", script, "sh"]).arg(mpirun.get_program());
    inside.args(mpirun.get_args());
    for (name, value) in mpirun.get_envs() {
        match value {
            Some(value) => inside.env(name, value),
            None => inside.env_remove(name),
        };
    }
    Some(command::output(&mut inside).unwrap())
}

fn text(output: &Output) -> String {
    format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

#[test]
fn a_full_file_system_leaves_the_wire_and_is_said_once_per_process() {
    let Some(mpirun) = stress("file") else { return };
    let Some(output) = with_a_tiny_dev_shm(&mpirun) else { return };
    let text = text(&output);
    assert!(output.status.success(), "{text}");
    assert!(text.contains("ok 1000 communicators at once"), "{text}");
    let said = text.matches("no shared memory for a communicator").count();
    assert_eq!(said, 1, "only rank 0 has tried to make one:\n{text}");
    assert!(text.contains("reserving"), "{text}");
}

#[test]
fn an_anonymous_segment_needs_no_dev_shm() {
    let Some(mpirun) = stress("auto") else { return };
    let Some(output) = with_a_tiny_dev_shm(&mpirun) else { return };
    let text = text(&output);
    assert!(output.status.success(), "{text}");
    assert!(!text.contains("no shared memory"), "{text}");
}

#[test]
fn no_file_is_left_behind() {
    let Some(mut mpirun) = stress("file") else { return };
    let files = || {
        let names = std::fs::read_dir("/dev/shm").unwrap().flatten();
        names.filter(|f| f.file_name().to_string_lossy().starts_with("hetccl-segment")).count()
    };
    let before = files();
    let output = command::output(&mut mpirun).unwrap();
    assert!(output.status.success(), "{}", text(&output));
    assert!(files() <= before, "segments are left in /dev/shm");
}
