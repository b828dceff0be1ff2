/* See glue.h. Calls Open MPI's macros and inline functions; no logic of hetccl's own.
 *
 * What differs between the lines of Open MPI is in line/: one header for each coll interface, with the same names. */
#include "glue.h"

#include <stdlib.h>
#include <string.h>

#include "ompi/group/group.h"
#include "ompi/mca/pml/base/base.h"
#include "ompi/mca/pml/pml.h"
#include "ompi/mca/topo/topo.h"
#include "ompi/proc/proc.h"
#include "opal/datatype/opal_convertor.h"
#include "opal/mca/base/base.h"
#include "opal/runtime/opal_progress.h"
#include "opal/util/output.h"
#include "opal/util/show_help.h"

#include HETCCL_LINE_HEADER

/* ---- modules ---- */

static hetccl_drop_fn module_drop;

static void module_destruct(hetccl_module_t *module)
{
    if (NULL != module->state && NULL != module_drop) {
        module_drop(module->state);
    }
    module->state = NULL;
}

OBJ_CLASS_INSTANCE(hetccl_module_t, mca_coll_base_module_t, NULL, module_destruct);

hetccl_module_t *hetccl_module_new(hetccl_drop_fn drop, void *state)
{
    hetccl_module_t *module = OBJ_NEW(hetccl_module_t);
    if (NULL != module) {
        module_drop = drop;
        module->state = state;
    }
    return module;
}

/* ---- communicators ---- */

int hetccl_comm_rank(ompi_communicator_t *comm) { return ompi_comm_rank(comm); }
int hetccl_comm_size(ompi_communicator_t *comm) { return ompi_comm_size(comm); }
bool hetccl_comm_is_inter(ompi_communicator_t *comm) { return OMPI_COMM_IS_INTER(comm); }
int hetccl_comm_remote_size(ompi_communicator_t *comm) { return ompi_comm_remote_size(comm); }
uint32_t hetccl_comm_context(ompi_communicator_t *comm) { return line_comm_context(comm); }
bool hetccl_comm_context_is_global(ompi_communicator_t *comm) { return line_comm_context_is_global(comm); }
ompi_communicator_t *hetccl_comm_local(ompi_communicator_t *comm) { return comm->c_local_comm; }
bool hetccl_comm_is_world(ompi_communicator_t *comm) { return comm == MPI_COMM_WORLD; }
/* MPI_Comm_free of an inter-communicator lets go of its local one at once, whoever else has the former. */
void hetccl_comm_retain(ompi_communicator_t *comm)
{
    OBJ_RETAIN(comm);
    if (OMPI_COMM_IS_INTER(comm)) {
        OBJ_RETAIN(comm->c_local_comm);
    }
}

void hetccl_comm_release(ompi_communicator_t *comm, ompi_communicator_t *local)
{
    OBJ_RELEASE(comm);
    if (NULL != local) {
        OBJ_RELEASE(local);
    }
}

bool hetccl_using_threads(void) { return opal_using_threads(); }

static uint64_t name_to_number(opal_process_name_t name)
{
    return (uint64_t) name.jobid << 32 | name.vpid;
}

uint64_t hetccl_comm_peer_name(ompi_communicator_t *comm, int rank, bool remote)
{
    ompi_group_t *group = remote ? comm->c_remote_group : comm->c_local_group;
    return name_to_number(ompi_group_get_proc_name(group, rank));
}

uint64_t hetccl_my_name(void) { return name_to_number(OPAL_PROC_MY_NAME); }

int hetccl_comm_topology(ompi_communicator_t *comm)
{
    if (OMPI_COMM_IS_CART(comm)) {
        return HETCCL_TOPO_CART;
    }
    if (OMPI_COMM_IS_GRAPH(comm)) {
        return HETCCL_TOPO_GRAPH;
    }
    return OMPI_COMM_IS_DIST_GRAPH(comm) ? HETCCL_TOPO_DIST_GRAPH : HETCCL_TOPO_NONE;
}

int hetccl_topology_degrees(ompi_communicator_t *comm, int *sources, int *destinations)
{
    switch (hetccl_comm_topology(comm)) {
    case HETCCL_TOPO_CART:
        *sources = *destinations = 2 * comm->c_topo->mtc.cart->ndims;
        return OMPI_SUCCESS;
    case HETCCL_TOPO_GRAPH: {
        int rc = comm->c_topo->topo.graph.graph_neighbors_count(comm, ompi_comm_rank(comm), sources);
        *destinations = *sources;
        return rc;
    }
    case HETCCL_TOPO_DIST_GRAPH:
        *sources = comm->c_topo->mtc.dist_graph->indegree;
        *destinations = comm->c_topo->mtc.dist_graph->outdegree;
        return OMPI_SUCCESS;
    default:
        return OMPI_ERR_NOT_SUPPORTED;
    }
}

