//! `hetccl run`: starts a program that uses NCCL or RCCL with hetccl's library in front of the vendor's.
//!
//! The framework that the program uses has the vendor's library beside it, in the Python environment that the command names:
//! hetccl hands calls on to that one where it can (`HETCCL_DELEGATE`).

use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

/// What NCCL and RCCL are called by the programs that link to them.
const LIBRARIES: [&str; 2] = ["libnccl.so.2", "librccl.so.1"];
/// What tells hetccl where the vendor's library is, of either.
const VENDOR_VARIABLES: [&str; 2] = ["HETCCL_NCCL_LIBRARY", "HETCCL_RCCL_LIBRARY"];
/// Where frameworks have the vendor's library, from the folder of Python's packages on.
const BESIDE_FRAMEWORKS: [&[&str]; 2] = [
    &["nvidia/nccl/lib/libnccl.so.2", "torch/lib/libnccl.so.2"],
    &["torch/lib/librccl.so.1", "torch/lib/librccl.so"],
];
/// The folder of the libraries, where they are not installed beside this program.
const FOLDER_VARIABLE: &str = "HETCCL_LIB";
const UCX_FOLDER_VARIABLE: &str = "HETCCL_UCX_LIB";
/// Where UCX looks for its modules; the folder beside its libraries.
const UCX_MODULES_VARIABLE: &str = "UCX_MODULE_DIR";

/// Options.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// The program, then its arguments; its children get the same environment
    #[arg(
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "CMD"
    )]
    command: Vec<OsString>,
}

/// Becomes the program.
///
/// # Errors
/// When the libraries are missing or the program can't be started; otherwise it does not return.
pub fn run(args: &Args) -> Result<()> {
    let (program, rest) = args.command.split_first().context("no program given")?;
    let mut libraries = find_libraries(&folders()?)?;
    let vendors = vendor_libraries(&environments(&args.command));
    let amd = match &vendors {
        [None, None] => Path::new("/dev/kfd").exists() && !Path::new("/dev/nvidiactl").exists(),
        [nccl, _] => nccl.is_none(),
    };
    // Both have the same functions: the first one is used.
    if amd {
        libraries.reverse();
    }
    let mut command = Command::new(program);
    command.args(rest);
    for (variable, found) in VENDOR_VARIABLES.iter().zip(&vendors) {
        if let Some(path) = found.as_ref().filter(|_| std::env::var_os(variable).is_none()) {
            command.env(variable, path);
        }
    }
    command.env("LD_PRELOAD", preload(&libraries, std::env::var_os("LD_PRELOAD").as_deref()));
    let modules = ucx_modules();
    if let Some(modules) = &modules {
        command.env(UCX_MODULES_VARIABLE, modules);
    }
    let names: Vec<String> = libraries.iter().map(|path| path.display().to_string()).collect();
    let ucx =
        modules.map_or_else(String::new, |path| format!(", UCX modules from {}", path.display()));
    let framework =
        vendors.iter().flatten().map(|path| format!(", the framework's {}", path.display()));
    let framework: String = framework.collect();
    eprintln!(
        "hetccl: {} runs with {}{framework}{ucx}",
        program.to_string_lossy(),
        names.join(" and ")
    );
    Err(command.exec()).with_context(|| format!("could not start {}", program.to_string_lossy()))
}

/// Python environments that a command uses: those of its words that are programs, then the active ones.
fn environments(command: &[OsString]) -> Vec<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut found: Vec<PathBuf> = Vec::new();
    for word in command {
        let file = match word.to_string_lossy().contains('/') {
            true => Some(PathBuf::from(word)),
            false => std::env::split_paths(&path)
                .map(|folder| folder.join(word))
                .find(|file| file.is_file()),
        };
        // Not beyond links: an environment's `python` is one to a Python without its packages.
        let file =
            file.and_then(|file| std::path::absolute(file).ok()).filter(|file| file.is_file());
        let bin = file.as_deref().and_then(Path::parent).filter(|bin| bin.ends_with("bin"));
        found.extend(bin.and_then(Path::parent).map(Path::to_owned));
    }
    let active = ["VIRTUAL_ENV", "CONDA_PREFIX"].into_iter().filter_map(std::env::var_os);
    found.extend(active.map(PathBuf::from));
    found
}

