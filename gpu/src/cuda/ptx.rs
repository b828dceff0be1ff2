//! The kernels in NVIDIA's assembly language, which the driver compiles for the device it has.
//!
//! Compiling all of them takes seconds, one a tenth of a second. They share nothing, so each is a module of its own: the
//! lines before the first kernel, and the kernel's.

use std::ffi::{CStr, CString};

use crate::error::Error;
use crate::vendor::Vendor;

const ALL: &str = include_str!("../../kernels/reduce.ptx");

/// The line that begins a kernel.
const MARK: &str = "// kernel ";

/// The module with one kernel.
///
/// # Errors
/// [`Error::NoKernels`], for a name that is not there.
pub(super) fn module(name: &CStr) -> Result<CString, Error> {
    let name = name.to_string_lossy();
    let mut parts = ALL.split(MARK);
    let head = parts.next().unwrap_or_default();
    parts
        .find(|part| part.lines().next() == Some(&name))
        .and_then(|kernel| CString::new(format!("{head}{MARK}{kernel}")).ok())
        .ok_or_else(|| Error::NoKernels {
            vendor: Vendor::Cuda,
            reason: format!("there is no {name}"),
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_has_one_kernel() {
        let text = module(c"hetccl_reduce_sum_f32").unwrap().into_string().unwrap();
        assert!(text.contains(".version") && text.contains(".target"), "{text}");
        assert_eq!(text.matches(".entry").count(), 1);
        assert!(text.contains(".entry hetccl_reduce_sum_f32("));
        assert!(module(c"hetccl_reduce_sum").is_err());
    }
}
