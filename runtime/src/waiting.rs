//! Waiting for several things at once.

use hetccl_core::Handle;

/// Whether everything in `handles` has finished; what has is taken out.
///
/// # Errors
/// The first failure; its handle is gone.
pub(crate) fn all_finished<E>(
    handles: &mut Vec<Handle>,
    mut test: impl FnMut(Handle) -> Result<bool, E>,
) -> Result<bool, E> {
    while let Some(&handle) = handles.last() {
        match test(handle) {
            Ok(false) => return Ok(false),
            ended => {
                handles.pop();
                ended?;
            }
        }
    }
    Ok(true)
}
