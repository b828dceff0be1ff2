//! Level Zero's results as errors.
//!
//! Source: Level Zero specification, `ze_result_t`.

use std::ffi::c_int;

use crate::error::Error;

/// `ze_result_t`.
pub(super) type Status = c_int;

/// `ZE_RESULT_SUCCESS`.
pub(super) const SUCCESS: Status = 0;
/// `ZE_RESULT_NOT_READY`.
pub(super) const NOT_READY: Status = 1;
/// `ZE_RESULT_ERROR_UNINITIALIZED`: no driver has a device.
pub(super) const UNINITIALIZED: Status = 0x7800_0001;
/// `ZE_RESULT_ERROR_UNSUPPORTED_FEATURE`.
pub(super) const UNSUPPORTED_FEATURE: Status = 0x7800_0003;
/// `ZE_RESULT_ERROR_MODULE_BUILD_FAILURE`.
pub(super) const BUILD_FAILURE: Status = 0x7000_0004;

/// Every error, without `ZE_RESULT_ERROR_`.
const NAMES: [(Status, &str); 37] = [
    (0x7000_0001, "DEVICE_LOST"),
    (0x7000_0002, "OUT_OF_HOST_MEMORY"),
    (0x7000_0003, "OUT_OF_DEVICE_MEMORY"),
    (BUILD_FAILURE, "MODULE_BUILD_FAILURE"),
    (0x7000_0005, "MODULE_LINK_FAILURE"),
    (0x7000_0006, "DEVICE_REQUIRES_RESET"),
    (0x7000_0007, "DEVICE_IN_LOW_POWER_STATE"),
    (0x7001_0000, "INSUFFICIENT_PERMISSIONS"),
    (0x7001_0001, "NOT_AVAILABLE"),
    (0x7002_0000, "DEPENDENCY_UNAVAILABLE"),
    (UNINITIALIZED, "UNINITIALIZED"),
    (0x7800_0002, "UNSUPPORTED_VERSION"),
    (UNSUPPORTED_FEATURE, "UNSUPPORTED_FEATURE"),
    (0x7800_0004, "INVALID_ARGUMENT"),
    (0x7800_0005, "INVALID_NULL_HANDLE"),
    (0x7800_0006, "HANDLE_OBJECT_IN_USE"),
    (0x7800_0007, "INVALID_NULL_POINTER"),
    (0x7800_0008, "INVALID_SIZE"),
    (0x7800_0009, "UNSUPPORTED_SIZE"),
    (0x7800_000a, "UNSUPPORTED_ALIGNMENT"),
    (0x7800_000b, "INVALID_SYNCHRONIZATION_OBJECT"),
    (0x7800_000c, "INVALID_ENUMERATION"),
    (0x7800_000d, "UNSUPPORTED_ENUMERATION"),
    (0x7800_000e, "UNSUPPORTED_IMAGE_FORMAT"),
    (0x7800_000f, "INVALID_NATIVE_BINARY"),
    (0x7800_0010, "INVALID_GLOBAL_NAME"),
    (0x7800_0011, "INVALID_KERNEL_NAME"),
    (0x7800_0012, "INVALID_FUNCTION_NAME"),
    (0x7800_0013, "INVALID_GROUP_SIZE_DIMENSION"),
    (0x7800_0014, "INVALID_GLOBAL_WIDTH_DIMENSION"),
    (0x7800_0015, "INVALID_KERNEL_ARGUMENT_INDEX"),
    (0x7800_0016, "INVALID_KERNEL_ARGUMENT_SIZE"),
    (0x7800_0017, "INVALID_KERNEL_ATTRIBUTE_VALUE"),
    (0x7800_0018, "INVALID_MODULE_UNLINKED"),
    (0x7800_0019, "INVALID_COMMAND_LIST_TYPE"),
    (0x7800_001a, "OVERLAPPING_REGIONS"),
    (0x7fff_fffe, "UNKNOWN"),
];

/// # Errors
/// Every status but success.
#[inline]
pub(super) fn check(function: &'static str, status: Status) -> Result<(), Error> {
    if status == SUCCESS { Ok(()) } else { Err(failed(function, status)) }
}

/// The error for a status. Level Zero has no explanations: the name says it in words.
#[cold]
pub(super) fn failed(function: &'static str, status: Status) -> Error {
    let name = NAMES.iter().find(|(code, _)| *code == status).map(|(_, name)| *name);
    let text = match name {
        Some(name) => name.to_lowercase().replace('_', " "),
        None => format!("result {status:#x}"),
    };
    let name = name.map_or("no name".to_owned(), |name| format!("ZE_RESULT_ERROR_{name}"));
    Error::Call { function, code: status, name, text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_have_the_names_of_the_specification() {
        assert_eq!(check("zeInit", SUCCESS), Ok(()));
        let error = check("zeMemAllocDevice", 0x7000_0003).unwrap_err().to_string();
        let expected = "zeMemAllocDevice failed: ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY (1879048195): \
             out of device memory";
        assert_eq!(error, expected);
        assert!(failed("zeInit", 5).to_string().contains("result 0x5"));
    }
}