static int cart_neighbors(ompi_communicator_t *comm, int *ranks)
{
    const mca_topo_base_comm_cart_t *cart = comm->c_topo->mtc.cart;
    for (int dim = 0; dim < cart->ndims; ++dim) {
        int rc = comm->c_topo->topo.cart.cart_shift(comm, dim, 1, &ranks[2 * dim], &ranks[2 * dim + 1]);
        if (OMPI_SUCCESS != rc) {
            return rc;
        }
    }
    return OMPI_SUCCESS;
}

int hetccl_topology_neighbors(ompi_communicator_t *comm, int *sources, int *destinations)
{
    int rc = OMPI_SUCCESS, in, out;
    switch (hetccl_comm_topology(comm)) {
    case HETCCL_TOPO_CART:
        rc = cart_neighbors(comm, sources);
        break;
    case HETCCL_TOPO_GRAPH:
        rc = hetccl_topology_degrees(comm, &in, &out);
        if (OMPI_SUCCESS == rc) {
            rc = comm->c_topo->topo.graph.graph_neighbors(comm, ompi_comm_rank(comm), in, sources);
        }
        break;
    case HETCCL_TOPO_DIST_GRAPH: {
        const mca_topo_base_comm_dist_graph_t *graph = comm->c_topo->mtc.dist_graph;
        memcpy(sources, graph->in, sizeof(int) * graph->indegree);
        memcpy(destinations, graph->out, sizeof(int) * graph->outdegree);
        return OMPI_SUCCESS;
    }
    default:
        return OMPI_ERR_NOT_SUPPORTED;
    }
    if (OMPI_SUCCESS == rc && OMPI_SUCCESS == (rc = hetccl_topology_degrees(comm, &in, &out))) {
        memcpy(destinations, sources, sizeof(int) * out);
    }
    return rc;
}

/* ---- datatypes ---- */

size_t hetccl_datatype_size(ompi_datatype_t *type)
{
    size_t size;
    ompi_datatype_type_size(type, &size);
    return size;
}

ptrdiff_t hetccl_datatype_plain(ompi_datatype_t *type)
{
    const opal_datatype_t *super = &type->super;
    ptrdiff_t size = (ptrdiff_t) super->size;
    bool plain = ompi_datatype_is_predefined(type) && 0 == super->lb && 0 == super->true_lb && size == super->ub
                 && size == super->true_ub && (super->flags & OPAL_DATATYPE_FLAG_CONTIGUOUS);
    return plain ? size : -1;
}

void hetccl_datatype_extent(ompi_datatype_t *type, ptrdiff_t *lb, ptrdiff_t *extent)
{
    ompi_datatype_get_extent(type, lb, extent);
}

void hetccl_datatype_true_extent(ompi_datatype_t *type, ptrdiff_t *lb, ptrdiff_t *extent)
{
    ompi_datatype_get_true_extent(type, lb, extent);
}

bool hetccl_datatype_contiguous(ompi_datatype_t *type, size_t count)
{
    /* Open MPI takes 32 bits; two elements are contiguous when any number of them is. */
    return 0 != ompi_datatype_is_contiguous_memory_layout(type, count > 2 ? 2 : (int32_t) count);
}

bool hetccl_datatype_predefined(ompi_datatype_t *type) { return ompi_datatype_is_predefined(type); }

void hetccl_datatype_retain(ompi_datatype_t *type)
{
    if (!ompi_datatype_is_predefined(type)) {
        OBJ_RETAIN(type);
    }
}

void hetccl_datatype_release(ompi_datatype_t *type)
{
    if (!ompi_datatype_is_predefined(type)) {
        OBJ_RELEASE(type);
    }
}

