//! The NCCL and RCCL libraries: what they export, and a program of that interface on emulated devices.

use std::collections::BTreeSet;
use std::process::{Command, Output};
use std::time::Duration;

use hetccl_tests::{nccl, vendor_library};
use xtask::command;

const LIMIT: Duration = Duration::from_secs(240);

/// Checks that held, of which there are many.
fn held(what: &str, output: &Output) -> usize {
    let held = nccl::held(what, output);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(held > 200, "{what}: only {held} checks\n{text}");
    memory_is_bounded(what, &text);
    held
}

/// What every engine says at its end: KiB of device memory, and of pinned host memory.
fn memory_is_bounded(what: &str, text: &str) {
    for line in text.lines().filter(|line| line.contains(" had at most ")) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let kib = words.windows(2).filter(|pair| pair[1] == "KiB");
        let kib: Vec<usize> = kib.map(|pair| pair[0].parse().expect("a number")).collect();
        assert!(kib.len() == 2 && kib[0] <= 8 << 10 && kib[1] <= 16 << 10, "{what}: {line}");
    }
}

/// One process a rank, of these vendors.
fn processes(vendors: &[&str], count: usize) {
    processes_by("auto", vendors, count);
}

/// The same, with collectives by vendor groups or not.
fn processes_by(hierarchy: &str, vendors: &[&str], count: usize) {
    processes_with(&format!("hierarchy {hierarchy}"), vendors, count, |_, run| {
        run.env("HETCCL_HIERARCHY", hierarchy);
    });
}

/// The same, with variables of each rank's own.
fn processes_with(
    what: &str,
    vendors: &[&str],
    count: usize,
    variables: impl Fn(usize, &mut Command),
) {
    let file = nccl::job_file();
    let ranks: Vec<_> = vendors
        .iter()
        .enumerate()
        .map(|(rank, vendor)| {
            let (number, size) = (rank.to_string(), vendors.len().to_string());
            let arguments = ["rank".to_owned(), number, size, file.clone(), count.to_string()];
            let mut start = nccl::on_emulated("nccl", vendor, Some(LIMIT));
            start.args(arguments).env("NCCL_DEBUG", "INFO");
            variables(rank, &mut start);
            start.spawn().expect("the program was compiled")
        })
        .collect();
    let mut sum = 0;
    for (rank, child) in ranks.into_iter().enumerate() {
        let output = child.wait_with_output().expect("the rank runs");
        sum += held(&format!("rank {rank} of {vendors:?}, count {count}"), &output);
    }
    nccl::remove_job(&file);
    println!("{vendors:?}, count {count}, {what}: {sum} checks held");
}

/// All ranks in one thread.
fn one_thread(vendor: &str, size: usize, count: usize) {
    let arguments = ["all".to_owned(), size.to_string(), count.to_string()];
    let mut start = nccl::on_emulated("nccl", vendor, Some(LIMIT));
    let output = start.args(arguments).output().expect("the program was compiled");
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
    let folder = nccl::libraries();
    let vendors = [0, 1].map(|i| vendor_library(&folder, i, "inside", &["-DVERSION=22803"]));
    // Doubles of the first stay on the device, what is smaller is staged.
    for (sizes, count) in [([2, 2], 17_000), ([3, 2], 33), ([4, 4], 7)] {
        // Ranks of the two vendors in turn, as long as there are both.
        let list: Vec<&str> = (0..sizes[0])
            .flat_map(|i| [Some("cuda"), (i < sizes[1]).then_some("rocm")])
            .flatten()
            .collect();
        let calls = folder.join(format!("inside.{}.{}", std::process::id(), list.len()));
        processes_with("inside on", &list, count, |rank, run| {
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
            // Each rank of a communicator tries it once.
            let used = called(name).saturating_sub(called("ncclCommInitRank"));
            assert!(used >= list.len(), "{list:?}: {name} was used {used} times");
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

/// A smaller program of one process a rank.
fn communicators(vendors: &[&str], count: usize) {
    let file = nccl::job_file();
    let start = |(rank, vendor): (usize, &&str)| {
        let mut start = nccl::on_emulated("nccl_comms", vendor, Some(LIMIT));
        let numbers = [rank, vendors.len()].map(|number| number.to_string());
        start.arg("rank").args(numbers).args([&file, &count.to_string()]);
        start.spawn().expect("the program was compiled")
    };
    let ranks: Vec<_> = vendors.iter().enumerate().map(start).collect();
    let mut sum = 0;
    for held in nccl::all_held(&format!("{vendors:?}, count {count}"), ranks) {
        assert!(held > 35, "{vendors:?}: only {held} checks");
        sum += held;
    }
    nccl::remove_job(&file);
    println!("communicators of {vendors:?}, count {count}: {sum} checks held");
}

#[test]
fn windows_and_communicators_out_of_others() {
    communicators(&["cuda"], 1000);
    communicators(&["cuda"; 3], 1000);
    communicators(&["rocm"; 2], 40_000);
    communicators(&["cuda", "rocm", "cuda", "rocm"], 40_000);
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
        let path = nccl::libraries().join(library);
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
