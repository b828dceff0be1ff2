//! `hetccl sim` in an installation.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// An installation with the program and one cluster.
fn prefix() -> PathBuf {
    let prefix = Path::new(env!("CARGO_TARGET_TMPDIR")).join("sim-prefix");
    let (bin, clusters) = (prefix.join("bin"), prefix.join("share/hetccl/clusters"));
    for folder in [&bin, &clusters] {
        std::fs::create_dir_all(folder).unwrap();
    }
    let program = bin.join("hetccl");
    let _ = std::fs::remove_file(&program);
    std::fs::hard_link(env!("CARGO_BIN_EXE_hetccl"), program).unwrap();
    let cluster = Path::new(env!("CARGO_MANIFEST_DIR")).join("../clusters/mixed-node.toml");
    std::fs::copy(cluster, clusters.join("mixed-node.toml")).unwrap();
    prefix
}

fn simulate(prefix: &Path, cluster: &str) -> Output {
    let mut program = Command::new(prefix.join("bin/hetccl"));
    program.args(["sim", "--cluster", cluster, "--bytes", "1M", "--no-compare"]);
    program.current_dir(prefix).output().unwrap()
}

#[test]
fn an_installed_cluster_has_a_name_and_another_is_refused_with_those_there_are() {
    let prefix = prefix();
    let output = simulate(&prefix, "mixed-node");
    assert!(output.status.success(), "{output:?}");
    assert!(String::from_utf8(output.stdout).unwrap().contains("1048576"));
    let output = simulate(&prefix, "nowhere");
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("installed; those that are: mixed-node"), "{said}");
    assert_eq!(said.matches("No such file").count(), 1, "{said}");
}
