//! UCP as its headers declare it (made by bindgen), the function table [`Api`], and what the headers hold as inline
//! code: pointers that may be a status.
#![allow(
    missing_docs,
    non_camel_case_types,
    non_snake_case,
    non_upper_case_globals,
    dead_code,
    unused_imports
)]
#![allow(clippy::all, clippy::undocumented_unsafe_blocks, unsafe_op_in_unsafe_fn)]

include!(concat!(env!("OUT_DIR"), "/ucp.rs"));

/// What a nonblocking call of UCP returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Started {
    /// Finished.
    Done,
    /// Under way; the request is the caller's to free.
    Request(std::ptr::NonNull<std::ffi::c_void>),
    /// Failed.
    Failed(ucs_status_t),
}

/// Reads a status pointer: null is success, the topmost addresses are negative statuses, all else is a request.
#[inline]
pub(crate) fn started(pointer: ucs_status_ptr_t) -> Started {
    match std::ptr::NonNull::new(pointer) {
        None => Started::Done,
        Some(_) if pointer as usize >= UCS_ERR_LAST as isize as usize => {
            Started::Failed(pointer as isize as ucs_status_t)
        }
        Some(request) => Started::Request(request),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_pointer_is_success_failure_or_request() {
        assert_eq!(started(std::ptr::null_mut()), Started::Done);
        for status in
            [UCS_ERR_NO_MESSAGE, UCS_ERR_MESSAGE_TRUNCATED, UCS_ERR_ENDPOINT_TIMEOUT, UCS_ERR_LAST]
        {
            assert_eq!(started(status as isize as ucs_status_ptr_t), Started::Failed(status));
        }
        let mut anything = 0u64;
        let pointer = (&raw mut anything).cast();
        assert!(
            matches!(started(pointer), Started::Request(request) if request.as_ptr() == pointer)
        );
    }
}
