/* Open MPI 5.0, coll interface 2.4.0. Included by glue.c alone; the other files of this folder have the same names. */
#include "ompi/communicator/comm_request.h"
#include "ompi/runtime/params.h"
#include "opal/mca/pmix/pmix-internal.h"

/* PMIx is a library that Open MPI brings along, under its own name or inside its own: nobody links it here. Programs without it,
 * such as unit tests, link all the same. */
#pragma weak PMIx_Put
#pragma weak PMIx_Get
#pragma weak PMIx_Value_free

/* Open MPI exports these without promising it. */
#pragma weak ompi_comm_request_get
#pragma weak ompi_comm_request_return
#pragma weak ompi_comm_request_schedule_append
#pragma weak ompi_comm_request_start

/* The module's sizes in this line: 5.0.11 put coll_revoke_local before the last field, which is Open MPI's own. All that
 * hetccl sets lies before both, and its own state behind room for either. */
static inline bool line_module_bytes_are_known(size_t bytes) { return 592 == bytes || 600 == bytes; }

static inline uint32_t line_comm_context(ompi_communicator_t *comm) { return comm->c_index; }
static inline bool line_comm_context_is_global(ompi_communicator_t *comm) { return OMPI_COMM_IS_GLOBAL_INDEX(comm); }

static inline int line_modex_put(const char *key, const void *bytes, size_t len)
{
    pmix_status_t rc;
    OPAL_MODEX_SEND_STRING(rc, PMIX_GLOBAL, key, (void *) bytes, len);
    return opal_pmix_convert_status(rc);
}

static inline int line_modex_get(const opal_process_name_t *name, const char *key, uint8_t **bytes, size_t *len)
{
    pmix_status_t rc;
    OPAL_MODEX_RECV_STRING(rc, key, name, bytes, len);
    return opal_pmix_convert_status(rc);
}

#if OPAL_ENABLE_FT_MPI

static inline bool line_ft_enabled(void) { return ompi_ftmpi_enabled; }
/* A message to or from a process that has failed, or on a revoked communicator, ends here. */
static inline bool line_request_is_failed(ompi_request_t *request) { return ompi_request_is_failed(request); }
static inline bool line_error_is_failed_process(int error) { return MPI_ERR_PROC_FAILED == error; }
static inline int line_failed_process_error(void)
{
    return ompi_ftmpi_enabled ? MPI_ERR_PROC_FAILED : MPI_ERR_OTHER;
}

#else

static inline bool line_ft_enabled(void) { return false; }
static inline bool line_request_is_failed(ompi_request_t *request)
{
    (void) request;
    return false;
}
static inline bool line_error_is_failed_process(int error)
{
    (void) error;
    return false;
}
static inline int line_failed_process_error(void) { return MPI_ERR_OTHER; }

#endif

/* Where nobody fails, an agreement is an allreduce, and the group of failed processes stays what it is. On an
 * inter-communicator it is of both groups; the operations of agreements may take a contribution twice. */
static int agree_without_failures(void *contribution, int count, ompi_datatype_t *type, ompi_op_t *op,
                                  ompi_group_t **failed, bool update_failed, ompi_communicator_t *comm,
                                  mca_coll_base_module_t *module)
{
    (void) failed;
    (void) update_failed;
    (void) module;
    if (OMPI_COMM_IS_INTER(comm)) {
        ompi_communicator_t *local = comm->c_local_comm;
        int rc = agree_without_failures(contribution, count, type, op, failed, false, local, module);
        size_t size;
        ompi_datatype_type_size(type, &size);
        void *theirs = malloc(size * (size_t) count + 1);
        if (OMPI_SUCCESS != rc || NULL == theirs) {
            free(theirs);
            return OMPI_SUCCESS != rc ? rc : OMPI_ERR_OUT_OF_RESOURCE;
        }
        rc = comm->c_coll->coll_allreduce(contribution, theirs, count, type, op, comm,
                                          comm->c_coll->coll_allreduce_module);
        if (OMPI_SUCCESS == rc) {
            ompi_op_reduce(op, theirs, contribution, count, type);
        }
        free(theirs);
        return rc;
    }
    return comm->c_coll->coll_allreduce(MPI_IN_PLACE, contribution, count, type, op, comm,
                                        comm->c_coll->coll_allreduce_module);
}