/* One convertor from the first to the last byte; Open MPI may want several rounds. */
static int convert(bool pack, ompi_datatype_t *type, size_t count, void *typed, void *packed, size_t bytes)
{
    opal_convertor_t convertor;
    size_t done = 0;
    int rc;

    if (0 == bytes) {
        return OMPI_SUCCESS;
    }
    OBJ_CONSTRUCT(&convertor, opal_convertor_t);
    if (pack) {
        rc = opal_convertor_copy_and_prepare_for_send(ompi_proc_local()->super.proc_convertor, &type->super, count,
                                                      typed, 0, &convertor);
    } else {
        rc = opal_convertor_copy_and_prepare_for_recv(ompi_proc_local()->super.proc_convertor, &type->super, count,
                                                      typed, 0, &convertor);
    }
    while (OPAL_SUCCESS == rc && done < bytes) {
        struct iovec iov = {.iov_base = (char *) packed + done, .iov_len = bytes - done};
        uint32_t iovs = 1;
        size_t moved = bytes - done;
        int step = pack ? opal_convertor_pack(&convertor, &iov, &iovs, &moved)
                        : opal_convertor_unpack(&convertor, &iov, &iovs, &moved);
        done += moved;
        if (step < 0 || (0 == moved && done < bytes)) {
            rc = OMPI_ERROR;
        }
    }
    OBJ_DESTRUCT(&convertor);
    return rc;
}

int hetccl_datatype_pack(ompi_datatype_t *type, size_t count, const void *from, void *into, size_t bytes)
{
    return convert(true, type, count, (void *) from, into, bytes);
}

int hetccl_datatype_unpack(ompi_datatype_t *type, size_t count, const void *from, void *into, size_t bytes)
{
    return convert(false, type, count, into, (void *) from, bytes);
}

static int integer_kind(size_t size, bool is_signed)
{
    switch (size) {
    case 1: return is_signed ? 0 : 4;
    case 2: return is_signed ? 1 : 5;
    case 4: return is_signed ? 2 : 6;
    case 8: return is_signed ? 3 : 7;
    default: return -1;
    }
}

int hetccl_datatype_kind(ompi_datatype_t *type)
{
    /* C types that MPI gives arithmetic. Characters (MPI_CHAR) have none; Fortran and logical types are left to
     * Open MPI, whose idea of .true. is the compiler's. */
    const struct {
        ompi_datatype_t *type;
        size_t size;
        bool is_signed;
    } integers[] = {
        {&ompi_mpi_int.dt, sizeof(int), true},
        {&ompi_mpi_long.dt, sizeof(long), true},
        {&ompi_mpi_long_long_int.dt, sizeof(long long), true},
        {&ompi_mpi_unsigned.dt, sizeof(unsigned), false},
        {&ompi_mpi_unsigned_long.dt, sizeof(unsigned long), false},
        {&ompi_mpi_unsigned_long_long.dt, sizeof(unsigned long long), false},
        {&ompi_mpi_int64_t.dt, 8, true},
        {&ompi_mpi_uint64_t.dt, 8, false},
        {&ompi_mpi_int32_t.dt, 4, true},
        {&ompi_mpi_uint32_t.dt, 4, false},
        {&ompi_mpi_int8_t.dt, 1, true},
        {&ompi_mpi_uint8_t.dt, 1, false},
        {&ompi_mpi_int16_t.dt, 2, true},
        {&ompi_mpi_uint16_t.dt, 2, false},
        {&ompi_mpi_short.dt, sizeof(short), true},
        {&ompi_mpi_unsigned_short.dt, sizeof(unsigned short), false},
        {&ompi_mpi_signed_char.dt, 1, true},
        {&ompi_mpi_unsigned_char.dt, 1, false},
    };
    if (type == &ompi_mpi_double.dt) {
        return 11;
    }
    if (type == &ompi_mpi_float.dt) {
        return 10;
    }
    for (size_t i = 0; i < sizeof(integers) / sizeof(integers[0]); ++i) {
        if (type == integers[i].type) {
            return integer_kind(integers[i].size, integers[i].is_signed);
        }
    }
    return -1;
}

/* ---- operations ---- */

bool hetccl_op_commutative(ompi_op_t *op) { return ompi_op_is_commute(op); }

int hetccl_op_kind(ompi_op_t *op)
{
    ompi_op_t *const kinds[] = {
        &ompi_mpi_op_sum.op,  &ompi_mpi_op_prod.op, &ompi_mpi_op_min.op, &ompi_mpi_op_max.op, &ompi_mpi_op_land.op,
        &ompi_mpi_op_lor.op,  &ompi_mpi_op_lxor.op, &ompi_mpi_op_band.op, &ompi_mpi_op_bor.op, &ompi_mpi_op_bxor.op,
    };
    for (int i = 0; i < (int) (sizeof(kinds) / sizeof(kinds[0])); ++i) {
        if (op == kinds[i]) {
            return i;
        }
    }
    return -1;
}

