//! The way in of every exported function: `entries!` makes the function, its `pnccl` twin and its line in the table.

use std::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::abi::{Code, CommHandle};
use crate::{Failure, log};

/// What a function does for hetccl's own communicators.
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
    /// Whether it goes to the vendor's library for communicators that are handed on.
    pub handed_on: bool,
}

/// Runs a function of the interface: a panic is an error, an error has a text.
pub fn enter(name: &'static str, body: impl FnOnce() -> Result<(), Failure>) -> c_int {
    enter_either(name, || body().map(|()| Code::Success as c_int))
}

/// As [`enter`], for what may be done by the vendor's library, whose code is passed on.
pub fn enter_either(name: &'static str, body: impl FnOnce() -> Result<c_int, Failure>) -> c_int {
    let result = catch_unwind(AssertUnwindSafe(body));
    let failure = match result {
        Ok(Ok(code)) => return code,
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

/// What a refused function does: the text says what to do instead.
pub fn refuse(name: &'static str, text: &'static str) -> c_int {
    enter(name, || Err(Failure::usage(text)))
}

/// What a function does that hetccl refuses for its own communicators.
pub fn refuse_for(name: &'static str, comm: CommHandle, text: &'static str) -> c_int {
    enter(name, || {
        crate::comm::find(comm)?;
        Err(Failure::usage(text))
    })
}

/// Functions of the interface.
///
/// | section | for hetccl's communicators | for those of the vendor's library |
/// |---|---|---|
/// | `own` | the body, a `Result<(), Failure>` | the same |
/// | `both` | the body, a `Result<c_int, Failure>` with the code of either | the same |
/// | `handed` | the body | the vendor's function; `by` names the communicator |
/// | `refused` | the text | the vendor's function; `by` names the communicator |
/// | `without` | the text | the vendor's function, where its library is in use |
/// | `plain` | the body, of any type | the same |
/// | `asked` | the body, which refuses | the body, which asks the vendor's library |
/// | `answered` | the body, which answers | the same |
#[macro_export]
#[allow(clippy::crate_in_macro_def)]
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
    (@line $name:ident $state:ident $handed_on:literal) => {
        $crate::entry::Function {
            name: stringify!($name),
            state: $crate::entry::State::$state,
            handed_on: $handed_on,
        }
    };
    (@vendors $name:ident ($($arg:ident: $type:ty),*) -> $result:ty) => {{
        static SLOT: $crate::delegate::Slot = $crate::delegate::Slot::new();
        const NAME: &std::ffi::CStr =
            match std::ffi::CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                Ok(name) => name,
                Err(_) => panic!("a name without zeros"),
            };
        SLOT.find(crate::LIBRARY, NAME).map(|function| {
            let function: unsafe extern "C" fn($($type),*) -> $result =
                // SAFETY: the function has this type in every version that has it.
                unsafe { std::mem::transmute(function) };
            // SAFETY: the caller's promise.
            unsafe { function($($arg),*) }
        })
    }};
    (@handed $name:ident ($($arg:ident: $type:ty),*) $comm:ident) => {
        if let Some($comm) = $crate::delegate::vendor_comm($comm) {
            let code = $crate::entries! { @vendors $name ($($arg: $type),*) -> std::ffi::c_int };
            return match code {
                Some(code) => $crate::delegate::told(crate::LIBRARY, stringify!($name), code),
                None => $crate::delegate::missing(crate::LIBRARY, stringify!($name)),
            };
        }
    };
    (
        own { $(fn $own:ident ($($oarg:ident: $otype:ty),* $(,)?) $obody:block)* }
        both { $(fn $both:ident ($($barg:ident: $btype:ty),* $(,)?) $bbody:block)* }
        handed { $(fn $handed:ident ($($harg:ident: $htype:ty),* $(,)?) by $hcomm:ident $hbody:block)* }
        refused { $(fn $refused:ident ($($rarg:ident: $rtype:ty),* $(,)?) by $rcomm:ident = $rtext:expr;)* }
        without { $(fn $without:ident ($($warg:ident: $wtype:ty),* $(,)?) = $wtext:expr;)* }
        plain { $(fn $plain:ident ($($parg:ident: $ptype:ty),* $(,)?) -> $presult:ty $pbody:block)* }
        $(asked { $(fn $asked:ident ($($aarg:ident: $atype:ty),* $(,)?) -> $aresult:ty $abody:block)* })?
        $(answered { $(fn $answered:ident ($($narg:ident: $ntype:ty),* $(,)?) -> $nresult:ty $nbody:block)* })?
    ) => {
        /// The functions of this file.
        pub const FUNCTIONS: &[$crate::entry::Function] = &[
            $($crate::entries! { @line $own Own false },)*
            $($crate::entries! { @line $both Own true },)*
            $($crate::entries! { @line $handed Own true },)*
            $($crate::entries! { @line $refused Refused true },)*
            $($crate::entries! { @line $without Refused true },)*
            $($crate::entries! { @line $plain Own false },)*
            $($($crate::entries! { @line $asked Refused true },)*)?
            $($($crate::entries! { @line $answered Own true },)*)?
        ];
        $($crate::entries! { @exported $own($($oarg: $otype),*) -> std::ffi::c_int,
            $crate::entry::enter(stringify!($own), || $obody) })*
        $($crate::entries! { @exported $both($($barg: $btype),*) -> std::ffi::c_int,
            $crate::entry::enter_either(stringify!($both), || $bbody) })*
        $($crate::entries! { @exported $handed($($harg: $htype),*) -> std::ffi::c_int, {
            $crate::entries! { @handed $handed ($($harg: $htype),*) $hcomm }
            $crate::entry::enter(stringify!($handed), || $hbody)
        } })*
        $($crate::entries! { @exported $refused($($rarg: $rtype),*) -> std::ffi::c_int, {
            $crate::entries! { @handed $refused ($($rarg: $rtype),*) $rcomm }
            $crate::entry::refuse_for(stringify!($refused), $rcomm, $rtext)
        } })*
        $($crate::entries! { @exported $without($($warg: $wtype),*) -> std::ffi::c_int, {
            let code = $crate::entries! { @vendors $without ($($warg: $wtype),*) -> std::ffi::c_int };
            match code {
                Some(code) => $crate::delegate::told(crate::LIBRARY, stringify!($without), code),
                None => $crate::entry::refuse(stringify!($without), $wtext),
            }
        } })*
        $($crate::entries! { @exported $plain($($parg: $ptype),*) -> $presult, $pbody })*
        $($($crate::entries! { @exported $asked($($aarg: $atype),*) -> $aresult, $abody })*)?
        $($($crate::entries! { @exported $answered($($narg: $ntype),*) -> $nresult, $nbody })*)?
    };
}
