//! Finds Open MPI's development headers, compiles the glue against them and generates the bindings.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Headers that packages forget.
const STAND_IN: &str = "stand-in";

fn main() {
    println!("cargo::rerun-if-changed=src/glue.c");
    println!("cargo::rerun-if-changed=src/glue.h");
    println!("cargo::rerun-if-changed=src/line");
    println!("cargo::rerun-if-changed={STAND_IN}");
    println!("cargo::rerun-if-env-changed=HETCCL_MPICC");
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let mpi = OpenMpi::find();
    let (includes, line) = include_dirs(&mpi, &out);
    compile_glue(&includes, line);
    generate_bindings(&includes, &out);
    for dir in &mpi.library_dirs {
        println!("cargo::rustc-link-search=native={dir}");
    }
    println!("cargo::rustc-link-lib=dylib=mpi");
    println!("cargo::rustc-link-lib=dylib=open-pal");
    println!("cargo::metadata=mpicc={}", mpi.compiler);
}

/// What the compiler wrapper says of the installation.
struct OpenMpi {
    compiler: String,
    include_dirs: Vec<String>,
    library_dirs: Vec<String>,
}

impl OpenMpi {
    fn find() -> OpenMpi {
        let wanted = std::env::var("HETCCL_MPICC").ok();
        let candidates = match &wanted {
            Some(one) => vec![one.as_str()],
            None => vec!["mpicc.openmpi", "mpicc"],
        };
        for compiler in &candidates {
            let ask = |what: &str| {
                let output =
                    Command::new(compiler).arg(format!("--showme:{what}")).output().ok()?;
                output.status.success().then(|| {
                    let text = String::from_utf8_lossy(&output.stdout).into_owned();
                    text.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
                })
            };
            if let (Some(include_dirs), Some(library_dirs)) = (ask("incdirs"), ask("libdirs")) {
                let compiler = (*compiler).to_owned();
                return OpenMpi { compiler, include_dirs, library_dirs };
            }
        }
        fail(&format!(
            "no Open MPI compiler wrapper among {}. Install Open MPI with its development headers \
             (Debian: openmpi-bin libopenmpi-dev), or set HETCCL_MPICC to the wrapper",
            candidates.join(", ")
        ))
    }
}

/// The wrapper's folders, the one with the internal headers, PMIx's, and one for headers that packages forget; and which line
/// of Open MPI it is.
fn include_dirs(mpi: &OpenMpi, out: &Path) -> (Vec<PathBuf>, &'static Line) {
    let internal = mpi
        .include_dirs
        .iter()
        .flat_map(|dir| [PathBuf::from(dir), Path::new(dir).join("openmpi")])
        .find(|dir| dir.join("ompi/mca/coll/coll.h").is_file());
    let Some(internal) = internal else {
        fail(&format!(
            "Open MPI's internal headers (ompi/mca/coll/coll.h) are not in {}. Debian has them in \
             libopenmpi-dev; elsewhere Open MPI is to be configured --with-devel-headers",
            mpi.include_dirs.join(", ")
        ))
    };
    let line = Line::of(&internal);
    write_description(&internal, line, out);
    let mut dirs = vec![internal];
    dirs.extend(mpi.include_dirs.iter().map(PathBuf::from));
    dirs.extend(pmix_include_dirs());
    // Last: what the installation has goes first.
    dirs.push(PathBuf::from(STAND_IN));
    (dirs, line)
}

/// Open MPI 5 uses PMIx's own headers, which packages put where only pkg-config knows.
fn pmix_include_dirs() -> Vec<PathBuf> {
    let Ok(output) = Command::new("pkg-config").args(["--cflags-only-I", "pmix"]).output() else {
        return Vec::new();
    };
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.split_whitespace().filter_map(|word| word.strip_prefix("-I")).map(PathBuf::from).collect()
}

/// A line of Open MPI, by its coll interface: what is compiled for it is in `src/line`.
struct Line {
    /// As in the names of its types.
    interface: &'static str,
    open_mpi: &'static str,
}

/// The lines that hetccl is built for. Another one is an entry here, a header of that name in `src/line`, and what differs
/// in Rust under `cfg(coll_...)` in this crate; ARCHITECTURE.md says what 6.0 needs.
const LINES: [Line; 2] =
    [Line { interface: "2_3_0", open_mpi: "4.1" }, Line { interface: "2_4_0", open_mpi: "5.0" }];

