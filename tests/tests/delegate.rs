//! Communicators whose calls go to the vendor's own library: emulated ones, on emulated devices.

use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use hetccl_tests::{emulation, vendor_library};
use xtask::{command, nccl};

const LIMIT: Duration = Duration::from_secs(120);

struct Setting {
    libraries: PathBuf,
    folder: PathBuf,
    /// The program, linked to either library.
    programs: [PathBuf; 2],
    /// Usable vendors' libraries.
    vendors: [PathBuf; 2],
}

fn setting() -> &'static Setting {
    static MADE: OnceLock<Setting> = OnceLock::new();
    MADE.get_or_init(|| {
        let libraries = nccl::libraries().unwrap_or_else(|error| panic!("{error:#}"));
        let folder = command::target_dir().join("delegate");
        std::fs::create_dir_all(&folder).expect("the target folder is writable");
        let programs = ["libnccl.so", "librccl.so"].map(|library| {
            nccl::compile("delegate", &libraries, library)
                .unwrap_or_else(|error| panic!("{error:#}"))
        });
        let vendors =
            [0, 1].map(|index| vendor_library(&folder, index, "usable", &["-DVERSION=22803"]));
        Setting { libraries, folder, programs, vendors }
    })
}

/// The ranks' output, and the calls that reached the vendor's libraries.
struct Ran {
    outputs: Vec<Output>,
    calls: Vec<String>,
}

impl Ran {
    /// Every rank's last words.
    fn words(&self, rank: usize) -> String {
        String::from_utf8_lossy(&self.outputs[rank].stdout).into_owned()
    }

    fn called(&self, name: &str) -> usize {
        self.calls.iter().filter(|call| *call == name).count()
    }
}

/// Ranks of these vendors (0: CUDA, 1: ROCm), each on its own device, with their own variables.
fn ranks(vendors: &[usize], expected: &str, variables: impl Fn(usize, &mut Command)) -> Ran {
    static RUNS: AtomicU32 = AtomicU32::new(0);
    let setting = setting();
    let number = RUNS.fetch_add(1, Ordering::Relaxed);
    let id = setting.folder.join(format!("id.{}.{number}", std::process::id()));
    let calls = setting.folder.join(format!("calls.{}.{number}", std::process::id()));
    let path = format!("{}:{}", setting.libraries.display(), emulation().drivers.display());
    let devices = vendors.len().to_string();
    let started: Vec<_> = vendors
        .iter()
        .enumerate()
        .map(|(rank, &vendor)| {
            let mut run = command::limited(&setting.programs[vendor], LIMIT);
            run.arg(["cuda", "rocm"][vendor]).arg(rank.to_string()).arg(&devices).arg(&id);
            run.args(expected.split(' '))
                .env("LD_LIBRARY_PATH", &path)
                .env("HETCCL_EMULATOR_KERNELS", &emulation().kernels)
                .env("HETCCL_EMULATOR_CUDA_DEVICES", &devices)
                .env("HETCCL_EMULATOR_HIP_DEVICES", &devices)
                .env("HETCCL_NCCL_LIBRARY", &setting.vendors[0])
                .env("HETCCL_RCCL_LIBRARY", &setting.vendors[1])
                .env("NCCL_DEBUG", "INFO")
                .env("TEST_CALLS", &calls)
                .stdout(Stdio::piped())
                .stderr(Stdio::piped());
            variables(rank, &mut run);
            run.spawn().expect("the program was compiled")
        })
        .collect();
    let outputs: Vec<Output> =
        started.into_iter().map(|child| child.wait_with_output().expect("the rank runs")).collect();
    for (rank, output) in outputs.iter().enumerate() {
        assert!(output.status.success(), "rank {rank} of {vendors:?}: {}", command::tail(output));
    }
    let text = std::fs::read_to_string(&calls).unwrap_or_default();
    for file in [id, calls] {
        let _ = std::fs::remove_file(file);
    }
    Ran { outputs, calls: text.lines().map(str::to_owned).collect() }
}

/// What a rank wrote about why calls are not handed on.
fn reason(ran: &Ran, rank: usize) -> String {
    let text = String::from_utf8_lossy(&ran.outputs[rank].stderr).into_owned();
    let line = text.lines().find(|line| line.contains("hetccl does the communicator"));
    line.unwrap_or_else(|| panic!("no reason in: {text}")).to_owned()
}

#[test]
fn calls_of_one_vendors_ranks_go_to_its_library() {
    for vendor in [0, 1] {
        let ran = ranks(&[vendor; 3], "vendor", |_, _| {});
        assert_eq!(ran.called("ncclGetUniqueId"), 1, "rank 0's, for all: {:?}", ran.calls);
        assert_eq!(ran.called("ncclCommInitRankConfig"), 2);
        assert_eq!(ran.called("ncclCommInitRank"), 1);
        // Each rank: alone, in a group, in its part, and one that is refused.
        assert_eq!(ran.called("ncclAllReduce"), 12);
        assert_eq!(ran.called("ncclCommAbort"), 1);
        let told = String::from_utf8_lossy(&ran.outputs[0].stderr).into_owned();
        assert!(told.contains("calls go to") && told.contains("2.28.3"), "{told}");
        assert_eq!(ran.words(0).lines().filter(|line| line.starts_with("ok ")).count(), 11);
    }
}

