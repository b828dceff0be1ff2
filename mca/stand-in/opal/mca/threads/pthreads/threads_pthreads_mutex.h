/* The lock and the condition variable of POSIX threads, as Open MPI's mutex object holds them. */
#ifndef HETCCL_STAND_IN_MUTEX_H
#define HETCCL_STAND_IN_MUTEX_H

#include <pthread.h>

#include "opal/class/opal_object.h"
#include "opal/constants.h"

typedef pthread_mutex_t opal_thread_internal_mutex_t;
typedef pthread_cond_t opal_thread_internal_cond_t;

#define OPAL_THREAD_INTERNAL_MUTEX_INITIALIZER PTHREAD_MUTEX_INITIALIZER
#define OPAL_THREAD_INTERNAL_COND_INITIALIZER PTHREAD_COND_INITIALIZER

static inline int opal_thread_internal_mutex_trylock(opal_thread_internal_mutex_t *lock)
{
    return 0 != pthread_mutex_trylock(lock);
}
static inline void opal_thread_internal_mutex_lock(opal_thread_internal_mutex_t *lock) { pthread_mutex_lock(lock); }
static inline void opal_thread_internal_mutex_unlock(opal_thread_internal_mutex_t *lock) { pthread_mutex_unlock(lock); }

#endif
