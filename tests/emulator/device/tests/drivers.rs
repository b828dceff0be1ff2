//! The emulated drivers, seen from C programs: each of `programs/` runs on CUDA, on HIP, or on both.

use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;
use std::time::Duration;

use xtask::{command, emulate};

const LIMIT: Duration = Duration::from_secs(60);
const SIGSEGV: i32 = 11;

#[derive(Clone, Copy)]
enum Api {
    Cuda,
    Hip,
    LevelZero,
    Both,
}

const EACH: [Api; 2] = [Api::Cuda, Api::Hip];

impl Api {
    fn name(self) -> &'static str {
        match self {
            Api::Cuda => "CUDA",
            Api::Hip => "HIP",
            Api::LevelZero => "LEVEL_ZERO",
            Api::Both => "BOTH",
        }
    }

    fn libraries(self) -> &'static [&'static str] {
        match self {
            Api::Cuda => &["-l:libcuda.so.1"],
            Api::Hip => &["-l:libamdhip64.so.6"],
            Api::LevelZero => &["-l:libze_loader.so.1"],
            Api::Both => &["-l:libcuda.so.1", "-l:libamdhip64.so.6"],
        }
    }
}

/// The folder with the drivers, built once; `None`, and said, where there is no C compiler.
fn drivers() -> Option<&'static Path> {
    static DRIVERS: OnceLock<PathBuf> = OnceLock::new();
    if !command::exists("cc") {
        println!("SKIPPED emulated drivers: no cc on PATH");
        return None;
    }
    Some(DRIVERS.get_or_init(|| emulate::libraries().unwrap_or_else(|error| panic!("{error:#}"))))
}

fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs").join(name).with_extension("c")
}

fn compile(name: &str, api: Api, drivers: &Path) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let program = folder.join(format!("{name}-{}", api.name()));
    let mut cc = Command::new("cc");
    cc.args(["-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-Wno-stringop-overflow"]);
    cc.arg(format!("-D{}", api.name())).arg(source(name)).arg("-o").arg(&program);
    cc.arg("-L").arg(drivers).args(api.libraries()).arg("-ldl");
    command::run(&mut cc).unwrap();
    program
}

/// Kernels for the host, made once: several tests load them.
fn kernels() -> PathBuf {
    static MADE: OnceLock<PathBuf> = OnceLock::new();
    let make = || {
        let object = Path::new(env!("CARGO_TARGET_TMPDIR")).join("kernels.so");
        let mut cc = Command::new("cc");
        cc.args(["-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"]);
        command::run(cc.arg(source("kernels")).arg("-o").arg(&object)).unwrap();
        object
    };
    MADE.get_or_init(make).clone()
}

fn run(name: &str, api: Api, arguments: &[&str], environment: &[(&str, &str)]) -> Option<Output> {
    let drivers = drivers()?;
    let mut program = command::limited(compile(name, api, drivers), LIMIT);
    program.args(arguments).env("LD_LIBRARY_PATH", emulate::library_path(drivers));
    program.envs(environment.iter().copied());
    Some(command::output(&mut program).unwrap())
}

fn succeeds(name: &str, api: Api, arguments: &[&str], environment: &[(&str, &str)]) {
    if let Some(output) = run(name, api, arguments, environment) {
        assert!(
            output.status.success(),
            "{name}, {}: {}\n{}",
            api.name(),
            output.status,
            command::tail(&output)
        );
    }
}

/// Ended by SIGSEGV: of `timeout`, which passes it on, or of the program, as a shell would say it.
fn crashed(output: &Output) -> bool {
    output.status.signal() == Some(SIGSEGV) || output.status.code() == Some(128 + SIGSEGV)
}

#[test]
fn memory() {
    for api in EACH {
        succeeds("memory", api, &[], &[("HETCCL_EMULATOR_MEMORY_BYTES", "8388608")]);
    }
}

#[test]
fn streams_are_late_and_in_order() {
    for api in EACH {
        succeeds("streams", api, &[], &[("HETCCL_EMULATOR_DELAY_US", "20000")]);
    }
}

