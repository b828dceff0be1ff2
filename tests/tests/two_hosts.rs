//! Two hosts, made of network namespaces joined by a pair of virtual Ethernet devices: everything between them is TCP.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use hetccl_tests::hosts::{Hosts, NETWORK};
use hetccl_tests::{Emulation, TRANSPORTS, emulation, prefix, program};
use xtask::mpi::{self, Library};
use xtask::{command, emulate};

const LIMIT: Duration = Duration::from_secs(240);
#[test]
fn the_demo_runs_across_two_hosts() {
    let Some(prefix) = prefix("two hosts") else { return };
    let Some(hosts) = Hosts::for_test("two hosts") else { return };
    let program = program("demo");
    for transport in TRANSPORTS {
        let mut mpirun = mpi::mpirun(Library::Hetccl { prefix, transport }, 4, LIMIT);
        // Both hosts are this machine, which could share memory.
        mpirun.args(["--mca", "coll_hetccl_shared_memory", "off"]);
        let mut across = across(&hosts, &mpirun);
        // The results matter here, not the times.
        across.arg(&program).arg("10");
        let output = command::output(&mut across).unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        let right = text.matches("\"ok\": true").count();
        assert!(output.status.success() && right > 40, "{transport}\n{}", command::tail(&output));
        assert!(!text.contains("\"ok\": false"), "{text}");
        println!("two hosts over {transport}: {right} results right");
    }
    vendor_groups(&hosts, prefix);
    tuned(&hosts, prefix);
}

/// `hetccl tune` finds two nodes, and what is between them.
fn tuned(hosts: &Hosts, prefix: &Path) {
    let file = command::target_dir().join("tuned-two-hosts.toml");
    let mut mpirun = mpi::mpirun(Library::Hetccl { prefix, transport: "ucx" }, 4, LIMIT);
    mpirun.args(["--mca", "coll_hetccl_shared_memory", "off"]);
    let mut across = across(hosts, &mpirun);
    across.arg(prefix.join("bin/hetccl")).args(["tune", "--force", "--output"]).arg(&file);
    let table = command::capture(&mut across).unwrap();
    let text = std::fs::read_to_string(&file).unwrap();
    for name in &hosts.names {
        assert!(table.contains(&format!("{name}: host memory")), "{table}");
    }
    assert_eq!(table.matches("  network  ").count(), 2, "{table}");
    assert!(text.contains("count = 2\nhost_gb_s") && !text.contains("assumed: one"), "{text}");
    println!("two hosts, measured:\n{table}");
}

/// Ranks with emulated CUDA and ROCm devices and without any, two groups on either host: collectives by groups, over TCP.
fn vendor_groups(hosts: &Hosts, prefix: &Path) {
    let vendors = ["cuda", "cuda", "rocm", "host"];
    let Emulation { drivers, kernels } = emulation();
    let mut mpirun = mpi::mpirun(Library::Hetccl { prefix, transport: "ucx" }, 4, LIMIT);
    mpirun.args(["--mca", "coll_hetccl_hierarchy", "on"]);
    mpirun.args(["--mca", "coll_hetccl_verbose", "2"]);
    // One kernel serves both hosts, which could open each other's device memory.
    mpirun.args(["--mca", "coll_hetccl_gpu_path", "staging"]);
    mpirun.args(["--mca", "coll_hetccl_gpu_ring_bytes", "0"]);
    mpirun.env("LD_LIBRARY_PATH", emulate::library_path(drivers));
    mpirun.env("HETCCL_EMULATOR_KERNELS", kernels);
    let mut across = across(hosts, &mpirun);
    for name in ["LD_LIBRARY_PATH", "HETCCL_EMULATOR_KERNELS", "VENDORS"] {
        across.args(["-x", name]);
    }
    emulate::by_vendor(&mut across, &vendors);
    let memory = vendors.join(",");
    across.arg(program("device")).args([&memory, &memory, "blocking", "5", "40000"]);
    let output = command::output(&mut across).unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let held = text.lines().filter(|line| line.starts_with("ok ")).count();
    assert!(output.status.success() && held > 60, "{held} checks held\n{}", command::tail(&output));
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(told.contains("allreduce algorithm=hetero"), "{told}");
    println!("vendor groups on two hosts: {held} checks held");
}

/// The same command, started on the first host, with two ranks on each; the program is to be added.
fn across(hosts: &Hosts, mpirun: &Command) -> Command {
    let mut command = Command::new("ip");
    command.args(["netns", "exec", &hosts.names[0], "unshare", "--uts", "sh", "-c"]);
    let line = format!("hostname {}; exec \"$@\"", hosts.names[0]);
    command.arg(line).arg("sh").arg(mpirun.get_program()).args(mpirun.get_args());
    for (name, value) in mpirun.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    let [a, b] = &hosts.names;
    command.args(["--host", &format!("{a}:2,{b}:2"), "--map-by", "node"]);
    command.args(["--mca", "plm_rsh_agent"]).arg(&hosts.agent);
    command.args(["--mca", "btl_tcp_if_include", NETWORK, "--mca", "oob_tcp_if_include", NETWORK]);
    // One kernel serves both hosts: without this UCX would find shared memory between them.
    command.env("UCX_TLS", "tcp,self").args(["-x", "UCX_TLS"]);
    command
}
