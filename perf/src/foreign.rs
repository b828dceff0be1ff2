//! Foreign functions found at run time.

use anyhow::{Context, Result};
use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_LOCAL, RTLD_NOW};

/// A library of functions, kept open until the program ends.
pub(crate) struct Foreign {
    library: Library,
    name: String,
}

impl Foreign {
    /// Opens the first of some names that is there. `global`: its symbols serve libraries that are opened later.
    pub(crate) fn open(names: &[&str], global: bool) -> Result<Foreign> {
        let flags = RTLD_NOW | if global { RTLD_GLOBAL } else { RTLD_LOCAL };
        let mut why = String::new();
        for name in names {
            // SAFETY: a library that programs of its kind open; its initialisers are its own business.
            match unsafe { Library::open(Some(name), flags) } {
                Ok(library) => return Ok(Foreign { library, name: (*name).to_owned() }),
                Err(error) => why.push_str(&format!("\n  {name}: {error}")),
            }
        }
        anyhow::bail!("none of these could be opened:{why}")
    }

    /// A function, or the address of a variable.
    ///
    /// # Safety
    /// `T` is a function pointer, or a pointer, that fits the symbol.
    pub(crate) unsafe fn get<T: Copy>(&self, symbol: &str) -> Result<T> {
        // SAFETY: the caller's promise. The library is never closed: its owner is leaked by `keep`.
        let found = unsafe { self.library.get::<T>(symbol.as_bytes()) };
        Ok(*found.with_context(|| format!("{} has no {symbol}", self.name))?)
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }
}
