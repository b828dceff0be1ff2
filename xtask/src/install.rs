//! Builds hetccl and lays out an installation.
//!
//! ```text
//! PREFIX/bin/hetccl
//! PREFIX/lib/hetccl/{libnccl.so.2,librccl.so.1}, where the workspace has them, and their unversioned links
//! PREFIX/lib/openmpi/mca_coll_hetccl.so
//! PREFIX/lib/pmix: empty, for PMIx to look into
//! PREFIX/share/hetccl/{env.sh,modulefiles,clusters}
//! PREFIX/share/{man,bash-completion,zsh,fish}, as `hetccl generate` writes them
//! ```

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::command;
use crate::mpi;

/// The component as Cargo names it.
const BUILT_COMPONENT: &str = "libmca_coll_hetccl.so";
/// The component as Open MPI looks for it.
pub const COMPONENT: &str = "mca_coll_hetccl.so";

/// The libraries in the place of a vendor's: folder and name of the package, as Cargo names the file, as programs do.
const VENDOR_LIBRARIES: [(&str, &str, &str, &str); 2] = [
    ("nccl-shim/nccl", "hetccl-libnccl", "libnccl.so", "libnccl.so.2"),
    ("nccl-shim/rccl", "hetccl-librccl", "librccl.so", "librccl.so.1"),
];

/// Those that this workspace has.
fn vendor_libraries() -> impl Iterator<Item = (&'static str, &'static str, &'static str)> {
    let present = |folder: &str| command::root().join(folder).join("Cargo.toml").is_file();
    let all = VENDOR_LIBRARIES.into_iter().filter(move |(folder, ..)| present(folder));
    all.map(|(_, package, built, soname)| (package, built, soname))
}

/// Builds for use and installs into `prefix`.
///
/// # Errors
/// A failed build, or a folder that can't be written.
pub fn release(prefix: &Path) -> Result<()> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut build = Command::new(cargo);
    build.current_dir(command::root());
    build.args(["build", "--release"]);
    for package in packages() {
        build.args(["--package", package]);
    }
    command::run(&mut build)?;
    lay_out(&command::target_dir().join("release"), prefix)
}

/// An installation that somebody names, or one of what is here, in the target directory.
///
/// # Errors
/// A failed build, or a folder that is not there.
pub fn or_release(named: Option<&Path>) -> Result<PathBuf> {
    let prefix = match named {
        Some(prefix) => prefix.to_owned(),
        None => {
            let prefix = command::target_dir().join("prefix");
            release(&prefix)?;
            prefix
        }
    };
    prefix.canonicalize().with_context(|| format!("finding {}", prefix.display()))
}

/// The workspace's packages that an installation has something of.
pub fn packages() -> impl Iterator<Item = &'static str> {
    ["hetccl-plugin", "hetccl-cli"]
        .into_iter()
        .chain(vendor_libraries().map(|(package, ..)| package))
}