#[test]
fn memory_and_events_of_other_processes() {
    for api in EACH {
        succeeds("processes", api, &[], &[]);
    }
}

#[test]
fn children_of_fork_are_refused() {
    for api in EACH {
        succeeds("forks", api, &[], &[]);
    }
}

#[test]
fn kernels_for_the_host() {
    let object = kernels();
    let object = object.to_str().unwrap();
    for api in EACH {
        succeeds("launch", api, &[object], &[("HETCCL_EMULATOR_KERNELS", object)]);
    }
}

#[test]
fn injected_failures() {
    succeeds(
        "failures",
        Api::Cuda,
        &[],
        &[("HETCCL_EMULATOR_FAIL", "cuMemAlloc_v2:2:2,cuMemcpy:1")],
    );
    succeeds("failures", Api::Hip, &[], &[("HETCCL_EMULATOR_FAIL", "hipMalloc:2:2,hipMemcpy:1")]);
}

#[test]
fn number_of_devices() {
    for count in ["0", "2"] {
        succeeds("devices", Api::Cuda, &[count], &[("HETCCL_EMULATOR_CUDA_DEVICES", count)]);
        succeeds("devices", Api::Hip, &[count], &[("HETCCL_EMULATOR_HIP_DEVICES", count)]);
    }
}

#[test]
fn level_zero() {
    let object = kernels();
    succeeds("level_zero", Api::LevelZero, &[object.to_str().unwrap()], &[]);
}

#[test]
fn cuda_contexts() {
    succeeds("contexts", Api::Cuda, &[], &[("HETCCL_EMULATOR_CUDA_DEVICES", "2")]);
}

#[test]
fn both_in_one_process() {
    succeeds("both", Api::Both, &[], &[]);
    for whose in ["cuda", "hip"] {
        let Some(output) = run("both", Api::Both, &[whose], &[]) else { return };
        assert!(crashed(&output), "{}", command::tail(&output));
        let lines = String::from_utf8_lossy(&output.stderr).matches("stray access").count();
        assert_eq!(lines, 1, "{}", command::tail(&output));
    }
}

#[test]
fn stray_accesses_are_counted_and_kill() {
    for api in EACH {
        let faults = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("faults-{}", api.name()));
        let _ = std::fs::remove_file(&faults);
        let environment = [("HETCCL_EMULATOR_FAULTS", faults.to_str().unwrap())];
        for (count, how) in ["read", "write", "freed", "late-handler"].into_iter().enumerate() {
            let Some(output) = run("stray", api, &[how], &environment) else { return };
            assert!(crashed(&output), "{how}: {}", command::tail(&output));
            let lines = std::fs::read_to_string(&faults).unwrap();
            assert_eq!(lines.lines().count(), count + 1, "{how}: {lines}");
            let expected = if how == "freed" { "no allocation there" } else { "64 bytes)" };
            let last = lines.lines().last().unwrap();
            assert!(
                last.starts_with("hetccl emulator: stray access to device memory at 0x"),
                "{last}"
            );
            assert!(last.contains(expected), "{how}: {last}");
        }
        let Some(output) = run("stray", api, &["other"], &environment) else { return };
        assert_eq!(output.status.code(), Some(3), "{}", command::tail(&output));
        assert!(String::from_utf8_lossy(&output.stderr).contains("the program's handler"));
    }
}

#[test]
fn nothing_is_left_in_shared_memory() {
    // What killed processes left goes when the next starts; what others use at this time stays.
    let Some(_) = run("stray", Api::Cuda, &["read"], &[]) else { return };
    succeeds("stray", Api::Cuda, &["none"], &[]);
    for entry in std::fs::read_dir("/dev/shm").unwrap().flatten() {
        let name = entry.file_name().into_string().unwrap();
        let Some(rest) = name.strip_prefix("hetccl-emulator-cuda-") else { continue };
        let pid = rest.split('-').next().unwrap();
        assert!(Path::new("/proc").join(pid).exists(), "{name} is left");
    }
}
