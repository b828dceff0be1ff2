//! `hetccl run` with plain programs and an empty library in the place of hetccl's.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

fn hetccl(folder: &Path, words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hetccl"));
    command.arg("run").args(words).env("HETCCL_LIB", folder).env_remove("LD_PRELOAD");
    command.output().unwrap()
}

#[test]
fn the_program_and_its_children_have_the_library() {
    let folder = folder("run-with");
    let library = folder.join("libnccl.so.2");
    std::fs::write(folder.join("empty.c"), "int empty;\n").unwrap();
    let mut compile = Command::new("cc");
    compile.args(["-shared", "-fPIC", "-Wl,-soname,libnccl.so.2", "-o"]);
    assert!(compile.arg(&library).arg(folder.join("empty.c")).status().unwrap().success());

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