/// Installs what was built in `from`.
///
/// # Errors
/// A missing file, or a folder that can't be written.
pub fn lay_out(from: &Path, prefix: &Path) -> Result<()> {
    std::fs::create_dir_all(prefix).with_context(|| format!("creating {}", prefix.display()))?;
    let prefix = prefix.canonicalize()?;
    let dirs = [
        "bin",
        "lib/hetccl",
        "lib/openmpi",
        "lib/pmix",
        "share/hetccl/modulefiles",
        "share/hetccl/clusters",
    ];
    for dir in dirs {
        let dir = prefix.join(dir);
        std::fs::create_dir_all(&dir).with_context(|| format!("creating {}", dir.display()))?;
    }
    copy(&from.join("hetccl"), &prefix.join("bin/hetccl"))?;
    copy(&from.join(BUILT_COMPONENT), &prefix.join("lib/openmpi").join(COMPONENT))?;
    for (_, built, soname) in vendor_libraries() {
        let library = prefix.join("lib/hetccl").join(soname);
        copy(&from.join(built), &library)?;
        let link = library.with_file_name(built);
        if link.read_link().is_err() {
            std::os::unix::fs::symlink(soname, &link)
                .with_context(|| format!("linking {}", link.display()))?;
        }
    }
    generate(&prefix)?;
    for name in ["hetccl", "hetccl.lua"] {
        let from = command::root().join("packaging/modulefiles").join(name);
        copy(&from, &prefix.join("share/hetccl/modulefiles").join(name))?;
    }
    let clusters = command::root().join("clusters");
    for entry in std::fs::read_dir(&clusters).context("reading the clusters' folder")? {
        let file = entry?.path();
        if let Some(name) = file.file_name().filter(|_| file.is_file()) {
            copy(&file, &prefix.join("share/hetccl/clusters").join(name))?;
        }
    }
    let script = prefix.join("share/hetccl/env.sh");
    std::fs::write(&script, environment_script(&prefix))
        .with_context(|| format!("writing {}", script.display()))
}

/// Man pages and completions, from the installed program itself.
fn generate(prefix: &Path) -> Result<()> {
    let mut program = Command::new(prefix.join("bin/hetccl"));
    command::capture(program.args(["generate", "--prefix"]).arg(prefix)).map(drop)
}

/// Replaces a file in one step, so that a running program keeps the old one.
fn copy(from: &Path, to: &Path) -> Result<()> {
    let mut new = to.as_os_str().to_owned();
    new.push(".new");
    let new = PathBuf::from(new);
    std::fs::copy(from, &new)
        .with_context(|| format!("copying {} to {}", from.display(), new.display()))?;
    std::fs::rename(&new, to).with_context(|| format!("replacing {}", to.display()))
}

fn environment_script(prefix: &Path) -> String {
    let default = for_everybody(&mpi::default_component_path());
    let default = format!("${{OMPI_MCA_mca_base_component_path:-{default}}}");
    let mut exports = String::new();
    for (name, value) in mpi::component_environment("$HETCCL_PREFIX", &default) {
        exports.push_str(&format!("{name}={value}\nexport {name}\n"));
    }
    format!(
        r#"# Source this file: it lets Open MPI find hetccl's component and puts `hetccl` on PATH.
#   . {prefix}/share/hetccl/env.sh
# bash and zsh find where this file is now; other shells take the place it was installed in.
if [ -n "${{BASH_SOURCE:-}}" ]; then
    _hetccl_file=$BASH_SOURCE
elif [ -n "${{ZSH_VERSION:-}}" ]; then
    eval '_hetccl_file=${{(%):-%x}}'
else
    _hetccl_file='{prefix}/share/hetccl/env.sh'
fi
HETCCL_PREFIX=$(cd "$(dirname "$_hetccl_file")/../.." && pwd)
export HETCCL_PREFIX
unset _hetccl_file
PATH=$HETCCL_PREFIX/bin:$PATH
export PATH
MANPATH=$HETCCL_PREFIX/share/man:${{MANPATH:-}}
export MANPATH
{exports}"#,
        prefix = prefix.display(),
    )
}

/// Open MPI's own path with the installer's home folder as whoever sources the file has it.
fn for_everybody(path: &str) -> String {
    match std::env::var("HOME") {
        Ok(home) if home.len() > 1 => path.replace(&home, "$HOME"),
        _ => path.to_owned(),
    }
}

/// Tells how to run a program with an installation.
pub fn how_to_use(prefix: &Path) {
    let prefix = prefix.canonicalize().unwrap_or_else(|_| prefix.to_owned());
    println!("\nRun your own program:");
    println!("  . {}/share/hetccl/env.sh", prefix.display());
    println!("  mpirun --mca coll hetccl -n 4 ./app");
    println!("Settings: ompi_info --param coll hetccl --level 9    What is here: hetccl info");
}
