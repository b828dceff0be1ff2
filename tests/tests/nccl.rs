//! The NCCL and RCCL libraries: what they export, and a program of that interface on emulated devices.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use hetccl_tests::vendor_library;
use xtask::{command, emulate, kernels, nccl};

const LIMIT: Duration = Duration::from_secs(240);

/// What is needed to run a program.
struct Setting {
    libraries: PathBuf,
    emulator: PathBuf,
    kernels: PathBuf,
    /// The program, linked to either library.
    programs: [PathBuf; 2],
}

fn setting() -> &'static Setting {
    static MADE: OnceLock<Setting> = OnceLock::new();
    MADE.get_or_init(|| {
        let libraries = nccl::libraries().unwrap_or_else(|error| panic!("{error:#}"));
        let programs = ["libnccl.so", "librccl.so"].map(|library| compile(&libraries, library));
        Setting {
            libraries,
            emulator: emulate::libraries().unwrap_or_else(|error| panic!("{error:#}")),
            kernels: kernels::host_library().unwrap_or_else(|error| panic!("{error:#}")),
            programs,
        }
    })
}

fn compile(libraries: &Path, library: &str) -> PathBuf {
    let program = command::target_dir().join(format!("nccl/conformance-{library}"));
    let mut cc = Command::new("cc");
    cc.args(["-O2", "-Wall", "-Wextra", "-Werror", "-o"]).arg(&program);
    cc.arg(command::root().join("tests/c/nccl.c")).arg(libraries.join(library)).arg("-lm");
    command::capture(&mut cc).unwrap_or_else(|error| panic!("{error:#}"));
    program
}

/// Runs a rank (or all, in one process) of a vendor.
fn start(vendor: &str, arguments: &[String]) -> Command {
    let setting = setting();
    let program = &setting.programs[usize::from(vendor == "rocm")];
    let mut run = command::limited(program, LIMIT);
    let path = format!("{}:{}", setting.libraries.display(), setting.emulator.display());
    run.env("LD_LIBRARY_PATH", path)
        .env("HETCCL_EMULATOR_KERNELS", &setting.kernels)
        .env("NCCL_DEBUG", "WARN")
        .arg(vendor)
        .args(arguments)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    run
}

/// Checks that held, by what the program printed.
fn held(what: &str, output: &std::process::Output) -> usize {
    assert!(output.status.success(), "{what}: {}", command::tail(output));
    let text = String::from_utf8_lossy(&output.stdout);
    let held = text.lines().filter(|line| line.starts_with("ok ")).count();
    assert!(held > 200, "{what}: only {held} checks\n{text}");
    held
}

/// One process a rank, of these vendors.
fn processes(vendors: &[&str], count: usize) {
    processes_by("auto", vendors, count);
}

/// The same, with collectives by vendor groups or not.
fn processes_by(hierarchy: &str, vendors: &[&str], count: usize) {
    processes_with(vendors, count, |_, run| {
        run.env("HETCCL_HIERARCHY", hierarchy);
    });
}

/// The same, with variables of each rank's own.
fn processes_with(vendors: &[&str], count: usize, variables: impl Fn(usize, &mut Command)) {
    static FILES: AtomicU32 = AtomicU32::new(0);
    setting();
    let number = FILES.fetch_add(1, Ordering::Relaxed);
    let name = format!("nccl/id.{}.{number}", std::process::id());
    let file = command::target_dir().join(name).display().to_string();
    let _ = std::fs::remove_file(&file);
    let ranks: Vec<_> = vendors
        .iter()
        .enumerate()
        .map(|(rank, vendor)| {
            let (number, size) = (rank.to_string(), vendors.len().to_string());
            let arguments = ["rank".to_owned(), number, size, file.clone(), count.to_string()];
            let mut start = start(vendor, &arguments);
            variables(rank, &mut start);
            start.spawn().expect("the program was compiled")
        })
        .collect();
    let mut sum = 0;
    for (rank, child) in ranks.into_iter().enumerate() {
        let output = child.wait_with_output().expect("the rank runs");
        sum += held(&format!("rank {rank} of {vendors:?}, count {count}"), &output);
    }
    let _ = std::fs::remove_file(&file);
    println!("{vendors:?}, count {count}: {sum} checks held");
}

