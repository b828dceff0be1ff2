//! What users see of the component: parameters, selection, refusals, the installation.

use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use hetccl_tests::{prefix, program};
use xtask::command;
use xtask::mpi::{self, Library};

const LIMIT: Duration = Duration::from_secs(60);

fn run(library: Library<'_>, ranks: usize, mca: &[&str], environment: &[(&str, &str)]) -> Output {
    let program = program("errors");
    let mut command = mpi::mpirun(library, ranks, LIMIT);
    for pair in mca.chunks(2) {
        command.arg("--mca").args(pair);
    }
    command.envs(environment.iter().copied());
    command::output(command.arg(program)).unwrap()
}

fn auto(prefix: &Path) -> Library<'_> {
    Library::Hetccl { prefix, transport: "auto" }
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn every_parameter_is_listed_with_help() {
    let Some(prefix) = prefix("parameters") else { return };
    let mut ask = Command::new(if command::exists("ompi_info.openmpi") {
        "ompi_info.openmpi"
    } else {
        "ompi_info"
    });
    ask.env("OMPI_MCA_mca_base_component_path", prefix.join("lib/openmpi"));
    let text = command::capture(ask.args(["--param", "coll", "hetccl", "--level", "9"])).unwrap();
    let names = [
        "priority",
        "verbose",
        "transport",
        "allreduce_algorithm",
        "neighbor_alltoallw_algorithm",
        "chunk_bytes",
    ];
    for name in names {
        assert!(text.contains(&format!("\"coll_hetccl_{name}\"")), "{name} is missing in\n{text}");
    }
    let listed = text.matches("parameter \"coll_hetccl_").count();
    let info = command::capture(Command::new(prefix.join("bin/hetccl")).args(["info", "--json"]));
    let info: serde_json::Value = serde_json::from_str(&info.unwrap()).unwrap();
    for setting in info["settings"].as_array().unwrap() {
        let name = format!("\"coll_hetccl_{}\"", setting["name"].as_str().unwrap());
        assert!(text.contains(&name), "hetccl info has {name}, ompi_info has not");
    }
    assert_eq!(info["settings"].as_array().unwrap().len(), listed, "hetccl info lists all");
    assert_eq!(
        listed,
        7 + 22 + 16,
        "priority, verbose, transport, shared_memory, gpus, gpu_path, hierarchy, one algorithm each, sixteen numbers:\n{text}"
    );
}

#[test]
fn a_wrong_value_is_refused_with_the_right_ones() {
    let Some(prefix) = prefix("refusals") else { return };
    let output = run(auto(prefix), 1, &["coll_hetccl_allreduce_algorithm", "magic"], &[]);
    assert!(!output.status.success());
    assert!(stderr(&output).contains("recursive_doubling"), "{}", stderr(&output));
    let output = run(auto(prefix), 1, &["coll_hetccl_chunk_bytes", "1"], &[]);
    assert!(!output.status.success());
    assert!(stderr(&output).contains("256 or more"), "{}", stderr(&output));
}

#[test]
fn hetccl_is_chosen_and_says_which_wire() {
    let Some(prefix) = prefix("selection") else { return };
    let mca = ["coll_base_verbose", "10", "coll_hetccl_verbose", "1"];
    let output = run(auto(prefix), 2, &mca, &[]);
    assert!(output.status.success(), "{}", command::tail(&output));
    let text = stderr(&output);
    assert!(text.contains("hetccl: messages go over ucx"), "{text}");
    let chosen = text.lines().filter(|line| line.contains("comm_select: selecting"));
    for line in chosen {
        assert!(line.contains("hetccl") && line.contains("Enabled"), "{line}");
    }
}

#[test]
fn without_ucx_the_pml_carries_on_or_the_demand_fails() {
    let Some(prefix) = prefix("a missing UCX") else { return };
    let nowhere = [("HETCCL_UCX_LIB", "/nonexistent")];
    let output = run(auto(prefix), 2, &["coll_hetccl_verbose", "1"], &nowhere);
    assert!(output.status.success(), "{}", command::tail(&output));
    let text = stderr(&output);
    assert!(
        text.contains("messages go over pml") && text.contains("/nonexistent/libucp"),
        "{text}"
    );
    let output = run(Library::Hetccl { prefix, transport: "ucx" }, 2, &[], &nowhere);
    assert!(!output.status.success());
    assert!(stderr(&output).contains("UCX was demanded"), "{}", stderr(&output));
}

#[test]
fn every_algorithm_can_be_demanded() {
    let Some(prefix) = prefix("algorithms") else { return };
    let program = program("layouts");
    let list =
        command::capture(Command::new(prefix.join("bin/hetccl")).args(["info", "--json"])).unwrap();
    let choices = intra_algorithms(&list);
    assert!(choices.len() > 30, "{choices:?}");
    for (collective, algorithm) in choices {
        let mut command = mpi::mpirun(Library::Hetccl { prefix, transport: "ucx" }, 4, LIMIT);
        let parameter = format!("coll_hetccl_{collective}_algorithm");
        let output =
            command::output(command.args(["--mca", &parameter, &algorithm]).arg(&program)).unwrap();
        assert!(output.status.success(), "{collective} by {algorithm}\n{}", command::tail(&output));
    }
    println!("every algorithm was demanded and obeyed");
}

/// (collective, algorithm) of intra-communicators, from `hetccl info --json`.
fn intra_algorithms(json: &str) -> Vec<(String, String)> {
    let field = |text: &str, name: &str| {
        let rest = text.split(&format!("\"{name}\": \"")).nth(1)?;
        Some(rest.split('"').next()?.to_owned())
    };
    json.split('{')
        .filter(|entry| field(entry, "communicator").as_deref() == Some("intra"))
        .filter_map(|entry| Some((field(entry, "collective")?, field(entry, "name")?)))
        .collect()
}

#[test]
fn the_environment_script_works_from_any_folder_and_after_a_move() {
    let Some(prefix) = prefix("the environment script") else { return };
    let program = program("errors");
    let moved = command::target_dir().join("moved-prefix");
    let _ = std::fs::remove_dir_all(&moved);
    let copy = Command::new("cp").arg("-r").arg(prefix).arg(&moved).status().unwrap();
    assert!(copy.success());
    for (shell, place) in [("bash", moved.as_path()), ("sh", prefix)] {
        let script = format!(
            "cd / && . '{}/share/hetccl/env.sh' && hetccl info && mpirun --oversubscribe --mca coll hetccl -n 2 '{}'",
            place.canonicalize().unwrap().display(),
            program.display()
        );
        let mut command = command::limited(shell, LIMIT);
        if command::is_root() {
            command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
        }
        let text = command::capture(command.args(["-c", &script])).unwrap();
        assert!(
            text.contains("component  yes: ") && text.contains("0 failures"),
            "{shell}: {text}"
        );
    }
}

#[test]
fn other_programs_pay_nothing_for_an_installed_component() {
    let Some(prefix) = prefix("a component not named") else { return };
    let program = program("errors");
    let mut command = mpi::mpirun(Library::OpenMpi, 2, LIMIT);
    let path = format!("{}/lib/openmpi:{}", prefix.display(), mpi::default_component_path());
    command.env("OMPI_MCA_mca_base_component_path", path);
    command.args(["--mca", "coll_base_verbose", "10"]);
    let output = command::output(command.arg(&program)).unwrap();
    assert!(output.status.success(), "{}", command::tail(&output));
    let text = stderr(&output);
    assert!(text.contains("coll component hetccl is not available"), "{text}");
    assert!(!text.contains("selecting      hetccl"), "{text}");
}
