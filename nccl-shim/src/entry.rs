//! The way in of every exported function: `entries!` makes the function, its `pnccl` twin and its line in the table.

use std::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::abi::Code;
use crate::{Failure, log};

/// What a function is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// hetccl does it.
    Own,
    /// Returns `ncclInvalidUsage` with a text.
    Refused,
}

/// One exported function.
#[derive(Clone, Copy, Debug)]
pub struct Function {
    /// Its name; there is a twin with a `p` before it.
    pub name: &'static str,
    /// What it does.
    pub state: State,
}

/// Runs a function of the interface: a panic is an error, an error has a text.
pub fn enter(name: &'static str, body: impl FnOnce() -> Result<(), Failure>) -> c_int {
    let result = catch_unwind(AssertUnwindSafe(body));
    let failure = match result {
        Ok(Ok(())) => return Code::Success as c_int,
        Ok(Err(failure)) => failure,
        Err(panic) => {
            let words = panic.downcast_ref::<String>().map(String::as_str);
            let words = words.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("");
            Failure::new(Code::InternalError, format!("a mistake in hetccl: {words}"))
        }
    };
    if failure.code != Code::InProgress {
        log::failed(name, &failure.text);
    }
    failure.code as c_int
}

/// What a refused function does.
pub fn refuse(name: &'static str) -> c_int {
    enter(name, || {
        Err(Failure::usage(
            "hetccl does not have this function: it needs NCCL's own kernels or is not written yet",
        ))
    })
}

/// Functions of the interface. `own` ones give a `Result<(), Failure>`, `plain` ones the value itself.
#[macro_export]
macro_rules! entries {
    (@exported $name:ident ($($arg:ident: $type:ty),*) -> $result:ty, $body:expr) => {
        /// As in NCCL's documentation.
        ///
        /// # Safety
        /// Pointers are what the documentation says.
        #[cfg_attr(hetccl_exports, unsafe(no_mangle))]
        #[allow(non_snake_case)]
        pub unsafe extern "C" fn $name($($arg: $type),*) -> $result { $body }

        const _: () = {
            #[cfg_attr(hetccl_exports, unsafe(export_name = concat!("p", stringify!($name))))]
            unsafe extern "C" fn twin($($arg: $type),*) -> $result {
                // SAFETY: the caller's promise.
                unsafe { $name($($arg),*) }
            }
            #[cfg(not(hetccl_exports))]
            #[allow(dead_code)]
            const TWIN: unsafe extern "C" fn($($type),*) -> $result = twin;
        };
    };
    (
        own { $(fn $own:ident ($($arg:ident: $type:ty),* $(,)?) $body:block)* }
        plain { $(fn $plain:ident ($($parg:ident: $ptype:ty),* $(,)?) -> $presult:ty $pbody:block)* }
        refused { $($refused:ident)* }
    ) => {
        /// The functions of this file.
        pub const FUNCTIONS: &[$crate::entry::Function] = &[
            $($crate::entry::Function { name: stringify!($own), state: $crate::entry::State::Own },)*
            $($crate::entry::Function { name: stringify!($plain), state: $crate::entry::State::Own },)*
            $($crate::entry::Function { name: stringify!($refused), state: $crate::entry::State::Refused },)*
        ];
        $($crate::entries! { @exported $own($($arg: $type),*) -> std::ffi::c_int,
            $crate::entry::enter(stringify!($own), || $body) })*
        $($crate::entries! { @exported $plain($($parg: $ptype),*) -> $presult, $pbody })*
        $($crate::entries! { @exported $refused() -> std::ffi::c_int,
            $crate::entry::refuse(stringify!($refused)) })*
    };
}
