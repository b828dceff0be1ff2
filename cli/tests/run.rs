//! `hetccl run` with plain programs and an empty library in the place of hetccl's.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

fn command(folder: &Path, words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hetccl"));
    command.arg("run").args(words).env("HETCCL_LIB", folder);
    for name in
        ["LD_PRELOAD", "VIRTUAL_ENV", "CONDA_PREFIX", "HETCCL_NCCL_LIBRARY", "HETCCL_RCCL_LIBRARY"]
    {
        command.env_remove(name);
    }
    command
}

fn hetccl(folder: &Path, words: &[&str]) -> Output {
    command(folder, words).output().unwrap()
}

/// A library that does nothing.
fn empty_library(folder: &Path, name: &str) -> PathBuf {
    let library = folder.join(name);
    std::fs::write(folder.join("empty.c"), "int empty;\n").unwrap();
    let mut compile = Command::new("cc");
    compile.args(["-shared", "-fPIC", "-o"]).arg(&library).arg(format!("-Wl,-soname,{name}"));
    assert!(compile.arg(folder.join("empty.c")).status().unwrap().success());
    library
}

#[test]
fn the_program_and_its_children_have_the_library() {
    let folder = folder("run-with");
    let library = empty_library(&folder, "libnccl.so.2");

    let script = "grep -c libnccl.so.2 /proc/self/maps; echo \"$LD_PRELOAD\" \"$1\"; exit 7";
    let output = hetccl(&folder, &["sh", "-c", script, "sh", "--option"]);
    let out = String::from_utf8(output.stdout).unwrap();
    let err = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(7), "{err}");
    let mut lines = out.lines();
    // `grep` is a child of the shell.
    assert_ne!(lines.next(), Some("0"), "{out}");
    assert_eq!(lines.next(), Some(format!("{} --option", library.display()).as_str()));
    assert_eq!(err.lines().count(), 1, "{err}");
    assert!(err.contains(library.to_str().unwrap()), "{err}");
}

#[test]
fn a_missing_library_or_program_is_named() {
    let empty = folder("run-without");
    let output = hetccl(&empty, &["true"]);
    let err = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1));
    for word in ["libnccl.so.2", "librccl.so.1", empty.to_str().unwrap(), "HETCCL_LIB"] {
        assert!(err.contains(word), "{word}: {err}");
    }
}

/// A Python environment with a launcher, as torchrun is one: it starts workers, which have its environment.
fn environment(folder: &Path, vendors_library: &str) -> (PathBuf, PathBuf) {
    use std::os::unix::fs::PermissionsExt;
    let launcher = folder.join("bin/launcher");
    let library = folder.join("lib/python3.12/site-packages").join(vendors_library);
    for file in [&launcher, &library] {
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    }
    let worker = "echo \"worker $1 $HETCCL_NCCL_LIBRARY|$HETCCL_RCCL_LIBRARY|$LD_PRELOAD\"";
    let script = format!(
        "#!/bin/sh\nfor rank in 0 1; do RANK=$rank sh -c '{worker}' worker $rank & done; wait\n"
    );
    std::fs::write(&launcher, script).unwrap();
    std::fs::set_permissions(&launcher, std::fs::Permissions::from_mode(0o755)).unwrap();
    std::fs::write(&library, "").unwrap();
    (launcher, library)
}

#[test]
fn a_launchers_workers_find_the_frameworks_library() {
    let folder = folder("run-launcher");
    let nccl = empty_library(&folder, "libnccl.so.2");
    let rccl = empty_library(&folder, "librccl.so.1");
    let lines = |command: &mut Command| -> (Vec<String>, String) {
        let output = command.output().unwrap();
        let err = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success(), "{err}");
        let mut out: Vec<String> =
            String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect();
        out.sort();
        (out, err)
    };

    let (launcher, library) = environment(&folder.join("nvidia"), "nvidia/nccl/lib/libnccl.so.2");
    let (out, err) = lines(&mut command(&folder, &[launcher.to_str().unwrap()]));
    let wanted = |rank: u32| {
        format!("worker {rank} {}||{}:{}", library.display(), nccl.display(), rccl.display())
    };
    assert_eq!(out, [wanted(0), wanted(1)]);
    assert_eq!(err.lines().count(), 1, "{err}");
    assert!(err.contains(library.to_str().unwrap()), "{err}");

    // Found on PATH, for AMD: that library comes first. What the user set stays.
    let (launcher, library) = environment(&folder.join("amd"), "torch/lib/librccl.so");
    let mut by_path = command(&folder, &["launcher"]);
    by_path.env("PATH", format!("{}:/usr/bin:/bin", launcher.parent().unwrap().display()));
    let (out, _) = lines(by_path.env("HETCCL_NCCL_LIBRARY", "/mine"));
    let preload = format!("{}:{}", rccl.display(), nccl.display());
    assert_eq!(out[0], format!("worker 0 /mine|{}|{preload}", library.display()));
}

#[test]
fn mpirun_passes_the_environment_on() {
    let folder = folder("run-mpirun");
    let library = empty_library(&folder, "libnccl.so.2");
    let mpirun = ["mpirun.openmpi", "mpirun"].into_iter().find(|name| {
        Command::new(name).arg("--version").output().is_ok_and(|output| output.status.success())
    });
    let Some(mpirun) = mpirun else {
        println!(
            "SKIPPED hetccl run under mpirun: there is no mpirun here (cargo xtask setup installs Open MPI)"
        );
        return;
    };
    let script = "echo \"$LD_PRELOAD\"";
    let mut run = command(&folder, &[mpirun, "--oversubscribe", "-n", "2", "sh", "-c", script]);
    run.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
    let output = run.output().unwrap();
    let out = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let with = out.lines().filter(|line| line.split(':').any(|path| Path::new(path) == library));
    assert_eq!(with.count(), 2, "{out}");
}
