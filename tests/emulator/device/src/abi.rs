//! What C callers pass, and how calls come in.
//!
//! Arguments of the exported functions have the types below. They are pointers with a promise: C callers pass null, or an
//! address that the function's documentation allows. So only this file reads and writes through them.

use std::collections::HashMap;
use std::ffi::{CStr, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};

use crate::{Code, failure, is_fork_child};

/// Exported functions.
///
/// ```text
/// fn name / other_name = name_with_per_thread_default_stream(argument: Type, ...) { body: Result<(), Code> }
/// ```
///
/// The calling crate says in `entry::enter` and `entry::with_per_thread_default` what happens around each call.
#[macro_export]
#[allow(clippy::crate_in_macro_def)] // meant: the calling crate's functions
macro_rules! entries {
    (@function $(#[$meta:meta])* $name:ident ($($argument:ident : $type:ty),*) $body:block) => {
        $(#[$meta])*
        #[unsafe(no_mangle)]
        pub extern "C" fn $name($($argument: $type),*) -> i32 {
            crate::entry::enter(stringify!($name), move || $body)
        }
    };
    (@alias $name:ident $alias:ident ($($argument:ident : $type:ty),*)) => {
        #[unsafe(no_mangle)]
        pub extern "C" fn $alias($($argument: $type),*) -> i32 {
            $name($($argument),*)
        }
    };
    (@per_thread $name:ident $alias:ident ($($argument:ident : $type:ty),*)) => {
        #[unsafe(no_mangle)]
        pub extern "C" fn $alias($($argument: $type),*) -> i32 {
            crate::entry::with_per_thread_default(move || $name($($argument),*))
        }
    };
    (@item [$($meta:tt)*] $name:ident [$($alias:ident)*] [$($per_thread:ident)?] $arguments:tt $body:block) => {
        $crate::entries!(@function $($meta)* $name $arguments $body);
        $($crate::entries!(@alias $name $alias $arguments);)*
        $($crate::entries!(@per_thread $name $per_thread $arguments);)?
    };
    ($(
        $(#[$meta:meta])*
        fn $name:ident $(/ $alias:ident)* $(= $per_thread:ident)? ($($argument:tt)*) $body:block
    )*) => {
        $($crate::entries!(
            @item [$(#[$meta])*] $name [$($alias)*] [$($per_thread)?] ($($argument)*) $body
        );)*
    };
}

/// Runs an exported function's body: counts the call, refuses it after `fork`, holds panics back, makes the result a code.
pub fn enter(function: &str, body: impl FnOnce() -> Result<(), Code>) -> i32 {
    let checked = || {
        if is_fork_child() {
            return Err(Code::NOT_INITIALIZED);
        }
        failure::check(function)?;
        body()
    };
    match catch_unwind(AssertUnwindSafe(checked)) {
        Ok(Ok(())) => 0,
        Ok(Err(code)) => code.0,
        Err(_) => Code::UNKNOWN.0,
    }
}

/// Where a result goes.
#[repr(transparent)]
#[derive(Debug)]
pub struct Out<T>(*mut T);

impl<T> Clone for Out<T> {
    fn clone(&self) -> Out<T> {
        *self
    }
}

impl<T> Copy for Out<T> {}

impl<T> Out<T> {
    /// Writes the result.
    pub fn set(self, value: T) -> Result<(), Code> {
        self.check()?;
        self.set_if_wanted(value);
        Ok(())
    }

    /// Writes the result, unless the caller passed null.
    pub fn set_if_wanted(self, value: T) {
        if !self.0.is_null() {
            // SAFETY: the C caller's, as the module says.
            unsafe { self.0.write_unaligned(value) }
        }
    }

    /// Refuses null, before there is a result.
    pub fn check(self) -> Result<(), Code> {
        if self.0.is_null() { Err(Code::INVALID_VALUE) } else { Ok(()) }
    }

    /// The value that is there, for arguments that go both ways.
    pub fn get(self) -> Result<T, Code>
    where
        T: Copy,
    {
        In(self.0.cast_const()).get()
    }

    /// Did the caller pass null?
    pub fn is_null(self) -> bool {
        self.0.is_null()
    }

    /// The place of element `index` of an array.
    pub fn at(self, index: usize) -> Out<T> {
        Out(self.0.wrapping_add(index))
    }

    /// The same place for another type.
    pub fn cast<U>(self) -> Out<U> {
        Out(self.0.cast())
    }
}

impl Out<c_char> {
    /// Writes text with its 0, cut to `bytes`.
    pub fn set_text(self, bytes: i32, text: &str) -> Result<(), Code> {
        let Some(last) = usize::try_from(bytes).ok().and_then(|bytes| bytes.checked_sub(1)) else {
            return Err(Code::INVALID_VALUE);
        };
        let kept = &text.as_bytes()[..text.len().min(last)];
        for (index, &byte) in kept.iter().chain([&0]).enumerate() {
            self.at(index).set(byte as c_char)?;
        }
        Ok(())
    }
}

/// An argument that is passed by address.
#[repr(transparent)]
#[derive(Debug)]
pub struct In<T>(*const T);

impl<T: Copy> Clone for In<T> {
    fn clone(&self) -> In<T> {
        *self
    }
}

impl<T: Copy> Copy for In<T> {}

impl<T: Copy> In<T> {
    /// The value.
    pub fn get(self) -> Result<T, Code> {
        self.at(0)
    }

    /// Element `index` of an array.
    pub fn at(self, index: usize) -> Result<T, Code> {
        if self.0.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        // SAFETY: the C caller's, as the module says.
        Ok(unsafe { self.0.add(index).read_unaligned() })
    }

    /// The pointer itself.
    pub fn pointer(self) -> *const T {
        self.0
    }
}

/// A name.
#[repr(transparent)]
#[derive(Clone, Copy, Debug)]
pub struct Text(*const c_char);

impl Text {
    /// The name.
    pub fn get<'a>(self) -> Result<&'a str, Code> {
        if self.0.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        // SAFETY: the C caller's, as the module says: a string that ends with 0.
        unsafe { CStr::from_ptr(self.0) }.to_str().map_err(|_| Code::INVALID_VALUE)
    }
}

/// Objects by handle. Handles are numbers that are never used again, so that stale ones are found out.
#[derive(Debug)]
pub struct Table<T> {
    objects: Mutex<Option<HashMap<usize, Arc<T>>>>,
    first: usize,
    next: std::sync::atomic::AtomicUsize,
}

impl<T> Table<T> {
    /// A table; `kind` tells its handles from those of other tables.
    pub const fn new(kind: u16) -> Table<T> {
        Table {
            objects: Mutex::new(None),
            first: (kind as usize + 1) << 32,
            next: std::sync::atomic::AtomicUsize::new(1),
        }
    }

    /// A handle that [`Table::insert_as`] can give to an object.
    pub fn new_handle(&self) -> usize {
        self.first + 16 * self.next.fetch_add(1, std::sync::atomic::Ordering::Relaxed)
    }

    /// Takes an object in.
    pub fn insert(&self, object: Arc<T>) -> usize {
        let handle = self.new_handle();
        self.insert_as(handle, object);
        handle
    }

    /// Takes an object in under a handle that [`Table::new_handle`] made.
    pub fn insert_as(&self, handle: usize, object: Arc<T>) {
        self.lock(|objects| objects.insert(handle, object));
    }

    /// The object.
    pub fn get(&self, handle: usize) -> Result<Arc<T>, Code> {
        self.lock(|objects| objects.get(&handle).cloned()).ok_or(Code::INVALID_HANDLE)
    }

    /// The handle of an object that is here.
    pub fn handle_of(&self, object: &Arc<T>) -> Option<usize> {
        self.lock(|objects| {
            objects.iter().find(|(_, other)| Arc::ptr_eq(other, object)).map(|(&handle, _)| handle)
        })
    }

    /// Takes the object out.
    pub fn remove(&self, handle: usize) -> Result<Arc<T>, Code> {
        self.lock(|objects| objects.remove(&handle)).ok_or(Code::INVALID_HANDLE)
    }

    /// Takes out all objects that `unwanted` accepts.
    pub fn remove_all(&self, unwanted: impl Fn(&T) -> bool) -> Vec<Arc<T>> {
        self.lock(|objects| objects.extract_if_unwanted(unwanted))
    }

    fn lock<R>(&self, use_objects: impl FnOnce(&mut HashMap<usize, Arc<T>>) -> R) -> R {
        let mut objects = self.objects.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        use_objects(objects.get_or_insert_default())
    }
}

trait ExtractUnwanted<T> {
    fn extract_if_unwanted(&mut self, unwanted: impl Fn(&T) -> bool) -> Vec<Arc<T>>;
}

impl<T> ExtractUnwanted<T> for HashMap<usize, Arc<T>> {
    fn extract_if_unwanted(&mut self, unwanted: impl Fn(&T) -> bool) -> Vec<Arc<T>> {
        let found: Vec<usize> =
            self.iter().filter(|(_, object)| unwanted(object)).map(|(&handle, _)| handle).collect();
        found.into_iter().filter_map(|handle| self.remove(&handle)).collect()
    }
}
