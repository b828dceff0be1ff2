//! Open MPI's internal component interface, as far as a collective component needs it.
//!
//! The bindings in [`sys`] are generated from the installed development headers; `glue.c` gives its macros and inline
//! functions an address. The other modules are thin wrappers that own what they must release. Pointers that
//! Open MPI hands to a component are taken at its word: each `from_raw` says for how long.
//!
//! One coll interface version is known so far, 2.3.0 (Open MPI 4.1); the build script looks for it in the headers.

mod communicator;
mod datatype;
mod environment;
mod module;
mod op;
mod pml;
mod request;

/// The generated bindings.
#[allow(
    missing_docs,
    non_camel_case_types,
    non_upper_case_globals,
    non_snake_case,
    dead_code,
    unused_imports,
    clippy::all,
    clippy::undocumented_unsafe_blocks
)]
pub mod sys {
    include!(concat!(env!("OUT_DIR"), "/bindings.rs"));
}

pub use communicator::{CommunicatorRef, ProcessName, RetainedCommunicator, Topology};
pub use datatype::{Datatype, DatatypeRef};
pub use environment::{
    ParameterError, Parameters, coll_verbose, modex_get, modex_put, my_name, named_in_coll,
    pml_name, progress, register_progress, show_error, tell, unregister_progress,
};
pub use module::{ModuleRef, new_module};
pub use op::{Op, OpRef};
pub use pml::PmlTransport;
pub use request::Request;

/// `MPI_IN_PLACE`, as Open MPI spells it.
pub fn is_in_place(buffer: *const std::ffi::c_void) -> bool {
    buffer.addr() == 1
}

#[cfg(all(test, coll_2_3_0))]
mod tests {
    use super::sys;

    #[test]
    fn layouts_are_those_of_open_mpi_4_1() {
        assert_eq!(size_of::<sys::mca_coll_base_module_t>(), 584);
        assert_eq!(size_of::<sys::ompi_request_t>(), 160);
        assert!(size_of::<sys::hetccl_module_t>() > size_of::<sys::mca_coll_base_module_t>());
    }
}
