//! Collectives on device buffers, on emulated CUDA, ROCm and Level Zero devices, whose memory the product must not touch: a stray
//! access ends the process and is counted.

use std::path::PathBuf;
use std::process::Output;
use std::time::Duration;

use hetccl_tests::{emulation, prefix, program};
use xtask::mpi::{self, Library};
use xtask::{command, emulate, ucx_cuda};

const LIMIT: Duration = Duration::from_secs(120);

/// Blocks of no elements, of a few, and of so many that the collective stays in device memory.
const COUNTS: [&str; 3] = ["0", "5", "40000"];

/// Where the emulation counts what the product must not do.
fn faults() -> PathBuf {
    command::target_dir().join("emulator/faults")
}

/// A run of `tests/c/device.c`.
struct Case<'a> {
    ranks: usize,
    /// Kinds of memory of inputs and outputs, one per rank in turn.
    memory: (&'a str, &'a str),
    mode: &'a str,
    transport: &'a str,
    parameters: &'a [&'a str],
    environment: &'a [(&'a str, &'a str)],
    /// The driver that each rank has, or `host` for none; empty: all ranks have all drivers.
    vendors: &'a [&'a str],
}

impl Default for Case<'_> {
    fn default() -> Self {
        Case {
            ranks: 2,
            memory: ("cuda", "cuda"),
            mode: "blocking",
            transport: "ucx",
            parameters: &[],
            environment: &[],
            vendors: &[],
        }
    }
}

impl Case<'_> {
    fn output(&self, program: &str, arguments: &[&str]) -> Option<Output> {
        let prefix = prefix("device buffers")?;
        let emulation = emulation();
        let program = self::program(program);
        let library = Library::Hetccl { prefix, transport: self.transport };
        let mut command = mpi::mpirun(library, self.ranks, LIMIT);
        for pair in self.parameters.chunks(2) {
            command.arg("--mca").args(pair);
        }
        let _ = std::fs::remove_file(faults());
        command
            .env("LD_LIBRARY_PATH", emulate::library_path(&emulation.drivers))
            .env("HETCCL_EMULATOR_KERNELS", &emulation.kernels)
            .env("HETCCL_EMULATOR_FAULTS", faults())
            .envs(self.environment.iter().copied());
        if !self.vendors.is_empty() {
            emulate::by_vendor(&mut command, self.vendors);
        }
        command.arg(program).args(arguments);
        Some(command::output(&mut command).unwrap_or_else(|error| panic!("{error:#}")))
    }

    /// Every collective and variant of the program; how many checks held.
    fn check(&self) -> usize {
        let mut arguments = vec![self.memory.0, self.memory.1, self.mode];
        arguments.extend(COUNTS);
        let Some(output) = self.output("device", &arguments) else { return 0 };
        let what = format!("{} ranks, {:?}, {}", self.ranks, self.memory, self.mode);
        assert!(output.status.success(), "{what}\n{}", command::tail(&output));
        let faults = std::fs::read_to_string(faults()).unwrap_or_default();
        assert_eq!(faults.lines().count(), 0, "{what}: device memory was touched\n{faults}");
        let text = String::from_utf8_lossy(&output.stdout);
        let held = text.lines().filter(|line| line.starts_with("ok ")).count();
        assert!(held > 90, "{what}: only {held} checks\n{text}");
        held
    }
}

fn all_modes(memory: (&str, &str), ranks: &[usize]) {
    let mut held = 0;
    for &ranks in ranks {
        for mode in ["blocking", "nonblocking", "persistent"] {
            held += Case { ranks, memory, mode, ..Case::default() }.check();
        }
    }
    println!("device buffers in {memory:?} on {ranks:?} ranks: {held} checks held");
}

/// 1 to 5 ranks, each with the next of the modes: what differs between drivers does not depend on the mode.
fn modes_in_turn(memory: (&str, &str), modes: &[&str]) {
    let jobs = (1..=5).zip(modes.iter().cycle());
    let held: usize =
        jobs.map(|(ranks, mode)| Case { ranks, memory, mode, ..Case::default() }.check()).sum();
    println!("device buffers in {memory:?} on 1 to 5 ranks: {held} checks held");
}

