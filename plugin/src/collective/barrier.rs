//! MPI_Barrier, MPI_Ibarrier, MPI_Barrier_init.

use std::os::raw::c_int;

use hetccl_core::{Collective, Layout};

use crate::module::ModuleState;
use crate::prepared::Prepared;
use crate::state::Plugin;

crate::entry::entries! {
    () => translate, quick: crate::quick::barrier
}

/// # Safety
/// None needed; the signature is that of the other translations.
unsafe fn translate(state: &ModuleState) -> Result<Prepared, c_int> {
    let settings = &Plugin::get().settings;
    Ok(Prepared::movement(Collective::Barrier, state.group, settings, Layout::uniform(0)))
}