impl Line {
    /// The line whose headers these are.
    fn of(internal: &Path) -> &'static Line {
        let path = internal.join("ompi/mca/coll/coll.h");
        let header = std::fs::read_to_string(&path).unwrap_or_default();
        for line in &LINES {
            println!("cargo::rustc-check-cfg=cfg(coll_{})", line.interface);
        }
        let found = LINES.iter().find(|line| {
            header.contains(&format!("struct mca_coll_base_module_{}_t {{", line.interface))
        });
        let Some(line) = found else {
            let known: Vec<String> = LINES
                .iter()
                .map(|line| {
                    format!("{} (Open MPI {})", line.interface.replace('_', "."), line.open_mpi)
                })
                .collect();
            fail(&format!(
                "the coll interface in {} is {}: hetccl is built for {} so far",
                path.display(),
                interface_in(&header).unwrap_or_else(|| "unknown".to_owned()),
                known.join(" and ")
            ))
        };
        println!("cargo::rustc-cfg=coll_{}", line.interface);
        line
    }

    fn header(&self) -> String {
        format!("line/coll_{}.h", self.interface)
    }
}

/// The version of the coll interface that a header defines.
fn interface_in(header: &str) -> Option<String> {
    let rest = header.split("struct mca_coll_base_module_").nth(1)?;
    rest.split("_t").next().map(|version| version.replace('_', "."))
}

/// What the component's description says of the coll interface: the arguments of the header's own macro.
fn write_description(internal: &Path, line: &Line, out: &Path) {
    let header = std::fs::read_to_string(internal.join("ompi/mca/coll/coll.h")).unwrap_or_default();
    let numbers: Option<Vec<u32>> = header
        .split("BASE_VERSION_2_1_0(\"coll\",")
        .nth(1)
        .and_then(|rest| rest.split(')').next())
        .map(|list| list.split(',').filter_map(|number| number.trim().parse().ok()).collect());
    let Some([major, minor, release]) = numbers.as_deref() else {
        fail("coll.h does not say which version of the coll interface a component has to name")
    };
    let text = format!(
        "/// The coll interface that components name, as Open MPI's headers have it.\n\
         pub const COLL_VERSION: [i32; 3] = [{major}, {minor}, {release}];\n\
         /// The coll interface whose types these bindings are.\n\
         pub const COLL_INTERFACE: &str = \"{}\";\n\
         /// The line of Open MPI that has it.\n\
         pub const OPEN_MPI_LINE: &str = \"{}\";\n",
        line.interface.replace('_', "."),
        line.open_mpi
    );
    std::fs::write(out.join("line.rs"), text).expect("OUT_DIR can be written");
}

fn compile_glue(includes: &[PathBuf], line: &Line) {
    cc::Build::new()
        .file("src/glue.c")
        .includes(includes)
        .define("HETCCL_LINE_HEADER", format!("\"{}\"", line.header()).as_str())
        .flag_if_supported("-std=gnu11")
        .flag_if_supported("-Wno-unused-parameter")
        .compile("hetccl_mca_glue");
}

fn generate_bindings(includes: &[PathBuf], out: &Path) {
    bindgen::Builder::default()
        .header("src/glue.h")
        .clang_args(includes.iter().map(|dir| format!("-I{}", dir.display())))
        .allowlist_function("hetccl_.*")
        .allowlist_type("hetccl_.*|mca_coll_base_component_t|mca_coll_base_module_t|ompi_request_t")
        .allowlist_var("HETCCL_.*|MPI_ERR_.*|MPI_SUCCESS|OMPI_(SUCCESS|ERR.*)|OMPI_(MAJOR|MINOR|RELEASE)_VERSION|MCA_BASE_.*")
        .opaque_type("ompi_communicator_t|ompi_datatype_t|ompi_op_t|ompi_info_t|ompi_file_t|ompi_win_t")
        .layout_tests(true)
        .merge_extern_blocks(true)
        .generate()
        .unwrap_or_else(|error| {
            fail(&format!(
                "bindgen could not read Open MPI's headers ({error}). It needs libclang (Debian: libclang-dev)"
            ))
        })
        .write_to_file(out.join("bindings.rs"))
        .expect("OUT_DIR can be written");
}

/// Ends the build with one sentence instead of a backtrace.
fn fail(message: &str) -> ! {
    println!("cargo::error={message}");
    std::process::exit(1)
}
