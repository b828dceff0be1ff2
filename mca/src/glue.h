/* What hetccl needs of Open MPI's internals that are macros or inline functions, as plain functions.
 *
 * Only this header and glue.c know Open MPI's macros; Rust sees these functions and the types that they name.
 * Every function returns an Open MPI status (0 is success) unless it says otherwise. */
#ifndef HETCCL_GLUE_H
#define HETCCL_GLUE_H

#include "ompi_config.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ompi/communicator/communicator.h"
#include "ompi/constants.h"
#include "ompi/datatype/ompi_datatype.h"
#include "ompi/mca/coll/base/base.h"
#include "ompi/mca/coll/base/coll_base_util.h"
#include "ompi/mca/coll/coll.h"
#include "ompi/op/op.h"
#include "ompi/request/request.h"

/* ---- modules ---- */

/* A coll module with room for the plugin's own state, behind room for what later releases of a line add to the module. */
typedef struct hetccl_module_t {
    mca_coll_base_module_t super;
    void *reserved[8];
    void *state;
} hetccl_module_t;

/* Called with a module's state when its last reference goes. */
typedef void (*hetccl_drop_fn)(void *state);

/* A module with one reference, all functions null; null when there is no memory. */
hetccl_module_t *hetccl_module_new(hetccl_drop_fn drop, void *state);

/* ---- communicators ---- */

int hetccl_comm_rank(ompi_communicator_t *comm);
int hetccl_comm_size(ompi_communicator_t *comm);
bool hetccl_comm_is_inter(ompi_communicator_t *comm);
int hetccl_comm_remote_size(ompi_communicator_t *comm);
uint32_t hetccl_comm_context(ompi_communicator_t *comm);
/* Whether the context is the same number on all ranks. Communicators of MPI sessions have one of each process's own. */
bool hetccl_comm_context_is_global(ompi_communicator_t *comm);
ompi_communicator_t *hetccl_comm_local(ompi_communicator_t *comm);
void hetccl_comm_retain(ompi_communicator_t *comm);
/* local is the local communicator of an inter-communicator at the time it was retained, or null. */
void hetccl_comm_release(ompi_communicator_t *comm, ompi_communicator_t *local);
bool hetccl_comm_is_world(ompi_communicator_t *comm);
/* Process name (job << 32 | number in the job) of a rank of the local or remote group; no process is set up for it. */
uint64_t hetccl_comm_peer_name(ompi_communicator_t *comm, int rank, bool remote);
uint64_t hetccl_my_name(void);
bool hetccl_using_threads(void);

enum { HETCCL_TOPO_NONE, HETCCL_TOPO_CART, HETCCL_TOPO_GRAPH, HETCCL_TOPO_DIST_GRAPH };
int hetccl_comm_topology(ompi_communicator_t *comm);
/* Numbers of sources and destinations. */
int hetccl_topology_degrees(ompi_communicator_t *comm, int *sources, int *destinations);
/* Ranks of sources and destinations in MPI's order; a negative rank is MPI_PROC_NULL. */
int hetccl_topology_neighbors(ompi_communicator_t *comm, int *sources, int *destinations);

/* ---- datatypes ---- */

size_t hetccl_datatype_size(ompi_datatype_t *type);
/* Bytes of an element of a predefined type without gaps, or -1. */
ptrdiff_t hetccl_datatype_plain(ompi_datatype_t *type);
void hetccl_datatype_extent(ompi_datatype_t *type, ptrdiff_t *lb, ptrdiff_t *extent);
void hetccl_datatype_true_extent(ompi_datatype_t *type, ptrdiff_t *lb, ptrdiff_t *extent);
bool hetccl_datatype_contiguous(ompi_datatype_t *type, size_t count);
bool hetccl_datatype_predefined(ompi_datatype_t *type);
void hetccl_datatype_retain(ompi_datatype_t *type);
void hetccl_datatype_release(ompi_datatype_t *type);
int hetccl_datatype_pack(ompi_datatype_t *type, size_t count, const void *from, void *into, size_t bytes);
int hetccl_datatype_unpack(ompi_datatype_t *type, size_t count, const void *from, void *into, size_t bytes);

/* Kinds of predefined types that hetccl reduces itself; numbers as in hetccl_core's order, or -1. */
int hetccl_datatype_kind(ompi_datatype_t *type);

/* ---- operations ---- */

bool hetccl_op_commutative(ompi_op_t *op);
/* Kinds of predefined operations that hetccl computes itself; numbers as in hetccl_core's order, or -1. */
int hetccl_op_kind(ompi_op_t *op);
void hetccl_op_retain(ompi_op_t *op);
void hetccl_op_release(ompi_op_t *op);
/* inout = left op inout */
void hetccl_op_reduce(ompi_op_t *op, const void *left, void *inout, size_t count, ompi_datatype_t *type);

/* ---- requests ---- */

/* A request with room for the plugin's own state. Its base is what the MPI layer keeps datatypes and operations in
 * while a nonblocking collective runs. */
