//! The reduction kernels in SPIR-V, for Level Zero: `reduce.spv` in `gpu/src/level_zero`, kept in the repository.
//!
//! Each kernel is a module of its own. clang compiles the source as HIP for a SPIR-V machine, LLVM's translator makes SPIR-V
//! of that, and what is left to do is done here: blocks are put into the order that SPIR-V demands, names for debuggers
//! go. Both programs are of one version, so that the file can be compared.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, anyhow, bail};

use crate::command;
use crate::kernels::folder;

const CLANG: &str = "clang-14";
const TRANSLATOR: &str = "llvm-spirv-14";
const VALIDATOR: &str = "spirv-val";

/// Instructions, by their numbers in the SPIR-V specification.
const SOURCE_AND_NAMES: [u32; 6] = [2, 3, 4, 5, 6, 7];
const FUNCTION: u32 = 54;
const FUNCTION_END: u32 = 56;
const LABEL: u32 = 248;
const BRANCH: u32 = 249;
const BRANCH_CONDITIONAL: u32 = 250;
const SWITCH: u32 = 251;
const ENTRY_POINT: u32 = 15;
const HEADER_WORDS: usize = 5;
const MAGIC: u32 = 0x0723_0203;

/// What came of compiling.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Modules {
    /// The bytes of `reduce.spv`.
    Made(Vec<u8>),
    /// This machine has not the programs.
    Skipped {
        /// What is missing.
        why: String,
    },
}

/// The file that is kept in the repository.
pub fn file() -> PathBuf {
    vendor_folder().join("reduce.spv")
}

fn vendor_folder() -> PathBuf {
    command::root().join("gpu/src/level_zero")
}

/// The names of the kernels in the bytes of `reduce.spv`, in order.
///
/// # Errors
/// When the bytes are not such a file.
pub fn names(file: &[u8]) -> Result<Vec<String>> {
    let mut names = Vec::new();
    let mut rest = file;
    while !rest.is_empty() {
        let module = take_named(&mut rest).context("reduce.spv ends in the middle of a module")?;
        let words = words(module.1)?;
        let entries = instructions(&words)?.filter(|words| opcode(words) == ENTRY_POINT).count();
        let name = String::from_utf8(module.0.to_vec())?;
        if entries != 1 {
            bail!("{name} in reduce.spv has {entries} entry points");
        }
        names.push(name);
    }
    Ok(names)
}

fn take_named<'a>(rest: &mut &'a [u8]) -> Option<(&'a [u8], &'a [u8])> {
    let mut take = |len: usize| {
        let (taken, behind) = rest.split_at_checked(len)?;
        *rest = behind;
        Some(taken)
    };
    let name_len = u32::from_le_bytes(take(4)?.try_into().ok()?);
    let module_len = u32::from_le_bytes(take(4)?.try_into().ok()?);
    Some((take(name_len as usize)?, take(module_len as usize)?))
}

/// Compiles every kernel.
///
/// # Errors
/// The programs' messages, or a module that the validator refuses.
pub fn make() -> Result<Modules> {
    for program in [CLANG, TRANSLATOR, VALIDATOR] {
        if !command::exists(program) {
            return Ok(Modules::Skipped { why: format!("no {program} on PATH") });
        }
    }
    let work = command::target_dir().join("kernels/spirv");
    std::fs::create_dir_all(&work)?;
    let kernels = kernels()?;
    let half = kernels.len().div_ceil(2);
    let compile_all =
        |some: &[String]| some.iter().map(|line| compile(line, &work)).collect::<Result<Vec<_>>>();
    let made = std::thread::scope(|scope| {
        let other = scope.spawn(|| compile_all(&kernels[half..]));
        let mut made = compile_all(&kernels[..half])?;
        made.extend(other.join().map_err(|_| anyhow!("compiling the kernels panicked"))??);
        Ok::<_, anyhow::Error>(made)
    })?;
    Ok(Modules::Made(made.concat()))
}

/// The lines of the source's table, such as `EACH(hetccl_reduce_sum_f32, Sum, f32, f32)`.
fn kernels() -> Result<Vec<String>> {
    let mut preprocess = Command::new(CLANG);
    preprocess.args(["-x", "c++", "-std=c++17", "-E", "-P", "-include"]);
    preprocess.arg(folder().join("reduce.h"));
    let list = command::target_dir().join("kernels/spirv/list.h");
    std::fs::write(&list, "HETCCL_KERNELS(EACH)\n")?;
    let text = command::capture(preprocess.arg(&list))?;
    let lines = text.split("EACH(").skip(1).filter_map(|rest| rest.split_once(')'));
    Ok(lines.map(|(arguments, _)| format!("EACH({arguments})")).collect())
}

/// One kernel, as it lies in the file.
fn compile(line: &str, work: &std::path::Path) -> Result<Vec<u8>> {
    let name = line.trim_start_matches("EACH(").split(',').next().unwrap_or_default();
    let (bitcode, module) = (work.join(format!("{name}.bc")), work.join(format!("{name}.spv")));
    let mut clang = Command::new(CLANG);
    clang.args(["-x", "hip", "--offload=spirv64", "--cuda-device-only", "-nogpuinc", "-nogpulib"]);
    clang.args(["-std=c++17", "-O2", "-Wall", "-Wextra", "-Werror", "-include"]);
    clang.arg(vendor_folder().join("dialect.h"));
    clang.arg(format!("-DHETCCL_ONLY(EACH)={line}")).args(["-emit-llvm", "-c"]);
    command::capture(clang.arg(folder().join("reduce.h")).arg("-o").arg(&bitcode))?;
    let mut translate = Command::new(TRANSLATOR);
    translate.args(["--spirv-max-version=1.1", "--spirv-fp-contract=off"]);
    command::capture(translate.arg(&bitcode).arg("-o").arg(&module))?;
    let words = finish(&words(&std::fs::read(&module)?)?)?;
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    std::fs::write(&module, &bytes)?;
    command::capture(Command::new(VALIDATOR).args(["--target-env", "opencl2.0"]).arg(&module))?;
    let lengths = [name.len() as u32, bytes.len() as u32].map(u32::to_le_bytes);
    Ok([&lengths.concat(), name.as_bytes(), &bytes].concat())
}

