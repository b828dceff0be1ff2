//! `hetccl perf` and `hetccl tune` as users start them: ranks of their own through MPI, under mpirun, on emulated devices.

use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use hetccl_tests::{Emulation, emulation, prefix};
use serde_json::Value;
use xtask::command;
use xtask::mpi::{self, Library};

const LIMIT: Duration = Duration::from_secs(120);

/// A run on its own.
fn perf(prefix: &Path, arguments: &str, environment: &[(&str, &str)]) -> Output {
    hetccl(prefix, &format!("perf {arguments}"), environment)
}

fn hetccl(prefix: &Path, arguments: &str, environment: &[(&str, &str)]) -> Output {
    let mut run = command::limited(prefix.join("bin/hetccl"), LIMIT);
    run.args(arguments.split_whitespace()).envs(environment.iter().copied());
    run.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
    run.env_remove("OMPI_MCA_mca_base_component_path");
    command::output(&mut run).unwrap()
}

fn results(output: &Output) -> Value {
    assert!(output.status.success(), "{}", command::tail(output));
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", command::tail(output)))
}

/// Every row is there, has a time and is right.
fn all_right(results: &Value, rows: usize) {
    let list = results["results"].as_array().unwrap();
    assert_eq!(list.len(), rows, "{results}");
    for row in list {
        assert_eq!(row["wrong"], 0, "{row}");
        assert!(row["time_us"].as_f64().unwrap() > 0.0, "{row}");
    }
}

#[test]
fn ranks_of_its_own_through_mpi() {
    let Some(prefix) = prefix("hetccl perf") else { return };
    let plot = command::target_dir().join("perf.svg");
    let collectives = "allreduce reduce bcast allgather reduce_scatter_block alltoall gather scatter scan exscan barrier \
                       sendrecv allgatherv alltoallv gatherv scatterv reduce_scatter";
    let options = format!(
        "{collectives} -n 3 --root 1 -e 8K -f 1000 --iterations 5 --json --plot {}",
        plot.display()
    );
    let results = results(&perf(prefix, &options, &[]));
    all_right(&results, 2 * 16 + 1);
    assert!(results["through"].as_str().unwrap().contains("hetccl"), "{results}");
    let drawn = std::fs::read_to_string(plot).unwrap();
    assert!(
        drawn.contains("<svg") && drawn.contains("reduce_scatter_block"),
        "the plot names its curves"
    );
}

#[test]
fn started_by_mpirun_it_takes_what_mpirun_names() {
    let Some(prefix) = prefix("hetccl perf") else { return };
    let mut run = mpi::mpirun(Library::OpenMpi, 2, LIMIT);
    run.arg(prefix.join("bin/hetccl"))
        .args(["perf", "-e", "8", "--format", "csv", "-d", "int64", "--op", "max"]);
    let text = command::capture(&mut run).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 2, "{text}");
    assert!(
        lines[0].starts_with("collective,bytes")
            && lines[1].starts_with("allreduce,8,1,int64,max,"),
        "{text}"
    );
}

#[test]
fn emulated_devices_of_two_vendors_through_nccl() {
    let Some(prefix) = prefix("hetccl perf on devices") else { return };
    let Emulation { drivers, kernels } = emulation();
    let environment = [
        ("LD_LIBRARY_PATH", drivers.to_str().unwrap()),
        ("HETCCL_EMULATOR_KERNELS", kernels.to_str().unwrap()),
    ];
    let collectives =
        "allreduce reduce bcast allgather reduce_scatter_block alltoall gather scatter sendrecv";
    let options =
        format!("{collectives} --memory cuda,rocm -n 2 -e 8K -f 1000 --iterations 2 --json");
    all_right(&results(&perf(prefix, &options, &environment)), 18);
    let options = "--memory cuda -n 2 -d bfloat16 -e 8K -f 1000 --via mpi --json";
    let refused = perf(prefix, options, &environment);
    assert_eq!(refused.status.code(), Some(1), "{}", command::tail(&refused));
    assert!(command::tail(&refused).contains("MPI has no type"), "{}", command::tail(&refused));
    let options =
        "allreduce alltoall alltoallv --memory rocm,host -n 2 -e 8K -f 1000 --iterations 2 --json";
    all_right(&results(&perf(prefix, options, &environment)), 6);
}