/* An agreement of two groups under way: what this rank says, and what the other group does. */
typedef struct {
    opal_object_t super;
    void *contribution, *mine, *theirs;
    int count;
    ompi_datatype_t *type;
    ompi_op_t *op;
} agreement_t;

static void agreement_construct(agreement_t *agreement) { agreement->mine = agreement->theirs = NULL; }
static void agreement_destruct(agreement_t *agreement)
{
    free(agreement->mine);
    free(agreement->theirs);
}
static OBJ_CLASS_INSTANCE(agreement_t, opal_object_t, agreement_construct, agreement_destruct);

static int agreement_end(ompi_comm_request_t *request)
{
    agreement_t *agreement = (agreement_t *) request->context;
    ompi_op_reduce(agreement->op, agreement->theirs, agreement->contribution, agreement->count, agreement->type);
    return OMPI_SUCCESS;
}

/* The other group's result arrives while this one's is made in the program's memory: both are started at once, on the two
 * communicators. */
static int iagree_of_groups(void *contribution, int count, ompi_datatype_t *type, ompi_op_t *op, ompi_communicator_t *comm,
                            ompi_request_t **request)
{
    if (NULL == ompi_comm_request_get || NULL == ompi_comm_request_schedule_append || NULL == ompi_comm_request_start) {
        return MPI_ERR_UNSUPPORTED_OPERATION;
    }
    size_t size;
    ompi_datatype_type_size(type, &size);
    size_t bytes = size * (size_t) count;
    agreement_t *agreement = OBJ_NEW(agreement_t);
    ompi_comm_request_t *both = ompi_comm_request_get();
    if (NULL == agreement || NULL == both || NULL == (agreement->mine = malloc(bytes + 1)) ||
        NULL == (agreement->theirs = malloc(bytes + 1))) {
        if (NULL != both) ompi_comm_request_return(both);
        if (NULL != agreement) OBJ_RELEASE(agreement);
        return OMPI_ERR_OUT_OF_RESOURCE;
    }
    memcpy(agreement->mine, contribution, bytes);
    agreement->contribution = contribution, agreement->count = count;
    agreement->type = type, agreement->op = op;
    both->context = &agreement->super;
    ompi_communicator_t *local = comm->c_local_comm;
    ompi_request_t *parts[2];
    int rc = comm->c_coll->coll_iallreduce(agreement->mine, agreement->theirs, count, type, op, comm, &parts[0],
                                           comm->c_coll->coll_iallreduce_module);
    if (OMPI_SUCCESS == rc) {
        rc = local->c_coll->coll_iallreduce(MPI_IN_PLACE, contribution, count, type, op, local, &parts[1],
                                            local->c_coll->coll_iallreduce_module);
    }
    if (OMPI_SUCCESS != rc) {
        /* What has been started may still use the agreement's memory, so it stays. */
        return rc;
    }
    ompi_comm_request_schedule_append(both, agreement_end, parts, 2);
    ompi_comm_request_start(both);
    *request = &both->super;
    return OMPI_SUCCESS;
}

static int iagree_without_failures(void *contribution, int count, ompi_datatype_t *type, ompi_op_t *op,
                                   ompi_group_t **failed, bool update_failed, ompi_communicator_t *comm,
                                   ompi_request_t **request, mca_coll_base_module_t *module)
{
    (void) failed;
    (void) update_failed;
    (void) module;
    if (OMPI_COMM_IS_INTER(comm)) {
        return iagree_of_groups(contribution, count, type, op, comm, request);
    }
    return comm->c_coll->coll_iallreduce(MPI_IN_PLACE, contribution, count, type, op, comm, request,
                                         comm->c_coll->coll_iallreduce_module);
}

static inline void line_agree_without_failures(mca_coll_base_module_t *module)
{
    module->coll_agree = agree_without_failures;
    module->coll_iagree = iagree_without_failures;
}
