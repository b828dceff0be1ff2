//! The reduction kernels: PTX and SPIR-V, which are kept in the repository, and code objects for AMD.
//!
//! All come from `gpu/kernels/reduce.h`. PTX is made by an NVRTC of a fixed version, as old as the source allows: the
//! older NVRTC is, the older a driver may be that takes what it makes.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::command::{self, step};
use crate::spirv::{self, Modules};
use crate::{python, setup};

/// NVRTC's version, and the oldest GPUs that the PTX is for.
const NVRTC: &str = "12.0.140";
const ARCHITECTURE: &str = "compute_70";

/// The AMD processors that code objects are made for.
pub const AMD_TARGETS: [&str; 6] = ["gfx90a", "gfx942", "gfx950", "gfx1030", "gfx1100", "gfx1201"];

/// Compilers for AMD, the best first.
const CLANGS: [&str; 5] = ["clang-22", "clang-21", "clang-20", "clang-19", "clang"];

/// Options.
#[derive(clap::Args, Clone, Copy, Debug)]
pub struct Args {
    /// Fail when the PTX or SPIR-V of the repository is not what the source gives, instead of writing it
    #[arg(long)]
    pub check: bool,
}

/// Makes or checks everything. Whether PTX and SPIR-V are current; without `check` it always is, afterwards.
///
/// # Errors
/// What could not be installed or compiled.
pub fn run(args: Args) -> Result<bool> {
    setup::packages(&[setup::KERNELS])?;
    setup::optional(setup::SPIRV, "kernels in SPIR-V");
    let made = step("compiling for NVIDIA", ptx)?;
    let current = committed_ptx().is_ok_and(|committed| committed == made);
    if !args.check && !current {
        std::fs::write(ptx_file(), &made)?;
    }
    let state = state(current, args);
    println!("{ARCHITECTURE:<11} {} kernels, reduce.ptx is {state}", names_in_ptx(&made).len());
    let spirv_current = spirv(args)?;
    for target in AMD_TARGETS {
        match amd(target)? {
            CodeObject::Made { kernels } => println!("{target:<11} {kernels} kernels"),
            CodeObject::Skipped { why } => println!("SKIPPED {target}: {why}"),
        }
    }
    Ok((current && spirv_current) || !args.check)
}

/// Makes or checks the SPIR-V. Whether it was current, where that can be told.
fn spirv(args: Args) -> Result<bool> {
    let made = match step("compiling for Level Zero", spirv::make)? {
        Modules::Made(made) => made,
        Modules::Skipped { why } => {
            println!("SKIPPED SPIR-V: {why}");
            return Ok(true);
        }
    };
    let current = std::fs::read(spirv::file()).is_ok_and(|committed| committed == made);
    if !args.check && !current {
        std::fs::write(spirv::file(), &made)?;
    }
    let (kernels, state) = (spirv::names(&made)?.len(), state(current, args));
    println!("{:<11} {kernels} kernels, reduce.spv is {state}", "SPIR-V");
    Ok(current)
}

/// What to say of a file of the repository.
fn state(current: bool, args: Args) -> &'static str {
    match (current, args.check) {
        (true, _) => "current",
        (false, false) => "written",
        (false, true) => "NOT what the source gives: run cargo xtask kernels, and commit",
    }
}

/// The folder of the sources and of `reduce.ptx`.
pub fn folder() -> PathBuf {
    command::root().join("gpu/kernels")
}

fn ptx_file() -> PathBuf {
    folder().join("reduce.ptx")
}

/// The PTX that is in the repository.
///
/// # Errors
/// When there is none.
pub fn committed_ptx() -> Result<String> {
    let file = ptx_file();
    std::fs::read_to_string(&file).with_context(|| format!("reading {}", file.display()))
}

/// The names of the kernels in a text of PTX.
pub fn names_in_ptx(ptx: &str) -> BTreeSet<String> {
    let entries = ptx.lines().filter_map(|line| line.trim().strip_prefix(".visible .entry "));
    entries.map(|rest| rest.trim_end_matches(['(', ' ']).to_owned()).collect()
}

/// Compiles the source to PTX.
///
/// # Errors
/// When NVRTC can't be installed, or the compiler's messages.
pub fn ptx() -> Result<String> {
    let (python, folder) = nvrtc()?;
    let output = folder.join("reduce.ptx");
    let mut compile = Command::new(python);
    compile.arg(self::folder().join("nvrtc.py")).arg(ARCHITECTURE);
    command::capture(compile.arg(self::folder().join("reduce.h")).arg(&output))?;
    Ok(compact(&std::fs::read_to_string(output)?))
}