void hetccl_op_retain(ompi_op_t *op)
{
    if (!ompi_op_is_intrinsic(op)) {
        OBJ_RETAIN(op);
    }
}

void hetccl_op_release(ompi_op_t *op)
{
    if (!ompi_op_is_intrinsic(op)) {
        OBJ_RELEASE(op);
    }
}

void hetccl_op_reduce(ompi_op_t *op, const void *left, void *inout, size_t count, ompi_datatype_t *type)
{
    const size_t most = 1 << 30;
    ptrdiff_t lb, extent;
    ompi_datatype_get_extent(type, &lb, &extent);
    while (count > 0) {
        size_t now = count < most ? count : most;
        ompi_op_reduce(op, (void *) left, inout, (int) now, type);
        left = (const char *) left + extent * (ptrdiff_t) now;
        inout = (char *) inout + extent * (ptrdiff_t) now;
        count -= now;
    }
}

/* ---- requests ---- */

OBJ_CLASS_INSTANCE(hetccl_request_t, ompi_coll_base_nbc_request_t, NULL, NULL);

static int request_cancel(ompi_request_t *request, int flag)
{
    (void) request;
    (void) flag;
    return MPI_ERR_REQUEST; /* MPI: collectives can't be cancelled */
}

hetccl_request_t *hetccl_request_new(hetccl_request_t *reused, ompi_communicator_t *comm, bool persistent,
                                     ompi_request_start_fn_t start, ompi_request_free_fn_t free_fn)
{
    hetccl_request_t *request = NULL != reused ? reused : OBJ_NEW(hetccl_request_t);
    if (NULL == request) {
        return NULL;
    }
    OMPI_REQUEST_INIT(&request->base.super, persistent);
    request->base.super.req_type = OMPI_REQUEST_COLL;
    request->base.super.req_status._cancelled = 0;
    request->base.super.req_status._ucount = 0;
    request->base.super.req_status.MPI_ERROR = MPI_SUCCESS;
    request->base.super.req_status.MPI_SOURCE = MPI_ANY_SOURCE;
    request->base.super.req_status.MPI_TAG = MPI_ANY_TAG;
    request->base.super.req_mpi_object.comm = comm;
    request->base.super.req_start = start;
    request->base.super.req_free = free_fn;
    request->base.super.req_cancel = request_cancel;
    request->state = NULL;
    return request;
}

void hetccl_request_activate(hetccl_request_t *request)
{
    request->base.super.req_status.MPI_ERROR = MPI_SUCCESS;
    request->base.super.req_complete = REQUEST_PENDING;
    request->base.super.req_state = OMPI_REQUEST_ACTIVE;
}

void hetccl_request_complete(hetccl_request_t *request, int error)
{
    request->base.super.req_status.MPI_ERROR = error;
    ompi_request_complete(&request->base.super, true);
}

bool hetccl_request_is_complete(hetccl_request_t *request) { return REQUEST_COMPLETE(&request->base.super); }

void hetccl_request_retire(hetccl_request_t *request) { OMPI_REQUEST_FINI(&request->base.super); }

ompi_request_t *hetccl_request_null(void) { return &ompi_request_null.request; }

/* ---- point to point (PML) ---- */

int hetccl_pml_isend(const void *from, size_t bytes, int peer, int tag, ompi_communicator_t *comm,
                     ompi_request_t **request)
{
    return MCA_PML_CALL(isend((void *) from, bytes, &ompi_mpi_byte.dt, peer, tag, MCA_PML_BASE_SEND_STANDARD, comm,
                              request));
}

int hetccl_pml_irecv(void *into, size_t bytes, int peer, int tag, ompi_communicator_t *comm,
                     ompi_request_t **request)
{
    return MCA_PML_CALL(irecv(into, bytes, &ompi_mpi_byte.dt, peer, tag, comm, request));
}

bool hetccl_pml_test(ompi_request_t **request, int *error, size_t *bytes)
{
    if (!REQUEST_COMPLETE(*request) && !line_request_is_failed(*request)) {
        return false;
    }
    opal_atomic_rmb();
    *error = (*request)->req_status.MPI_ERROR;
    *bytes = (*request)->req_status._ucount;
    ompi_request_free(request);
    return true;
}

