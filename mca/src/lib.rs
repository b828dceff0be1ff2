//! Open MPI's internal component interface, as far as a collective component needs it.
//!
//! The bindings in [`sys`] are generated from the installed development headers; `glue.c` gives its macros and inline
//! functions an address. The other modules are thin wrappers that own what they must release. Pointers that
//! Open MPI hands to a component are taken at its word: each `from_raw` says for how long.
//!
//! Two coll interfaces are known, 2.3.0 (Open MPI 4.1) and 2.4.0 (5.0); the build script looks which one the headers have.
//! What both share is here and in `glue.c`; what differs is a header each in `line/`, with the same names. The library that a
//! process runs with may be another than that of the build: [`check_running`] compares them.

mod communicator;
mod datatype;
mod environment;
mod module;
mod op;
mod pml;
mod request;
mod running;

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
    include!(concat!(env!("OUT_DIR"), "/line.rs"));
}

pub use communicator::{CommunicatorRef, ProcessName, RetainedCommunicator, Topology};
pub use datatype::{Datatype, DatatypeRef};
pub use environment::{
    ParameterError, Parameters, allowed_in_coll, coll_verbose, failed_process_error,
    join_static_components, modex_get, modex_put, my_name, named_in_coll, pml_name, progress,
    register_progress, show_error, survives_failures, tell, unregister_progress,
};
pub use module::{ModuleRef, new_module};
pub use op::{Op, OpRef};
pub use pml::PmlTransport;
pub use request::Request;
pub use running::{MismatchError, check_running};

/// `MPI_IN_PLACE`, as Open MPI spells it.
pub fn is_in_place(buffer: *const std::ffi::c_void) -> bool {
    buffer.addr() == 1
}

#[cfg(test)]
mod tests {
    use std::mem::offset_of;

    use super::sys;

    /// Sizes of the module and the request in the releases that were looked at.
    #[cfg(coll_2_3_0)]
    const KNOWN_BYTES: &[(usize, usize)] = &[(584, 160)];
    #[cfg(coll_2_4_0)]
    const KNOWN_BYTES: &[(usize, usize)] = &[(592, 160), (600, 160)];

    #[test]
    fn layouts_are_those_of_the_line() {
        let found = (size_of::<sys::mca_coll_base_module_t>(), size_of::<sys::ompi_request_t>());
        assert!(KNOWN_BYTES.contains(&found), "{found:?}, coll interface {}", sys::COLL_INTERFACE);
        assert!(size_of::<sys::hetccl_module_t>() > size_of::<sys::mca_coll_base_module_t>());
    }

    /// The bindings come from libclang, the glue from the C compiler: both must see the same types.
    #[test]
    fn bindings_and_c_compiler_agree() {
        use sys::{hetccl_module_t, hetccl_request_t, mca_coll_base_component_t as Component};
        use sys::{mca_coll_base_module_t as Module, ompi_request_t};
        let ours = [
            (sys::HETCCL_LAYOUT_MODULE, size_of::<Module>()),
            (sys::HETCCL_LAYOUT_MODULE_ENABLE, offset_of!(Module, coll_module_enable)),
            (
                sys::HETCCL_LAYOUT_MODULE_LAST_COLLECTIVE,
                offset_of!(Module, coll_neighbor_alltoallw_init),
            ),
            (sys::HETCCL_LAYOUT_MODULE_REDUCE_LOCAL, offset_of!(Module, coll_reduce_local)),
            (sys::HETCCL_LAYOUT_COMPONENT, size_of::<Component>()),
            (sys::HETCCL_LAYOUT_COMPONENT_QUERY, offset_of!(Component, collm_comm_query)),
            (sys::HETCCL_LAYOUT_REQUEST, size_of::<ompi_request_t>()),
            (sys::HETCCL_LAYOUT_OWN_REQUEST_STATE, offset_of!(hetccl_request_t, state)),
            (sys::HETCCL_LAYOUT_OWN_MODULE_STATE, offset_of!(hetccl_module_t, state)),
        ];
        for (what, bytes) in ours {
            // SAFETY: returns a constant.
            assert_eq!(unsafe { sys::hetccl_layout(what as i32) }, bytes, "layout {what}");
        }
    }

    #[test]
    fn the_library_here_is_that_of_the_build() {
        assert_eq!(super::check_running(), Ok(()));
    }
}
