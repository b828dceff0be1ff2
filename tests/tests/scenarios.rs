//! What users of collective libraries stumble over besides failures, and what they hear here: docs/failures.md lists them.

use std::process::{Command, Output};
use std::time::Duration;

use hetccl_tests::{prefix, program};
use xtask::mpi::{self, Library};
use xtask::{command, emulate};

const LIMIT: Duration = Duration::from_secs(120);

/// `mpirun` of a program, with the emulated drivers.
fn emulated(ranks: usize) -> Option<Command> {
    let library = Library::Hetccl { prefix: prefix("scenarios")?, transport: "auto" };
    let mut mpirun = mpi::mpirun(library, ranks, LIMIT);
    emulate::devices(&mut mpirun).unwrap_or_else(|error| panic!("{error:#}"));
    Some(mpirun)
}

fn text(output: &Output) -> String {
    let streams = [&output.stdout, &output.stderr];
    streams.map(|stream| String::from_utf8_lossy(stream).into_owned()).concat()
}

/// Runs a command; the line of what it printed that has these words.
fn said(command: &mut Command, words: &str) -> String {
    let output = command::output(command).unwrap_or_else(|error| panic!("{error:#}"));
    let text = text(&output);
    let line = text.lines().find(|line| line.contains(words));
    let line = line.unwrap_or_else(|| panic!("{words}\n{text}")).trim().to_owned();
    println!("{line}");
    line
}

#[test]
fn scenario_8_doctor_says_why_a_nic_does_not_reach_device_memory() {
    let Some(prefix) = prefix("doctor") else { return };
    let mut doctor = Command::new(prefix.join("bin/hetccl"));
    emulate::devices(&mut doctor).unwrap_or_else(|error| panic!("{error:#}"));
    let line = said(doctor.arg("doctor"), "RDMA devices:");
    assert!(line.starts_with("yes") || line.contains("/sys/class/infiniband"), "{line}");
    let line = said(&mut doctor, "CUDA: GPU memory by RDMA");
    assert!(line.starts_with("yes") || line.contains("because"), "{line}");
}

#[test]
fn scenario_10_ranks_with_other_settings_are_refused_when_the_job_starts() {
    let Some(prefix) = prefix("different ranks") else { return };
    let library = Library::Hetccl { prefix, transport: "auto" };
    let mut mpirun = mpi::mpirun(library, 2, LIMIT);
    let other = "[ $OMPI_COMM_WORLD_RANK = 0 ] || export OMPI_MCA_coll_hetccl_chunk_bytes=8192; exec \"$0\"";
    mpirun.args(["sh", "-c", other]).arg(program("demo"));
    let line = said(&mut mpirun, "The ranks of this job run different versions of hetccl");
    assert!(line.contains("or have different coll_hetccl"), "{line}");
}

#[test]
fn scenarios_11_14_and_15_ranks_of_each_vendor_and_of_none_are_one_communicator() {
    let Some(mut mpirun) = emulated(4) else { return };
    mpirun.args(["--mca", "coll_hetccl_verbose", "1"]);
    emulate::by_vendor(&mut mpirun, &["cuda", "rocm", "host", "level-zero"]);
    mpirun.arg(program("soak")).args(["11", "2", "cuda,rocm,host,level-zero"]);
    let output = command::output(&mut mpirun).unwrap_or_else(|error| panic!("{error:#}"));
    let text = text(&output);
    assert!(output.status.success() && !text.contains("FAILED"), "{text}");
    let calls = text.lines().rfind(|line| line.starts_with("soak rank 0 at "));
    println!("{}", calls.unwrap_or_else(|| panic!("{text}")));
    let way = text.lines().find(|line| line.contains("device buffers go"));
    println!("{}", way.unwrap_or_else(|| panic!("{text}")));
}

#[test]
fn scenario_17_work_that_is_queued_on_a_stream_comes_before_the_collective() {
    for vendor in ["cuda", "rocm"] {
        let Some(mut mpirun) = emulated(2) else { return };
        mpirun.arg(program("device")).args([vendor, vendor, "blocking", "1"]);
        assert_eq!(said(&mut mpirun, "queued work"), "ok queued work comes first");
    }
}