void hetccl_pml_cancel(ompi_request_t *request) { (void) ompi_request_cancel(request); }

const char *hetccl_pml_name(void) { return mca_pml_base_selected_component.pmlm_version.mca_component_name; }

/* ---- run-time environment ---- */

void hetccl_progress(void) { opal_progress(); }
int hetccl_progress_register(hetccl_progress_fn fn) { return opal_progress_register(fn); }
int hetccl_progress_unregister(hetccl_progress_fn fn) { return opal_progress_unregister(fn); }

int hetccl_modex_put(const char *key, const void *bytes, size_t len) { return line_modex_put(key, bytes, len); }

int hetccl_modex_get(uint64_t peer, const char *key, void **bytes, size_t *len)
{
    opal_process_name_t name = {.jobid = (opal_jobid_t) (peer >> 32), .vpid = (opal_vpid_t) peer};
    uint8_t *data = NULL;
    *bytes = NULL;
    *len = 0;
    int rc = line_modex_get(&name, key, &data, len);
    *bytes = data;
    return rc;
}

static int param(const mca_base_component_t *component, const char *name, const char *help, int level,
                 mca_base_var_type_t type, mca_base_var_enum_t *words, void *storage)
{
    int rc = mca_base_component_var_register(component, name, help, type, words, 0, (mca_base_var_flag_t) 0,
                                             OPAL_INFO_LVL_1 + level - 1, MCA_BASE_VAR_SCOPE_READONLY, storage);
    return rc < 0 ? rc : OPAL_SUCCESS;
}

int hetccl_param_int(const mca_base_component_t *component, const char *name, const char *help, int level,
                     int *storage)
{
    return param(component, name, help, level, MCA_BASE_VAR_TYPE_INT, NULL, storage);
}

int hetccl_param_size(const mca_base_component_t *component, const char *name, const char *help, int level,
                      size_t *storage)
{
    return param(component, name, help, level, MCA_BASE_VAR_TYPE_SIZE_T, NULL, storage);
}

int hetccl_param_word(const mca_base_component_t *component, const char *name, const char *help, int level,
                      const hetccl_word_t *words, int *storage)
{
    mca_base_var_enum_value_t values[64];
    mca_base_var_enum_t *list = NULL;
    size_t n = 0;
    while (NULL != words[n].name && n < sizeof(values) / sizeof(values[0]) - 1) {
        values[n].value = words[n].value;
        values[n].string = words[n].name;
        ++n;
    }
    values[n].value = 0;
    values[n].string = NULL;
    int rc = mca_base_var_enum_create(name, values, &list);
    if (OPAL_SUCCESS != rc) {
        return rc;
    }
    rc = param(component, name, help, level, MCA_BASE_VAR_TYPE_INT, list, storage);
    OBJ_RELEASE(list);
    return rc;
}

/* The text of a string parameter; null where it has none. */
static const char *param_text(const char *full_name, mca_base_var_source_t *source)
{
    const char **text = NULL;
    int index;
    if (OPAL_SUCCESS > mca_base_var_find_by_name(full_name, &index)
        || OPAL_SUCCESS != mca_base_var_get_value(index, &text, source, NULL) || NULL == text) {
        return NULL;
    }
    return *text;
}

static bool in_list(const char *list, const char *name)
{
    size_t len = strlen(name);
    for (const char *at = list; NULL != at; at = strchr(at, ',')) {
        at += ',' == *at;
        if (0 == strncmp(at, name, len) && ('\0' == at[len] || ',' == at[len])) {
            return true;
        }
    }
    return false;
}

bool hetccl_named_in_coll(const char *name)
{
    mca_base_var_source_t source;
    const char *text = param_text("coll", &source);
    return NULL != text && '^' != text[0] && in_list(text, name);
}

bool hetccl_allowed_in_coll(const char *name)
{
    mca_base_var_source_t source;
    const char *text = param_text("coll", &source);
    if (NULL == text || '\0' == text[0]) {
        return true;
    }
    return '^' == text[0] ? !in_list(text + 1, name) : in_list(text, name);
}

void hetccl_coll_verbose(int level, const char *line)
{
    opal_output_verbose(level, ompi_coll_base_framework.framework_output, "%s", line);
}

void hetccl_show_error(const char *title, const char *text)
{
    /* A frame of Open MPI's own shape, without a text file that would have to be found. */
    static const char rule[] = "--------------------------------------------------------------------------";
    opal_output(0, "%s\n%s\n\n%s\n%s", rule, title, text, rule);
}