/// Settings of the emulated drivers that leave one of them its device.
fn only(vendor: &str) -> Vec<(&'static str, &'static str)> {
    let mut settings = vec![
        ("HETCCL_EMULATOR_CUDA_DEVICES", "0"),
        ("HETCCL_EMULATOR_HIP_DEVICES", "0"),
        ("HETCCL_EMULATOR_LEVEL_ZERO_DEVICES", "0"),
    ];
    settings.retain(|(name, _)| !name.contains(vendor));
    settings
}

#[test]
fn cuda() {
    all_modes(("cuda", "cuda"), &[1, 2, 3, 4, 5]);
}

#[test]
fn rocm() {
    modes_in_turn(("rocm", "rocm"), &["blocking", "nonblocking", "persistent"]);
}

#[test]
fn level_zero() {
    modes_in_turn(("level-zero", "level-zero"), &["persistent", "nonblocking", "blocking"]);
}

#[test]
fn each_rank_with_other_memory() {
    let all = "cuda,rocm,level-zero,host";
    modes_in_turn((all, all), &["persistent", "blocking", "nonblocking"]);
    all_modes(("host,cuda,level-zero", "rocm,level-zero,cuda"), &[3]);
}

/// What is device memory to the program and is not, or can't be shared between processes.
#[test]
fn special_memory() {
    for memory in [
        ("cuda-managed", "cuda-pool"),
        ("cuda-pool,cuda-pinned", "cuda-managed,cuda"),
        ("cuda-virtual", "cuda,cuda-virtual"),
        ("cuda-opened", "cuda,cuda-opened,cuda-opened"),
        ("rocm-managed,rocm", "rocm,rocm-managed"),
        ("level-zero-shared,level-zero-host", "level-zero-host,level-zero,level-zero-shared"),
    ] {
        Case { ranks: 3, memory, ..Case::default() }.check();
    }
}

/// One vendor's driver alone: all ranks have the same one device, so rank 0 works for all.
#[test]
fn one_device() {
    let alone = only("CUDA");
    for (ranks, mode) in [(2, "nonblocking"), (4, "blocking"), (5, "persistent")] {
        Case { ranks, mode, environment: &alone, ..Case::default() }.check();
        let memory = ("cuda", "cuda,host");
        Case { ranks, mode, memory, environment: &alone, ..Case::default() }.check();
    }
    // Memory that only its own process can pass on.
    let memory = ("cuda-opened,cuda", "cuda");
    Case { ranks: 3, memory, environment: &alone, ..Case::default() }.check();
    for (vendor, memory) in [("HIP", "rocm"), ("LEVEL_ZERO", "level-zero")] {
        let memory = (memory, memory);
        Case { ranks: 3, memory, environment: &only(vendor), ..Case::default() }.check();
    }
}

/// Ranks that see one vendor's device each, or none: collectives go by groups, whatever their size.
#[test]
fn vendor_groups() {
    let on = ["coll_hetccl_hierarchy", "on"];
    for (memory, mode, transport) in [
        ("cuda,rocm", "blocking", "ucx"),
        ("cuda,cuda,rocm", "persistent", "pml"),
        ("cuda,cuda,cuda,rocm,rocm", "nonblocking", "ucx"),
        ("cuda,rocm,host,cuda,rocm,host", "blocking", "ucx"),
    ] {
        let vendors: Vec<&str> = memory.split(',').collect();
        let case = Case {
            ranks: vendors.len(),
            memory: (memory, memory),
            mode,
            transport,
            parameters: &on,
            vendors: &vendors,
            ..Case::default()
        };
        let held = case.check();
        println!("groups of {memory}, {mode}: {held} checks held");
    }
    // All operations and datatypes, user functions that do not commute among them; bits that differ between ranks.
    let vendors = ["cuda", "rocm", "host", "cuda", "rocm", "cuda"];
    for program in ["operations", "groups_agree"] {
        let case =
            Case { ranks: vendors.len(), parameters: &on, vendors: &vendors, ..Case::default() };
        let Some(output) = case.output(program, &[]) else { return };
        assert!(output.status.success(), "{program}\n{}", command::tail(&output));
        let text = String::from_utf8_lossy(&output.stdout);
        let held = text.lines().filter(|line| line.starts_with("ok ")).count();
        assert!(held > 10, "{program}: only {held} checks\n{text}");
    }
}

