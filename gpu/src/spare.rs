//! Memory that nobody uses, for whoever in the process wants some, where streams of the program may wait for the library: it is
//! not given back to the driver, because that could wait for them.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::driver::Context;

/// A block of memory.
#[derive(Clone, Copy, Debug)]
struct Spare {
    context: Context,
    is_pinned: bool,
    address: usize,
    len_bytes: usize,
}

static SPARE: Mutex<Vec<Spare>> = Mutex::new(Vec::new());

fn all() -> MutexGuard<'static, Vec<Spare>> {
    SPARE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A block of this length, pinned host memory or device memory.
pub(crate) fn take(context: Context, is_pinned: bool, len_bytes: usize) -> Option<usize> {
    let mut all = all();
    let index = all.iter().position(|spare| {
        spare.context == context && spare.is_pinned == is_pinned && spare.len_bytes == len_bytes
    })?;
    Some(all.swap_remove(index).address)
}

/// Takes a block in.
pub(crate) fn put(context: Context, is_pinned: bool, address: usize, len_bytes: usize) {
    all().push(Spare { context, is_pinned, address, len_bytes });
}