#[test]
fn hetccl_does_what_can_not_be_handed_on() {
    let mixed = ranks(&[0, 1], "own", |_, _| {});
    assert!(reason(&mixed, 0).contains("different vendors"));
    // Its parts have one rank each.
    assert_eq!(mixed.called("ncclAllReduce"), 2, "{:?}", mixed.calls);

    let switched_off = ranks(&[0, 0], "own", |rank, run| {
        if rank == 1 {
            run.env("HETCCL_DELEGATE", "0");
        }
    });
    assert!(reason(&switched_off, 0).contains("HETCCL_DELEGATE of rank 1 is 0"));

    let only_one = ranks(&[0, 0], "own", |rank, run| {
        if rank == 1 {
            run.env("HETCCL_NCCL_LIBRARY", "/nowhere/libnccl.so.2");
        }
    });
    for rank in [0, 1] {
        let reason = reason(&only_one, rank);
        assert!(
            reason.contains("rank 1: ") && reason.contains("/nowhere/libnccl.so.2"),
            "{reason}"
        );
    }
    assert_eq!(only_one.called("ncclCommInitRankConfig"), 0);

    let no_gpu = ranks(&[0, 0], "own", |_, run| {
        run.env("TEST_NO_GPU", "1");
    });
    assert!(reason(&no_gpu, 1).contains("rank 0: ncclGetUniqueId of "), "{}", reason(&no_gpu, 1));
}

#[test]
fn a_part_of_a_mixed_communicator_is_handed_on() {
    // The program splits by even and odd: the parts are of one vendor each.
    let ran = ranks(&[0, 1, 0, 1], "own", |_, run| {
        run.env("HETCCL_GROUP_LIBRARY", "off");
    });
    assert_eq!(ran.called("ncclGetUniqueId"), 2, "{:?}", ran.calls);
    assert_eq!(ran.called("ncclCommInitRank"), 4);
    assert_eq!(ran.called("ncclAllReduce"), 4);
}

/// What a rank wrote about groups without a vendor's library.
fn reason_inside(ran: &Ran, rank: usize) -> String {
    let text = String::from_utf8_lossy(&ran.outputs[rank].stderr).into_owned();
    let line = text.lines().find(|line| line.contains("does what is done inside a vendor group"));
    line.unwrap_or_else(|| panic!("no reason in: {text}")).to_owned()
}

#[test]
fn small_messages_do_not_start_the_library_of_a_group() {
    let ran = ranks(&[0, 1, 0, 1], "own", |_, _| {});
    // Four ranks, and the two parts, which are handed on.
    assert_eq!(ran.called("ncclCommInitRank"), 8, "{:?}", ran.calls);
    for name in ["ncclReduceScatter", "ncclReduce", "ncclBroadcast", "ncclAllGather"] {
        assert_eq!(ran.called(name), 4, "{name}: each rank tries it once when it begins");
    }
}

#[test]
fn a_group_whose_library_is_of_no_use_is_hetccls() {
    let other = vendor_library(&setting().folder, 0, "inside-other", &["-DVERSION=23003"]);
    let differ = ranks(&[0, 1, 0, 1], "own", |rank, run| {
        run.env("HETCCL_GROUP_LIBRARY", "on");
        if rank == 2 {
            run.env("HETCCL_NCCL_LIBRARY", &other);
        }
    });
    let words = "cuda: rank 0 has version 2.28.3 and rank 2 2.30.3";
    let [fail, refuse] = ["TEST_NO_INIT", "TEST_NO_LAUNCH"].map(|what| {
        ranks(&[0, 1, 0, 1], "own", |rank, run| {
            run.env("HETCCL_GROUP_LIBRARY", "on").env("HETCCL_DELEGATE", "0");
            if rank % 2 == 0 {
                run.env(what, "1");
            }
        })
    });
    for rank in 0..4 {
        let reason = reason_inside(&differ, rank);
        assert!(reason.to_lowercase().contains(words), "{reason}");
        let reason = reason_inside(&fail, rank);
        assert!(reason.contains("rank 0: ncclCommInitRank of "), "{reason}");
        // As of a library that does not work on streams of the engine's context.
        let reason = reason_inside(&refuse, rank);
        assert!(reason.contains("rank 0: ncclReduceScatter of "), "{reason}");
    }
    // The other group's library works.
    for ran in [&differ, &fail, &refuse] {
        assert!(ran.called("ncclReduceScatter") > 4, "more than to try it: {:?}", ran.calls);
    }
    let off = ranks(&[0, 1, 0, 1], "refused", |rank, run| {
        run.env("HETCCL_GROUP_LIBRARY", if rank == 1 { "off" } else { "auto" });
    });
    assert!(off.words(0).contains("rank 1 has another HETCCL_GROUP_LIBRARY"), "{}", off.words(0));
}

