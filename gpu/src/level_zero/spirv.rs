//! The kernels in SPIR-V, which the driver compiles for the device it has.
//!
//! As with PTX each kernel is a module of its own: compiling all of them takes long, and a device without 64-bit
//! floating-point numbers refuses every module that has any.

use std::ffi::CStr;

use crate::error::Error;
use crate::vendor::Vendor;

/// Modules one after the other: the length of the name and of the module, 32 bits each, the name, the module.
const ALL: &[u8] = include_bytes!("reduce.spv");

/// The module with one kernel.
///
/// # Errors
/// [`Error::NoKernels`], for a name that is not there.
pub(super) fn module(name: &CStr) -> Result<&'static [u8], Error> {
    let mut rest = ALL;
    while let Some((found, module)) = next(&mut rest) {
        if found == name.to_bytes() {
            return Ok(module);
        }
    }
    let reason = format!("there is no {}", name.to_string_lossy());
    Err(Error::NoKernels { vendor: Vendor::LevelZero, reason })
}

fn next(rest: &mut &'static [u8]) -> Option<(&'static [u8], &'static [u8])> {
    let mut take = |len_bytes: usize| {
        let (taken, behind) = rest.split_at_checked(len_bytes)?;
        *rest = behind;
        Some(taken)
    };
    let lengths = take(8)?;
    let len = |at: usize| lengths[at..at + 4].iter().rev().fold(0, |n, &b| n << 8 | usize::from(b));
    Some((take(len(0))?, take(len(4))?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_has_one_kernel() {
        let module = module(c"hetccl_reduce_sum_f32").unwrap();
        assert_eq!(module[..4], 0x0723_0203_u32.to_le_bytes());
        let (any, this) = (b"hetccl_reduce_", b"hetccl_reduce_sum_f32\0");
        let mut places = (0..module.len()).filter(|&at| module[at..].starts_with(any)).peekable();
        assert!(places.peek().is_some());
        assert!(places.all(|at| module[at..].starts_with(this)));
        assert!(super::module(c"hetccl_reduce_sum").is_err());
    }
}