#[test]
fn what_cannot_be_is_said() {
    let Some(prefix) = prefix("hetccl perf's refusals") else { return };
    for (options, code, words) in [
        ("scan --memory cuda", 1, "has no scan: take --via mpi"),
        ("allgatherv --memory cuda", 1, "has no allgatherv: take --via mpi"),
        ("--via nccl", 1, "device memory only"),
        ("--memory cuda -n 1", 1, "no GPU for --memory cuda"),
        ("somersault", 2, "reduce_scatter_block"),
    ] {
        // No driver is found, whatever this machine has.
        let output = perf(
            prefix,
            options,
            &[("LD_LIBRARY_PATH", "/nonexistent"), ("CUDA_VISIBLE_DEVICES", "")],
        );
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{options}: {said}");
        assert!(said.contains(words), "{options}: {said}");
    }
    let help =
        command::capture(Command::new(prefix.join("bin/hetccl")).args(["perf", "--help"])).unwrap();
    assert!(help.contains("Examples:") && help.contains("Exit codes:"), "{help}");
}

/// Tunes into a fresh file, and simulates with that.
fn tuned(
    prefix: &Path,
    name: &str,
    options: &str,
    environment: &[(&str, &str)],
) -> (Value, String) {
    let file = command::target_dir().join(format!("tuned-{name}.toml"));
    let path = file.display();
    let line = format!("tune {options} --json --force --output {path}");
    let report = results(&hetccl(prefix, &line, environment));
    let text = std::fs::read_to_string(&file).unwrap();
    let line = format!("sim --cluster {path} --collective allreduce --bytes 1M --json");
    let simulated = results(&hetccl(prefix, &line, environment));
    let time = simulated["results"][0]["time_us"].as_f64().unwrap();
    let bound = simulated["results"][0]["lower_bound_us"].as_f64().unwrap();
    assert!(time >= bound && bound > 0.0, "{simulated}");
    let refused = hetccl(prefix, &format!("tune {options} --output {path}"), environment);
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(refused.status.code() == Some(1) && said.contains("--force"), "{said}");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), text, "it is as it was");
    (report, text)
}

#[test]
fn a_tuned_file_is_one_that_the_simulator_reads() {
    let Some(prefix) = prefix("hetccl tune") else { return };
    let (report, text) = tuned(prefix, "host", "-n 3", &[]);
    let measured = &report["measured"];
    assert_eq!(measured["devices"][0].as_array().unwrap().len(), 3, "{report}");
    for device in measured["devices"][0].as_array().unwrap() {
        assert!(device["memory_gb_s"].as_f64().unwrap() > 0.1, "{report}");
    }
    assert!(measured["inside_us"][0].as_f64().unwrap() > 0.0, "{report}");
    assert!(measured["overhead_us"].as_f64().unwrap() > 0.0, "{report}");
    assert!(report["through"].as_str().unwrap().contains("hetccl"), "{report}");
    assert!(text.contains("vendor = \"host\"\ncount = 3\n"), "{text}");
    let nowhere = hetccl(prefix, "tune --output /nonexistent/cluster.toml", &[]);
    let said = String::from_utf8_lossy(&nowhere.stderr);
    assert!(said.contains("/nonexistent is no folder"), "{said}");
}

#[test]
fn a_tuned_file_has_the_devices_of_two_vendors() {
    let Some(prefix) = prefix("hetccl tune on devices") else { return };
    let Emulation { drivers, kernels } = emulation();
    let environment = [
        ("LD_LIBRARY_PATH", drivers.to_str().unwrap()),
        ("HETCCL_EMULATOR_KERNELS", kernels.to_str().unwrap()),
    ];
    let (_, text) = tuned(prefix, "devices", "-n 4 --memory cuda,rocm", &environment);
    for vendor in ["nvidia", "amd"] {
        let device = format!("vendor = \"{vendor}\"\ncount = 1\nranks = 2\n");
        assert!(text.contains(&device), "{text}");
    }
    let mut run = mpi::mpirun(Library::OpenMpi, 2, LIMIT);
    run.envs(environment).arg(prefix.join("bin/hetccl"));
    run.args(["tune", "--memory", "cuda", "--output", "not-written.toml"]);
    let refused = command::output(&mut run).unwrap();
    assert!(!refused.status.success());
    assert!(command::tail(&refused).contains("--mca coll hetccl"), "{}", command::tail(&refused));
}