/// All ranks in one thread.
fn one_thread(vendor: &str, size: usize, count: usize) {
    let arguments = ["all".to_owned(), size.to_string(), count.to_string()];
    let output = start(vendor, &arguments).output().expect("the program was compiled");
    let held = held(&format!("{size} ranks of {vendor} in one thread"), &output);
    println!("{size} ranks of {vendor} in one thread, count {count}: {held} checks held");
}

#[test]
fn cuda_ranks() {
    for size in 1..=4 {
        processes(&vec!["cuda"; size], 100);
    }
    processes(&["cuda"; 2], 40_000);
}

#[test]
fn rocm_ranks() {
    for size in 1..=3 {
        processes(&vec!["rocm"; size], 100);
    }
}

#[test]
fn both_vendors() {
    processes_by("off", &["cuda", "rocm"], 100);
    processes(&["rocm", "cuda", "cuda"], 40_000);
    processes_by("on", &["cuda", "rocm", "cuda", "rocm", "cuda"], 33);
}

/// Every call of a mixed communicator that its ranks' vendor library can do inside their groups goes there: results stay right, and
/// the library is really called. NCCL_HOSTID lets ranks on one emulated device have it.
#[test]
fn vendors_libraries_work_inside_their_groups() {
    let folder = command::target_dir().join("nccl");
    setting();
    let vendors = [0, 1].map(|i| vendor_library(&folder, i, "inside", &["-DVERSION=22803"]));
    // Doubles of the first stay on the device, what is smaller is staged.
    for (sizes, count) in [([2, 2], 17_000), ([3, 2], 33), ([4, 4], 7)] {
        // Ranks of the two vendors in turn, as long as there are both.
        let list: Vec<&str> = (0..sizes[0])
            .flat_map(|i| [Some("cuda"), (i < sizes[1]).then_some("rocm")])
            .flatten()
            .collect();
        let calls = folder.join(format!("inside.{}.{}", std::process::id(), list.len()));
        processes_with(&list, count, |rank, run| {
            run.env("HETCCL_GROUP_LIBRARY", "on")
                .env("HETCCL_NCCL_LIBRARY", &vendors[0])
                .env("HETCCL_RCCL_LIBRARY", &vendors[1])
                .env("NCCL_HOSTID", rank.to_string())
                .env("TEST_CALLS", &calls);
        });
        let text = std::fs::read_to_string(&calls).unwrap_or_default();
        let _ = std::fs::remove_file(&calls);
        let called = |name: &str| text.lines().filter(|line| *line == name).count();
        assert!(called("ncclCommInitRank") >= list.len(), "{list:?}: {text}");
        for name in ["ncclReduceScatter", "ncclReduce", "ncclBroadcast", "ncclAllGather"] {
            assert!(
                called(name) >= list.len(),
                "{list:?}: {name} was called {} times",
                called(name)
            );
        }
        println!("{list:?}: {} calls of the vendors' libraries", text.lines().count());
    }
}

#[test]
fn many_ranks_in_one_thread() {
    for size in 1..=4 {
        one_thread("cuda", size, 100);
    }
    one_thread("rocm", 3, 100);
}

#[test]
fn exports_are_those_of_the_lists() {
    let list = |name: &str| -> BTreeSet<String> {
        let text = std::fs::read_to_string(command::root().join("tests/nccl").join(name));
        let text = text.unwrap_or_else(|error| panic!("{name}: {error}"));
        text.lines().flat_map(|symbol| [symbol.to_owned(), format!("p{symbol}")]).collect()
    };
    let nccl = list("symbols-2.32.3.txt");
    let both = nccl.union(&list("symbols-rccl.txt")).cloned().collect();
    for (library, soname, wanted) in
        [("libnccl.so", "libnccl.so.2", nccl), ("librccl.so", "librccl.so.1", both)]
    {
        let path = setting().libraries.join(library);
        let mut nm = Command::new("nm");
        let text = command::capture(nm.args(["-D", "--defined-only"]).arg(&path));
        let text = text.unwrap_or_else(|error| panic!("{error:#}"));
        let mut found: BTreeSet<String> = text
            .lines()
            .filter_map(|line| line.split_whitespace().last())
            .map(str::to_owned)
            .collect();
        assert!(found.remove("hetccl_version"), "{library} does not say whose it is");
        assert_eq!(found, wanted, "{library}");
        let mut readelf = Command::new("readelf");
        let dynamic = command::capture(readelf.arg("-d").arg(&path));
        let dynamic = dynamic.unwrap_or_else(|error| panic!("{error:#}"));
        assert!(dynamic.contains(&format!("[{soname}]")), "{dynamic}");
    }
}