typedef struct hetccl_request_t {
    ompi_coll_base_nbc_request_t base;
    void *state;
} hetccl_request_t;

/* reused is a request that was retired, or null for a new one. */
hetccl_request_t *hetccl_request_new(hetccl_request_t *reused, ompi_communicator_t *comm, bool persistent,
                                     ompi_request_start_fn_t start, ompi_request_free_fn_t free_fn);
/* Marks a request as started. */
void hetccl_request_activate(hetccl_request_t *request);
/* Completes a request; wakes whoever waits. May call back into MPI: never under a lock. */
void hetccl_request_complete(hetccl_request_t *request, int error);
bool hetccl_request_is_complete(hetccl_request_t *request);
/* Ends a request's life for MPI; its memory stays, for another request. */
void hetccl_request_retire(hetccl_request_t *request);
/* MPI_REQUEST_NULL, for the free function. */
ompi_request_t *hetccl_request_null(void);

/* ---- point to point (PML) ---- */

int hetccl_pml_isend(const void *from, size_t bytes, int peer, int tag, ompi_communicator_t *comm,
                     ompi_request_t **request);
int hetccl_pml_irecv(void *into, size_t bytes, int peer, int tag, ompi_communicator_t *comm,
                     ompi_request_t **request);
/* Whether a message has finished; then its status is in *error, its length in *bytes, and the request is gone. */
bool hetccl_pml_test(ompi_request_t **request, int *error, size_t *bytes);
/* Asks for the end of a receive that nobody answers. */
void hetccl_pml_cancel(ompi_request_t *request);
const char *hetccl_pml_name(void);

/* ---- run-time environment ---- */

typedef int (*hetccl_progress_fn)(void);
void hetccl_progress(void);
int hetccl_progress_register(hetccl_progress_fn fn);
int hetccl_progress_unregister(hetccl_progress_fn fn);

/* Publishes bytes under a key for all processes; before MPI_Init's exchange. */
int hetccl_modex_put(const char *key, const void *bytes, size_t len);
/* Fetches what a process published. *bytes is to be freed with free(). */
int hetccl_modex_get(uint64_t peer, const char *key, void **bytes, size_t *len);

typedef struct hetccl_word_t {
    int value;
    const char *name;
} hetccl_word_t;

/* Registers MCA parameters of this component; *storage holds the default and gets the value.
 * level is 1 to 9, as ompi_info counts. */
int hetccl_param_int(const mca_base_component_t *component, const char *name, const char *help, int level,
                     int *storage);
int hetccl_param_size(const mca_base_component_t *component, const char *name, const char *help, int level,
                      size_t *storage);
/* words ends with a null name. */
int hetccl_param_word(const mca_base_component_t *component, const char *name, const char *help, int level,
                      const hetccl_word_t *words, int *storage);
/* Whether the user said --mca coll and named this component (with or without others). */
bool hetccl_named_in_coll(const char *name);
/* Whether the parameter coll lets a component take part: it names it, or is not given, or does not exclude it. */
bool hetccl_allowed_in_coll(const char *name);

/* Writes a line to the coll framework's verbose stream at a level. */
void hetccl_coll_verbose(int level, const char *line);
/* Shows a framed message for the user, once per job. */
void hetccl_show_error(const char *title, const char *text);

/* Adds a component to those that the coll framework was linked with, for an Open MPI that can't load any (configured
 * --disable-dlopen). Only before the framework is registered, so not when Open MPI itself is loading the component. */
void hetccl_join_static_components(const mca_base_component_t *component);

/* ---- fault tolerance (ULFM; Open MPI 5) ---- */

/* Whether this job survives failed processes (mpirun --with-ft ulfm). */
bool hetccl_ft_enabled(void);
/* Whether an error says that a process has failed. */
bool hetccl_ft_is_failed_process(int error);
/* The error class for a peer that is gone. */
int hetccl_ft_failed_process(void);
/* Lets a module answer MPIX_Comm_agree where no process can fail: by its own allreduce. Nothing where the interface has
 * no agreement. */
void hetccl_module_agree_without_failures(mca_coll_base_module_t *module);

/* ---- the library that runs ---- */

/* Name of the first object whose size differs between the headers of the build and the library that runs; null when all
 * agree. */
const char *hetccl_layout_mismatch(size_t *built_bytes, size_t *running_bytes);
/* MPI_Get_library_version. */
const char *hetccl_running_version(void);

enum {
    HETCCL_LAYOUT_MODULE,
    HETCCL_LAYOUT_MODULE_ENABLE,
    HETCCL_LAYOUT_MODULE_LAST_COLLECTIVE,
    HETCCL_LAYOUT_MODULE_REDUCE_LOCAL,
    HETCCL_LAYOUT_COMPONENT,
    HETCCL_LAYOUT_COMPONENT_QUERY,
    HETCCL_LAYOUT_REQUEST,
    HETCCL_LAYOUT_OWN_REQUEST_STATE,
    HETCCL_LAYOUT_OWN_MODULE_STATE,
};
/* Sizes and offsets as the C compiler has them, for a test. */
size_t hetccl_layout(int what);

#endif
