//! What the drivers' interfaces share: functions that are found at run time, numbers that are pointers, and strings of fixed
//! length.

use std::ffi::c_char;

/// The pointer that a driver gave as a number.
pub(crate) fn pointer<T>(number: usize) -> *mut T {
    std::ptr::with_exposed_provenance_mut(number)
}

/// The text up to the first zero.
pub(crate) fn text(chars: &[c_char]) -> String {
    chars.iter().take_while(|&&c| c != 0).map(|&c| char::from(c as u8)).collect()
}

/// A table of a library's functions, and `from`, which finds them or says which one is missing.
macro_rules! functions {
    (
        $(#[$doc:meta])* $table:ident of $vendor:expr;
        $($field:ident: $name:literal ($($argument:ty),*) -> $result:ty;)*
    ) => {
        $(#[$doc])*
        #[derive(Debug)]
        pub(super) struct $table {
            $(pub(super) $field: unsafe extern "C" fn($($argument),*) -> $result,)*
            _library: libloading::Library,
        }

        impl $table {
            fn from(library: libloading::Library) -> Result<$table, $crate::error::Error> {
                Ok($table {
                    $($field: {
                        // SAFETY: the signature is that of the vendor's reference.
                        let found = unsafe { library.get(concat!($name, "\0").as_bytes()) };
                        let vendor = $vendor;
                        let missing = $crate::error::Error::TooOld { vendor, function: $name };
                        *found.map_err(|_| missing)?
                    },)*
                    _library: library,
                })
            }
        }
    };
}
pub(crate) use functions;