#[test]
fn libraries_of_no_use_are_refused_with_the_reason() {
    let Setting { folder, libraries, .. } = setting();
    let old = vendor_library(folder, 0, "old", &["-DVERSION=21200"]);
    let new = vendor_library(folder, 0, "new", &["-DVERSION=23300"]);
    let less = vendor_library(folder, 0, "less", &["-DVERSION=22803", "-DWITHOUT_ALLGATHER"]);
    let other = vendor_library(folder, 0, "other", &["-DVERSION=23003"]);
    let copy = folder.join("a-copy-of-hetccl.so");
    std::fs::copy(libraries.join("libnccl.so"), &copy).expect("the folder is writable");
    for (file, words) in [
        (&old, "is version 2.12.0, older than 2.13.0"),
        (&new, "newer than 2.32"),
        (&less, "has no ncclAllGather"),
        (&libraries.join("libnccl.so.2"), "is hetccl's own library"),
        (&copy, "is hetccl's own library"),
        (&other, "rank 0 has version 2.28.3 and rank 1 2.30.3"),
    ] {
        let ran = ranks(&[0, 0], "refused", |rank, run| {
            run.env("HETCCL_DELEGATE", "1");
            if rank == 1 {
                run.env("HETCCL_NCCL_LIBRARY", file);
            }
        });
        let told = ran.words(0);
        assert!(
            told.contains(words) && told.contains("HETCCL_DELEGATE"),
            "{}: {told}",
            file.display()
        );
    }
}

#[test]
fn weights_count_in_averages_to_the_bit() {
    // The sums are powers of two, so that float16's shares are exact.
    for (vendors, weights) in [
        (vec![0, 0, 0], ["1.5", "2.5", "4"]),
        (vec![0, 1, 0], ["1", "2", "5"]),
        (vec![1, 1, 1], ["0", "1", "3"]),
    ] {
        let expected = format!("weighted {}", weights.join(" "));
        let ran = ranks(&vendors, &expected, |rank, run| {
            run.env("HETCCL_RANK_WEIGHT", weights[rank]).env("HETCCL_GROUP_LIBRARY", "on");
        });
        let held = ran.words(0).lines().filter(|line| line.starts_with("ok weighted")).count();
        assert_eq!(held, if weights[0] == "1.5" { 8 } else { 12 }, "{}", ran.words(0));
        // It does not know weights; a vendor group's gets what has been scaled.
        assert_eq!(ran.called("ncclAllReduce"), 0, "{:?}", ran.calls);
        let is_mixed = vendors.contains(&0) && vendors.contains(&1);
        assert_eq!(ran.calls.is_empty(), !is_mixed, "{:?}", ran.calls);
    }
}

#[test]
fn weights_that_can_not_be_are_told_to_every_rank() {
    for (weight, words) in [
        ("many", "HETCCL_RANK_WEIGHT of rank 1 is not a number"),
        ("nan", "HETCCL_RANK_WEIGHT of rank 1 is not a number"),
        ("-2", "HETCCL_RANK_WEIGHT of rank 1 is -2"),
        ("0", "HETCCL_RANK_WEIGHT is 0 on all 2 ranks"),
    ] {
        let ran = ranks(&[0, 0], "refused", |rank, run| {
            run.env("HETCCL_RANK_WEIGHT", if rank == 1 { weight } else { "0" });
        });
        for rank in [0, 1] {
            let told =
                String::from_utf8_lossy(&ran.outputs[rank].stderr).into_owned() + &ran.words(rank);
            assert!(told.contains(words) || rank == 1, "{weight}: {told}");
        }
    }
}

#[test]
fn settings_are_followed_or_named_as_ignored() {
    let folder = &setting().folder;
    let file = folder.join("nccl.conf");
    std::fs::write(&file, "NCCL_DEBUG = INFO # all\nNCCL_NVLS_ENABLE=1\n")
        .expect("the folder is writable");
    let log = |rank: usize| folder.join(format!("debug.{}.{rank}", std::process::id()));
    for rank in [0, 1] {
        let _ = std::fs::remove_file(log(rank));
    }
    ranks(&[0, 0], "own", |rank, run| {
        run.env("NCCL_CONF_FILE", &file).env_remove("NCCL_DEBUG").env("NCCL_DEBUG_FILE", log(rank));
        run.env("NCCL_ALGO", "Ring").env("HETCCL_DELEGATE", "0");
    });
    let told = [0, 1].map(|rank| std::fs::read_to_string(log(rank)).unwrap_or_default());
    for text in &told {
        assert!(text.contains("NCCL INFO rank") && text.contains("init took"), "{text}");
    }
    let ignored: Vec<&str> =
        told.iter().flat_map(|text| text.lines()).filter(|line| line.contains("ignored")).collect();
    // Rank 0's, and that of the rank that is rank 0 of the other part.
    assert!(ignored.len() <= 2 && !ignored.is_empty(), "{ignored:?}");
    assert!(
        ignored.iter().all(|line| line.ends_with("ignored by hetccl: NCCL_ALGO, NCCL_NVLS_ENABLE")),
        "{ignored:?}"
    );
}
