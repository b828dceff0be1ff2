/* Open MPI 4.1, coll interface 2.3.0. Included by glue.c alone; the other files of this folder have the same names. */
#include "opal/mca/pmix/pmix.h"

/* A variable that 5.0 has not: the component must be loadable there, to say that it is the wrong one. */
#pragma weak opal_pmix

/* The module's size in this line. */
static inline bool line_module_bytes_are_known(size_t bytes) { return 584 == bytes; }

static inline uint32_t line_comm_context(ompi_communicator_t *comm) { return comm->c_contextid; }
static inline bool line_comm_context_is_global(ompi_communicator_t *comm)
{
    (void) comm;
    return true;
}

static inline int line_modex_put(const char *key, const void *bytes, size_t len)
{
    int rc;
    OPAL_MODEX_SEND_STRING(rc, OPAL_PMIX_GLOBAL, (char *) key, bytes, len);
    return rc;
}

static inline int line_modex_get(const opal_process_name_t *name, const char *key, uint8_t **bytes, size_t *len)
{
    int rc;
    OPAL_MODEX_RECV_STRING(rc, (char *) key, (opal_process_name_t *) name, bytes, len);
    return rc;
}

/* No ULFM in this line. */
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
static inline void line_agree_without_failures(mca_coll_base_module_t *module) { (void) module; }
