//! Libraries for GPUs that are installed here, and why they can't be used where they can't: UCX's modules for device memory,
//! and the vendors' own collective libraries.

use std::path::{Path, PathBuf};

use hetccl_runtime::gpu::Vendor;
use hetccl_runtime::{Ucx, libraries_in_use};

use super::{DriverReport, Line};

/// What a vendor's libraries are called: its word in the names of UCX's modules, and its collective library.
struct Names {
    vendor: &'static str,
    module: &'static str,
    collective: Option<(&'static str, &'static str)>,
}

const NAMES: [Names; 3] = [
    Names { vendor: "CUDA", module: "cuda", collective: Some(("NCCL", "libnccl.so.2")) },
    Names { vendor: "ROCm", module: "rocm", collective: Some(("RCCL", "librccl.so.1")) },
    Names { vendor: "Level Zero", module: "ze", collective: None },
];

/// Where libraries usually are, beside the folders of those that this process uses.
const FOLDERS: [&str; 7] = [
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/usr/lib",
    "/usr/local/lib",
    "/usr/local/cuda/lib64",
    "/opt/rocm/lib",
];

/// A line for each of UCX's modules for device memory and each collective library that is installed.
pub(super) fn examine(drivers: &[DriverReport], ucx: &Result<Ucx, String>) -> Vec<Line> {
    let in_use = libraries_in_use();
    let mut lines = Vec::new();
    for names in &NAMES {
        let driver = drivers.iter().find(|driver| driver.vendor == names.vendor);
        let trouble = driver.filter(|driver| !driver.found).map(|driver| driver.detail.as_str());
        if let Some(module) = module(&in_use, names.module) {
            lines.push(module_line(names, &module, trouble, ucx));
        }
        let collective =
            names.collective.and_then(|(name, file)| Some((name, find(&in_use, file)?)));
        if let Some((name, library)) = collective {
            let what = format!("{name}: {}", library.display());
            lines.push(match trouble {
                Some(trouble) => Line::no(what, format!("{}: {trouble}", no_driver(names))),
                None => Line::yes(what, "installed, and its driver works"),
            });
        }
    }
    lines
}

fn module_line(
    names: &Names,
    module: &Path,
    trouble: Option<&str>,
    ucx: &Result<Ucx, String>,
) -> Line {
    let what = format!("UCX's {} modules: {}", names.vendor, module.display());
    let memory =
        Vendor::ALL.iter().find(|vendor| vendor.name() == names.vendor).map(|v| v.memory());
    match (ucx, memory, trouble) {
        (Err(_), ..) => Line::no(what, "UCX can't be used"),
        (Ok(ucx), Some(memory), _) if ucx.reaches.contains(&memory) => {
            Line::yes(what, format!("UCX reaches {}", memory.name()))
        }
        (_, _, Some(trouble)) => {
            Line::no(what, format!("they find no device, {}: {trouble}", no_driver(names)))
        }
        _ => Line::no(what, "this UCX does not take them, or they find no device"),
    }
}

fn no_driver(names: &Names) -> String {
    format!("the {} driver can't be used", names.vendor)
}

/// UCX's transport module of a vendor. They lie in a folder `ucx` beside UCX's libraries.
fn module(in_use: &[PathBuf], word: &str) -> Option<PathBuf> {
    let core = in_use.iter().find(|path| file_name(path).starts_with("libucp"))?;
    let stem = format!("libuct_{word}");
    let mut found: Vec<PathBuf> = std::fs::read_dir(core.parent()?.join("ucx"))
        .ok()?
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| file_name(path).starts_with(&stem) && file_name(path).contains(".so"))
        .collect();
    found.sort();
    found.into_iter().next()
}

/// A library, in the loader's path, beside those in use, or in the usual folders.
fn find(in_use: &[PathBuf], file: &str) -> Option<PathBuf> {
    let path = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    let named = std::env::split_paths(&path).filter(|folder| !folder.as_os_str().is_empty());
    let beside = in_use.iter().filter_map(|path| path.parent().map(Path::to_owned));
    let usual = FOLDERS.iter().map(PathBuf::from);
    named.chain(beside).chain(usual).map(|folder| folder.join(file)).find(|path| path.exists())
}

fn file_name(path: &Path) -> String {
    path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_are_found_beside_the_core_and_need_a_driver() {
        let folder = std::env::temp_dir().join(format!("hetccl-libraries-{}", std::process::id()));
        std::fs::create_dir_all(folder.join("ucx")).unwrap();
        for file in ["libucp.so.0", "ucx/libuct_rocm.so.0", "ucx/libuct_ib.so.0", "librccl.so.1"] {
            std::fs::write(folder.join(file), "").unwrap();
        }
        let in_use = [folder.join("libucp.so.0")];
        let found = module(&in_use, "rocm").unwrap();
        assert_eq!(found, folder.join("ucx/libuct_rocm.so.0"));
        assert_eq!(module(&in_use, "cuda"), None);
        assert_eq!(find(&in_use, "librccl.so.1"), Some(folder.join("librccl.so.1")));
        let ucx = Ok(Ucx { version: "1.18.1".into(), reaches: Vec::new() });
        let line = module_line(&NAMES[1], &found, Some("hipInit failed"), &ucx);
        assert!(!line.yes && line.why.contains("hipInit failed"), "{}", line.why);
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
