//! Whether the Open MPI that this process runs with is the one that hetccl was built for.

use std::ffi::CStr;
use std::fmt;

use crate::sys;

/// The library that runs is not one that this build fits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MismatchError {
    /// What the library says of itself.
    pub running: String,
    /// What differs.
    pub difference: String,
}

impl fmt::Display for MismatchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "this component was built with Open MPI {}.{}.{} (coll interface {}), and the library here is {}: {}. Build hetccl \
             with this library's own development headers (HETCCL_MPICC names its compiler wrapper), or with those of \
             another release of the same line",
            sys::OMPI_MAJOR_VERSION,
            sys::OMPI_MINOR_VERSION,
            sys::OMPI_RELEASE_VERSION,
            sys::COLL_INTERFACE,
            self.running,
            self.difference
        )
    }
}

impl std::error::Error for MismatchError {}

/// Compares line and layout of the library that runs with those of the build.
///
/// # Errors
/// What differs.
pub fn check_running() -> Result<(), MismatchError> {
    // SAFETY: a static string of the glue, filled by a call that MPI allows at any time.
    let text = unsafe { CStr::from_ptr(sys::hetccl_running_version()) }.to_string_lossy();
    // "Open MPI v5.0.7, package: ..., ident: ..."
    let running = text.split(',').next().unwrap_or_default().trim().to_owned();
    let line = format!("{}.", sys::OPEN_MPI_LINE);
    let version = running.rsplit(' ').next().unwrap_or_default().trim_start_matches('v');
    if !version.starts_with(&line) {
        let difference = "another line of Open MPI".to_owned();
        return Err(MismatchError { running, difference });
    }
    let (mut built, mut here) = (0, 0);
    // SAFETY: the results are ours; the name is a constant of the glue.
    let name = unsafe { sys::hetccl_layout_mismatch(&mut built, &mut here) };
    if name.is_null() {
        return Ok(());
    }
    // SAFETY: not null, see above.
    let name = unsafe { CStr::from_ptr(name) }.to_string_lossy();
    let difference = format!("{name} has {here} bytes in it, {built} in the headers of the build");
    Err(MismatchError { running, difference })
}