/// A Python that has NVRTC, and a folder to work in.
fn nvrtc() -> Result<(PathBuf, PathBuf)> {
    let folder = command::target_dir().join("kernels");
    let environment = python::with_package(&folder, "nvidia-cuda-nvrtc-cu12", NVRTC)?;
    Ok((environment.join("bin/python"), environment))
}

/// Drops comments, empty lines, indentation and what NVRTC's own headers leave behind, and marks where each kernel begins.
fn compact(ptx: &str) -> String {
    let mut text = format!(
        "// The kernels of reduce.h, made by `cargo xtask kernels` with NVRTC {NVRTC}: not to be edited.\n\
         // Kernels share nothing: the lines before the first kernel and those of any one are a module.\n"
    );
    for line in ptx.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let of_no_kernel = |word: &str| word.starts_with("//") || word == ".global";
        if words.first().is_none_or(|word| of_no_kernel(word)) {
            continue;
        }
        if words.starts_with(&[".visible", ".entry"]) {
            text.push_str(&format!("// kernel {}\n", words[2].trim_end_matches('(')));
        }
        text.push_str(&words.join(" "));
        text.push('\n');
    }
    text
}

/// What came of compiling for an AMD processor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CodeObject {
    /// A code object with so many kernels lies in the target directory.
    Made {
        /// How many.
        kernels: usize,
    },
    /// This machine has no clang that knows the processor.
    Skipped {
        /// Which clang, and what it said.
        why: String,
    },
}

/// Compiles the source for an AMD processor.
///
/// # Errors
/// The compiler's messages.
pub fn amd(target: &str) -> Result<CodeObject> {
    let Some(clang) = CLANGS.into_iter().find(|clang| command::exists(clang)) else {
        return Ok(CodeObject::Skipped { why: format!("none of {} on PATH", CLANGS.join(", ")) });
    };
    let folder = command::target_dir().join("kernels");
    std::fs::create_dir_all(&folder)?;
    let object = folder.join(format!("reduce-{target}.co"));
    let mut compile = Command::new(clang);
    compile.args(["-x", "hip", "-std=c++17", "-O3", "-Wall", "-Wextra", "-Werror"]);
    compile.args(["--cuda-device-only", "--no-gpu-bundle-output", "-nogpuinc", "-nogpulib"]);
    compile.arg(format!("--offload-arch={target}"));
    compile.arg(self::folder().join("reduce.h")).arg("-o").arg(&object);
    let output = command::output(&mut compile)?;
    if !output.status.success() {
        let messages = String::from_utf8_lossy(&output.stderr);
        let unknown =
            ["invalid target ID", "unsupported HIP gpu architecture", "unknown target CPU"];
        if unknown.iter().any(|phrase| messages.contains(phrase)) {
            return Ok(CodeObject::Skipped { why: format!("{clang} does not know it") });
        }
        bail!("{}\n{}", command::describe(&compile), command::tail(&output));
    }
    Ok(CodeObject::Made { kernels: names_in_code_object(&std::fs::read(object)?).len() })
}

/// Each kernel of a code object has a descriptor, a symbol that is called as the kernel and `.kd`.
fn names_in_code_object(object: &[u8]) -> BTreeSet<String> {
    let symbols = object.split(|&byte| byte == 0).filter_map(|name| name.strip_suffix(b".kd"));
    symbols.map(|name| String::from_utf8_lossy(name).into_owned()).collect()
}

/// Compiles the kernels as functions of the host, with the system's C++ compiler; see `gpu/kernels/host.cpp`.
///
/// # Errors
/// The compiler's messages.
pub fn host_library() -> Result<PathBuf> {
    let folder = command::target_dir().join("kernels");
    std::fs::create_dir_all(&folder)?;
    let library = folder.join("libhetccl_kernels_host.so");
    let mut compile = Command::new("c++");
    compile.args(["-std=c++17", "-O2", "-ffp-contract=off", "-Wall", "-Wextra", "-Werror"]);
    compile.args(["-shared", "-fPIC", "-fvisibility=hidden"]);
    command::capture(compile.arg(self::folder().join("host.cpp")).arg("-o").arg(&library))?;
    Ok(library)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compact_ptx_keeps_the_code() {
        let ptx = "//\n// Compiler\n.version 8.0\n.global .u64 x = 1;\n\n\t// .globl\ta\n.visible .entry a(\n)\n{\n\tadd.s32 \t%r1, %r2, %r3;\n}\n";
        let text = compact(ptx);
        let code: Vec<&str> = text.lines().skip(2).collect();
        let expected = [
            ".version 8.0",
            "// kernel a",
            ".visible .entry a(",
            ")",
            "{",
            "add.s32 %r1, %r2, %r3;",
            "}",
        ];
        assert_eq!(code, expected);
        assert_eq!(names_in_ptx(&text), BTreeSet::from(["a".to_owned()]));
    }
}
