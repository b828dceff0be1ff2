//! Finds Open MPI's development headers, compiles the glue against them and generates the bindings.

use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=src/glue.c");
    println!("cargo::rerun-if-changed=src/glue.h");
    println!("cargo::rerun-if-env-changed=HETCCL_MPICC");
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let mpi = OpenMpi::find();
    let includes = include_dirs(&mpi, &out);
    compile_glue(&includes);
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

/// The wrapper's folders, the one with the internal headers, and one for a header that packages forget.
fn include_dirs(mpi: &OpenMpi, out: &Path) -> Vec<PathBuf> {
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
    check_abi(&internal);
    let stand_in = out.join("stand-in");
    let missing = stand_in.join("ompi/mpi/fortran/base");
    std::fs::create_dir_all(&missing).expect("OUT_DIR can be written");
    // op.h includes it for this conversion; MPI_Fint is as wide as int wherever Open MPI runs in practice, and the
    // cast is right where it is not.
    let conversion = "#define OMPI_INT_2_FINT(a) ((MPI_Fint) (a))\n";
    std::fs::write(missing.join("fint_2_int.h"), conversion).expect("OUT_DIR can be written");
    let mut dirs = vec![internal];
    dirs.extend(mpi.include_dirs.iter().map(PathBuf::from));
    dirs.push(stand_in);
    dirs
}

/// The coll interface's version decides which module layout is compiled: only 2.3.0 (Open MPI 4.1) is known so far.
fn check_abi(internal: &Path) {
    let header = std::fs::read_to_string(internal.join("ompi/mca/coll/coll.h")).unwrap_or_default();
    println!("cargo::rustc-check-cfg=cfg(coll_2_3_0)");
    if header.contains("mca_coll_base_module_2_3_0_t") {
        println!("cargo::rustc-cfg=coll_2_3_0");
    } else {
        fail(
            "this Open MPI's coll interface is not 2.3.0: hetccl builds against Open MPI 4.1 so far",
        );
    }
}

fn compile_glue(includes: &[PathBuf]) {
    cc::Build::new()
        .file("src/glue.c")
        .includes(includes)
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