fn words(bytes: &[u8]) -> Result<Vec<u32>> {
    let chunks = bytes.chunks_exact(4);
    let words: Vec<u32> =
        chunks.map(|chunk| u32::from_le_bytes([chunk[0], chunk[1], chunk[2], chunk[3]])).collect();
    if words.len() < HEADER_WORDS || words[0] != MAGIC {
        bail!("not a SPIR-V module");
    }
    Ok(words)
}

fn opcode(instruction: &[u32]) -> u32 {
    instruction[0] & 0xffff
}

/// The instructions of a module.
fn instructions(module: &[u32]) -> Result<impl Iterator<Item = &[u32]>> {
    let mut all = Vec::new();
    let mut rest = &module[HEADER_WORDS..];
    while let Some(first) = rest.first() {
        let len = (first >> 16) as usize;
        if len == 0 || len > rest.len() {
            bail!("an instruction of {len} words, and {} left", rest.len());
        }
        let (instruction, behind) = rest.split_at(len);
        all.push(instruction);
        rest = behind;
    }
    Ok(all.into_iter())
}

/// Drops what only debuggers read, and orders the blocks of each function.
fn finish(module: &[u32]) -> Result<Vec<u32>> {
    let mut out = module[..HEADER_WORDS].to_vec();
    let mut blocks: Vec<Vec<&[u32]>> = Vec::new();
    let mut in_body = false;
    for instruction in instructions(module)? {
        match opcode(instruction) {
            FUNCTION_END => {
                for block in in_order(&blocks)? {
                    blocks[block].iter().for_each(|words| out.extend_from_slice(words));
                }
                blocks.clear();
                in_body = false;
                out.extend_from_slice(instruction);
            }
            LABEL => {
                blocks.push(vec![instruction]);
                in_body = true;
            }
            FUNCTION => out.extend_from_slice(instruction),
            number if SOURCE_AND_NAMES.contains(&number) => {}
            _ if in_body => blocks.last_mut().into_iter().for_each(|block| block.push(instruction)),
            _ => out.extend_from_slice(instruction),
        }
    }
    Ok(out)
}

/// The order in which every block is behind those that all ways to it pass: a depth-first walk's, from the last one left.
fn in_order(blocks: &[Vec<&[u32]>]) -> Result<Vec<usize>> {
    let place = |label: u32| {
        let found = blocks.iter().position(|block| block[0][1] == label);
        found.with_context(|| format!("a branch to %{label}, which is no block"))
    };
    let mut next = Vec::new();
    for block in blocks {
        let last = block[block.len() - 1];
        let labels = match opcode(last) {
            BRANCH => &last[1..2],
            BRANCH_CONDITIONAL => &last[2..4],
            SWITCH => bail!("OpSwitch: its labels are not known here"),
            _ => &[],
        };
        next.push(labels.iter().map(|&label| place(label)).collect::<Result<Vec<_>>>()?);
    }
    let mut seen = vec![false; blocks.len()];
    let mut left = Vec::new();
    // Blocks on the way, with how many of their branches were followed.
    let mut way = vec![(0, 0)];
    while let Some((block, followed)) = way.pop() {
        seen[block] = true;
        match next[block].get(followed) {
            Some(&target) => {
                way.push((block, followed + 1));
                if !seen[target] {
                    way.push((target, 0));
                }
            }
            None => left.push(block),
        }
    }
    left.reverse();
    Ok(left)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn instruction(number: u32, operands: &[u32]) -> Vec<u32> {
        [&[(operands.len() as u32 + 1) << 16 | number], operands].concat()
    }

    #[test]
    fn blocks_come_behind_those_that_lead_to_them() {
        // Block 4 is reached through 6 only, and 5 through 4.
        let code = [
            instruction(5, &[1, 0]),
            instruction(FUNCTION, &[1, 2, 0, 3]),
            instruction(LABEL, &[3]),
            instruction(BRANCH, &[6]),
            instruction(LABEL, &[4]),
            instruction(BRANCH_CONDITIONAL, &[9, 4, 5]),
            instruction(LABEL, &[5]),
            instruction(253, &[]),
            instruction(LABEL, &[6]),
            instruction(BRANCH, &[4]),
            instruction(FUNCTION_END, &[]),
        ];
        let module = [vec![MAGIC, 0x1_0000, 0, 10, 0], code.concat()].concat();
        let done = finish(&module).unwrap();
        let labels = instructions(&done).unwrap().filter(|words| opcode(words) == LABEL);
        assert_eq!(labels.map(|words| words[1]).collect::<Vec<_>>(), [3, 6, 4, 5]);
        assert_eq!(done.len(), module.len() - 3);
    }

    #[test]
    fn broken_files_are_refused() {
        assert!(names(&[1, 0, 0]).is_err());
        assert!(words(&[0; 20]).is_err());
        assert!(instructions(&[MAGIC, 0, 0, 0, 0, 0]).is_err());
    }
}