/// The vendors' libraries beside the frameworks of the first environment that has any: NCCL, RCCL.
fn vendor_libraries(environments: &[PathBuf]) -> [Option<PathBuf>; 2] {
    for environment in environments {
        let packages: Vec<PathBuf> = ["lib", "lib64", "local/lib"]
            .iter()
            .filter_map(|lib| environment.join(lib).read_dir().ok())
            .flat_map(|entries| entries.flatten())
            .filter(|entry| entry.file_name().to_string_lossy().starts_with("python3"))
            .flat_map(|entry| {
                ["site-packages", "dist-packages"].map(|name| entry.path().join(name))
            })
            .collect();
        let found = BESIDE_FRAMEWORKS.map(|places| {
            let all =
                packages.iter().flat_map(|folder| places.iter().map(|place| folder.join(place)));
            all.into_iter().find(|file| file.is_file())
        });
        if found.iter().any(Option::is_some) {
            return found;
        }
    }
    [None, None]
}

/// Where the libraries may be: the folder that is set, and only that one; otherwise beside the installed program.
fn folders() -> Result<Vec<PathBuf>> {
    if let Some(folder) = std::env::var_os(FOLDER_VARIABLE).filter(|folder| !folder.is_empty()) {
        let folder = std::path::absolute(Path::new(&folder));
        return Ok(vec![folder.with_context(|| format!("reading {FOLDER_VARIABLE}"))?]);
    }
    let program = std::env::current_exe().context("finding the folder of this program")?;
    let bin = program.parent().unwrap_or(Path::new("/"));
    Ok(vec![bin.with_file_name("lib").join("hetccl"), bin.with_file_name("lib64").join("hetccl")])
}

fn find_libraries(folders: &[PathBuf]) -> Result<Vec<PathBuf>> {
    for folder in folders {
        let all = LIBRARIES.map(|name| folder.join(name));
        let found: Vec<PathBuf> = all.into_iter().filter(|path| path.is_file()).collect();
        if !found.is_empty() {
            return Ok(found);
        }
    }
    let looked: Vec<String> = folders.iter().map(|folder| folder.display().to_string()).collect();
    bail!(
        "neither {} is in {}: install hetccl (cargo xtask install --prefix PREFIX) and use PREFIX/bin/hetccl, or set \
         {FOLDER_VARIABLE} to the folder that has them",
        LIBRARIES.join(" nor "),
        looked.join(" or ")
    )
}

/// The libraries before what is preloaded already, none twice.
fn preload(libraries: &[PathBuf], before: Option<&OsStr>) -> OsString {
    let mut list = OsString::new();
    for path in libraries {
        if !list.is_empty() {
            list.push(":");
        }
        list.push(path);
    }
    let before = before.unwrap_or_default().to_string_lossy();
    for entry in before.split([':', ' ']).filter(|entry| !entry.is_empty()) {
        if libraries.iter().all(|path| path.as_os_str() != entry) {
            list.push(":");
            list.push(entry);
        }
    }
    list
}

/// UCX's modules beside the library that HETCCL_UCX_LIB names, unless the user has said where they are.
fn ucx_modules() -> Option<PathBuf> {
    if std::env::var_os(UCX_MODULES_VARIABLE).is_some() {
        return None;
    }
    let folder = std::env::var_os(UCX_FOLDER_VARIABLE).filter(|folder| !folder.is_empty())?;
    let modules = Path::new(&folder).join("ucx");
    modules.is_dir().then_some(modules)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_preloaded_stays_behind() {
        let libraries = [PathBuf::from("/x/libnccl.so.2"), PathBuf::from("/x/librccl.so.1")];
        let of = |before: Option<&str>| preload(&libraries, before.map(OsStr::new));
        assert_eq!(of(None), "/x/libnccl.so.2:/x/librccl.so.1");
        assert_eq!(of(Some("/y.so")), "/x/libnccl.so.2:/x/librccl.so.1:/y.so");
        assert_eq!(of(Some("/x/libnccl.so.2 /y.so")), "/x/libnccl.so.2:/x/librccl.so.1:/y.so");
    }
}
