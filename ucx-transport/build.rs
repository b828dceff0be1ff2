//! Makes Rust declarations of UCP's types, constants and functions from the installed headers.
//!
//! The functions become a table that is filled at run time: nothing is linked. Headers outside the compiler's search
//! path are found through pkg-config (`ucx`) or `HETCCL_UCX_INCLUDE`, the folder that holds `ucp/api/ucp.h`.

use std::env;
use std::path::{Path, PathBuf};

const HEADER: &str = "ucp/api/ucp.h";

fn main() {
    println!("cargo::rerun-if-env-changed=HETCCL_UCX_INCLUDE");
    println!("cargo::rerun-if-changed=build.rs");
    let Some(include) = find_include() else {
        eprintln!(
            "{HEADER} of UCX 1.13 or later was not found: install UCX's development headers (Debian and Ubuntu: \
             libucx-dev; Fedora and RHEL: ucx-devel) or name their folder in HETCCL_UCX_INCLUDE"
        );
        std::process::exit(1);
    };
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR")).join("ucp.rs");
    let bindings = bindgen::Builder::default()
        .header_contents("ucp.h", &format!("#include <{HEADER}>\n"))
        .clang_arg(format!("-I{}", include.display()))
        .allowlist_type("ucp_.*|ucs_status_t|ucs_memory_type.*|ucs_thread_mode_t")
        .allowlist_var("UC[PS]_.*")
        .allowlist_function(FUNCTIONS.join("|"))
        .dynamic_library_name("Api")
        .dynamic_link_require_all(true)
        .default_enum_style(bindgen::EnumVariation::Consts)
        .prepend_enum_name(false)
        .derive_default(true)
        .generate_comments(false)
        .parse_callbacks(Box::new(bindgen::CargoCallbacks::new()))
        .generate();
    let written = bindings
        .map_err(|error| error.to_string())
        .and_then(|bindings| bindings.write_to_file(&out).map_err(|error| error.to_string()));
    if let Err(error) = written {
        eprintln!(
            "{HEADER} in {} could not be read: {error}. bindgen needs libclang (Debian: libclang-dev)",
            include.display()
        );
        std::process::exit(1);
    }
}

/// What is called; all of it is in UCX 1.13.
const FUNCTIONS: &[&str] = &[
    "ucp_cleanup",
    "ucp_config_modify",
    "ucp_config_read",
    "ucp_config_release",
    "ucp_context_query",
    "ucp_ep_close_nbx",
    "ucp_ep_create",
    "ucp_ep_flush_nbx",
    "ucp_ep_rkey_unpack",
    "ucp_get_nbx",
    "ucp_get_version",
    "ucp_init_version",
    "ucp_mem_map",
    "ucp_mem_unmap",
    "ucp_put_nbx",
    "ucp_request_cancel",
    "ucp_request_check_status",
    "ucp_request_free",
    "ucp_rkey_buffer_release",
    "ucp_rkey_destroy",
    "ucp_rkey_pack",
    "ucp_tag_recv_nbx",
    "ucp_tag_send_nbx",
    "ucp_worker_create",
    "ucp_worker_destroy",
    "ucp_worker_get_address",
    "ucp_worker_progress",
    "ucp_worker_query",
    "ucp_worker_release_address",
    "ucs_status_string",
];

/// The folder that holds the header: as named, as pkg-config says, or where distributions put it.
fn find_include() -> Option<PathBuf> {
    let holds = |folder: &Path| folder.join(HEADER).is_file();
    if let Some(named) = env::var_os("HETCCL_UCX_INCLUDE").map(PathBuf::from) {
        return holds(&named).then_some(named);
    }
    let known = pkg_config::Config::new().cargo_metadata(false).probe("ucx").ok();
    let known = known.into_iter().flat_map(|library| library.include_paths);
    known
        .chain(["/usr/include", "/usr/local/include"].map(PathBuf::from))
        .find(|folder| holds(folder))
}
