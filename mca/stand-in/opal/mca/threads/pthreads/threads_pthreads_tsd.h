/* Keys of memory that each thread has of its own. */
#ifndef HETCCL_STAND_IN_TSD_H
#define HETCCL_STAND_IN_TSD_H

#include <pthread.h>

#include "opal/constants.h"

typedef pthread_key_t opal_tsd_key_t;

static inline int opal_tsd_get(opal_tsd_key_t key, void **value)
{
    *value = pthread_getspecific(key);
    return OPAL_SUCCESS;
}

#endif