void hetccl_join_static_components(const mca_base_component_t *component)
{
    enum { MOST = 64 };
    static const mca_base_component_t *joined[MOST + 2];
    mca_base_framework_t *framework = &ompi_coll_base_framework;
    if (0 != framework->framework_refcnt || NULL == framework->framework_static_components) {
        return;
    }
    int n = 0;
    for (; NULL != framework->framework_static_components[n]; ++n) {
        if (MOST == n || component == framework->framework_static_components[n]) {
            return;
        }
        joined[n] = framework->framework_static_components[n];
    }
    joined[n] = component;
    framework->framework_static_components = joined;
}

/* ---- fault tolerance ---- */

bool hetccl_ft_enabled(void) { return line_ft_enabled(); }
bool hetccl_ft_is_failed_process(int error) { return line_error_is_failed_process(error); }
int hetccl_ft_failed_process(void) { return line_failed_process_error(); }
void hetccl_module_agree_without_failures(mca_coll_base_module_t *module) { line_agree_without_failures(module); }

/* ---- the library that runs ---- */

/* Objects of Open MPI whose layout the bindings and the inline functions above rely on. */
static const struct {
    const char *name;
    opal_class_t *of;
    size_t built_bytes;
} objects[] = {
    {"ompi_communicator_t", OBJ_CLASS(ompi_communicator_t), sizeof(ompi_communicator_t)},
    {"ompi_group_t", OBJ_CLASS(ompi_group_t), sizeof(ompi_group_t)},
    {"ompi_request_t", OBJ_CLASS(ompi_request_t), sizeof(ompi_request_t)},
    {"ompi_coll_base_nbc_request_t", OBJ_CLASS(ompi_coll_base_nbc_request_t), sizeof(ompi_coll_base_nbc_request_t)},
    {"ompi_datatype_t", OBJ_CLASS(ompi_datatype_t), sizeof(ompi_datatype_t)},
    {"ompi_op_t", OBJ_CLASS(ompi_op_t), sizeof(ompi_op_t)},
    {"opal_convertor_t", OBJ_CLASS(opal_convertor_t), sizeof(opal_convertor_t)},
};

const char *hetccl_layout_mismatch(size_t *built_bytes, size_t *running_bytes)
{
    if (!line_module_bytes_are_known(OBJ_CLASS(mca_coll_base_module_t)->cls_sizeof)) {
        *built_bytes = sizeof(mca_coll_base_module_t);
        *running_bytes = OBJ_CLASS(mca_coll_base_module_t)->cls_sizeof;
        return "mca_coll_base_module_t";
    }
    for (size_t i = 0; i < sizeof(objects) / sizeof(objects[0]); ++i) {
        if (objects[i].of->cls_sizeof != objects[i].built_bytes) {
            *built_bytes = objects[i].built_bytes;
            *running_bytes = objects[i].of->cls_sizeof;
            return objects[i].name;
        }
    }
    return NULL;
}

const char *hetccl_running_version(void)
{
    static char text[MPI_MAX_LIBRARY_VERSION_STRING];
    int len;
    MPI_Get_library_version(text, &len);
    return text;
}

/* What the C compiler says of the types that Rust sees through the bindings. */
size_t hetccl_layout(int what)
{
    switch (what) {
    case HETCCL_LAYOUT_MODULE: return sizeof(mca_coll_base_module_t);
    case HETCCL_LAYOUT_MODULE_ENABLE: return offsetof(mca_coll_base_module_t, coll_module_enable);
    case HETCCL_LAYOUT_MODULE_LAST_COLLECTIVE: return offsetof(mca_coll_base_module_t, coll_neighbor_alltoallw_init);
    case HETCCL_LAYOUT_MODULE_REDUCE_LOCAL: return offsetof(mca_coll_base_module_t, coll_reduce_local);
    case HETCCL_LAYOUT_COMPONENT: return sizeof(mca_coll_base_component_t);
    case HETCCL_LAYOUT_COMPONENT_QUERY: return offsetof(mca_coll_base_component_t, collm_comm_query);
    case HETCCL_LAYOUT_REQUEST: return sizeof(ompi_request_t);
    case HETCCL_LAYOUT_OWN_REQUEST_STATE: return offsetof(hetccl_request_t, state);
    case HETCCL_LAYOUT_OWN_MODULE_STATE: return offsetof(hetccl_module_t, state);
    default: return 0;
    }
}