/// Without a demand the cost model decides: groups where they pay, and never where they are forbidden.
#[test]
fn groups_are_chosen_where_they_pay() {
    let vendors = ["cuda", "cuda", "rocm", "host"];
    let told = |hierarchy| {
        // The buffers are the host's: they would go through shared memory.
        let parameters = [
            ["coll_hetccl_hierarchy", hierarchy],
            ["coll_hetccl_shared_memory", "off"],
            ["coll_hetccl_verbose", "2"],
        ];
        let parameters = parameters.concat();
        let case = Case { ranks: 4, parameters: &parameters, vendors: &vendors, ..Case::default() };
        let output = case.output("demo", &["3"])?;
        assert!(output.status.success(), "{hierarchy}\n{}", command::tail(&output));
        Some(String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (Some(auto), Some(off)) = (told("auto"), told("off")) else { return };
    assert!(auto.contains("allreduce algorithm=hetero path=ucx bytes=1048576"), "{auto}");
    assert!(auto.contains("allreduce algorithm=recursive_doubling path=ucx bytes=64"), "{auto}");
    assert!(!off.contains("algorithm=hetero"), "{off}");
}

#[test]
fn staging_and_the_other_wire() {
    let staging = ["coll_hetccl_gpu_path", "staging"];
    for (ranks, memory) in [(2, ("cuda", "cuda")), (3, ("cuda,host", "rocm,level-zero"))] {
        Case { ranks, memory, parameters: &staging, ..Case::default() }.check();
        Case { ranks, memory, transport: "pml", ..Case::default() }.check();
    }
    // Between hosts there is no memory that two ranks share.
    let no_rings = ["coll_hetccl_gpu_ring_bytes", "0"];
    let memory = ("cuda,rocm", "rocm,cuda");
    Case { ranks: 3, memory, parameters: &no_rings, ..Case::default() }.check();
    // Small pieces and headers on nearly everything.
    let parameters = [
        "coll_hetccl_gpu_long_bytes",
        "64",
        "coll_hetccl_gpu_staging_bytes",
        "4096",
        "coll_hetccl_gpu_resident_bytes",
        "0",
        "coll_hetccl_gpu_chunk_bytes",
        "4096",
        "coll_hetccl_gpu_ring_bytes",
        "4096",
    ];
    let memory = ("cuda,host,level-zero", "cuda,rocm,level-zero");
    Case { ranks: 3, memory, parameters: &parameters, ..Case::default() }.check();
}

/// A UCX with modules for CUDA memory takes device buffers as they are; rank 0 says so, and says why not where it can't.
#[test]
fn ucx_with_and_without_modules_for_device_memory() {
    let parameters = [
        "coll_hetccl_gpu_path",
        "ucx",
        "coll_hetccl_gpu_resident_bytes",
        "0",
        "coll_hetccl_verbose",
        "1",
    ];
    let path = |environment: &[(&str, &str)], memory| {
        let case =
            Case { ranks: 3, memory, parameters: &parameters, environment, ..Case::default() };
        case.check();
        let output = case.output("device", &[memory.0, memory.1, "blocking", "100"]);
        output.map(|output| String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let alone = only("CUDA");
    let Some(told) = path(&alone, ("cuda", "cuda")) else { return };
    assert!(told.contains("not by UCX: UCX has no module for CUDA memory"), "{told}");

    let folder = ucx_cuda::library_folder().unwrap_or_else(|error| panic!("{error:#}"));
    let library = ("HETCCL_UCX_LIB", folder.to_str().unwrap());
    // Open MPI 5 brings its UCX into the process before hetccl is there, so all of the program takes this one.
    let first = format!("{}:{}", library.1, emulate::library_path(&emulation().drivers));
    let open_mpi_5 = mpi::version().is_some_and(|(major, _)| major >= 5);
    let other_ucx: &[(&str, &str)] =
        if open_mpi_5 { &[library, ("LD_LIBRARY_PATH", &first)] } else { &[library] };
    let with_modules = [&alone[..], other_ucx].concat();
    for memory in [("cuda", "cuda"), ("cuda,host", "host,cuda")] {
        let told = path(&with_modules, memory).unwrap_or_default();
        assert!(told.contains("by UCX, which reaches the device memory of every rank"), "{told}");
    }
    let told = path(other_ucx, ("cuda,rocm", "cuda,rocm")).unwrap_or_default();
    assert!(told.contains("not by UCX: UCX has no module for ROCm memory"), "{told}");
}

#[test]
fn without_gpus_device_buffers_are_not_looked_for() {
    let parameters = ["coll_hetccl_gpus", "none"];
    let memory = ("host", "host");
    Case { ranks: 2, memory, parameters: &parameters, ..Case::default() }.check();
}

/// The program checks that every rank gets an error; the driver's words and the rank must be told.
fn trouble(case: &Case<'_>, argument: &str, words: &[&str]) {
    let Some(output) = case.output("device_errors", &[case.memory.0, argument]) else { return };
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{argument}\n{}", command::tail(&output));
    for word in words {
        assert!(told.contains(word), "{word:?} is not told:\n{told}");
    }
}

#[test]
fn a_freed_buffer_is_an_error_that_says_so() {
    for memory in ["cuda", "level-zero"] {
        let case = Case { memory: (memory, memory), ..Case::default() };
        trouble(&case, "freed", &["is not device memory", "freed"]);
    }
}

#[test]
fn a_failed_launch_is_an_error_on_every_rank() {
    let launches = [
        ("CUDA", "cuda", "cuLaunchKernel:1:719", ["cuLaunchKernel", "CUDA_ERROR_LAUNCH_FAILED"]),
        (
            "LEVEL_ZERO",
            "level-zero",
            "zeCommandListAppendLaunchKernel:1:1879048193",
            ["zeCommandListAppendLaunchKernel", "ZE_RESULT_ERROR_DEVICE_LOST"],
        ),
    ];
    for (vendor, memory, failure, [function, name]) in launches {
        let mut environment = only(vendor);
        environment.push(("HETCCL_EMULATOR_FAIL", failure));
        let memory = (memory, memory);
        let case = Case { ranks: 3, memory, environment: &environment, ..Case::default() };
        trouble(&case, "failing", &[function, name, "allreduce", "rank 0"]);
    }
}

#[test]
fn a_device_without_kernels_has_its_reductions_done_in_host_memory() {
    // Each entry fails one compilation; the program has fewer operations and types.
    let failures = ["zeModuleCreate:1:1879048196"; 12].join(",");
    let memory = ("level-zero", "level-zero,host");
    for mut environment in [Vec::new(), only("LEVEL_ZERO")] {
        environment.push(("HETCCL_EMULATOR_FAIL", failures.as_str()));
        Case { ranks: 3, memory, environment: &environment, ..Case::default() }.check();
    }
}

#[test]
fn a_full_device_is_no_obstacle() {
    // Scratch memory on the device is refused, so copies in host memory serve.
    let environment = [("HETCCL_EMULATOR_MEMORY_BYTES", "2200000")];
    let parameters = ["coll_hetccl_pinned_keep_bytes", "0"];
    let memory = ("cuda", "cuda");
    let case = Case { ranks: 3, memory, environment: &environment, ..Case::default() };
    Case { parameters: &parameters, ..case }.check();
}

#[test]
fn doctor_tells_of_devices_and_of_their_absence() {
    let Some(prefix) = prefix("hetccl doctor") else { return };
    let ask = |libraries: Option<String>| {
        let mut doctor = std::process::Command::new(prefix.join("bin/hetccl"));
        doctor.args(["doctor", "--json"]).env_remove("LD_LIBRARY_PATH");
        doctor.envs(libraries.map(|path| ("LD_LIBRARY_PATH", path)));
        let text = command::capture(&mut doctor).unwrap_or_else(|error| panic!("{error:#}"));
        serde_json::from_str::<serde_json::Value>(&text).unwrap()
    };
    let emulated = ask(Some(emulate::library_path(&emulation().drivers)));
    let vendors: Vec<_> =
        emulated["devices"].as_array().unwrap().iter().map(|d| d["vendor"].clone()).collect();
    assert_eq!(vendors, ["CUDA", "ROCm", "Level Zero"]);
    assert!(emulated["paths"].as_array().unwrap().iter().any(|path| path["yes"] == true));
    let plain = ask(None);
    for driver in plain["drivers"].as_array().unwrap() {
        if driver["found"] == false {
            let why = driver["detail"].as_str().unwrap();
            let reasons = ["could not be loaded", "no device"];
            assert!(reasons.iter().any(|reason| why.contains(reason)), "{why}");
        }
    }
}
