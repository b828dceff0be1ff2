/* The lock and the condition variable of POSIX threads, as Open MPI's mutex object holds them. */
#ifndef HETCCL_STAND_IN_MUTEX_H
#define HETCCL_STAND_IN_MUTEX_H

#include <pthread.h>
#include <stdbool.h>

#include "opal/class/opal_object.h"
#include "opal/constants.h"

typedef pthread_mutex_t opal_thread_internal_mutex_t;
typedef pthread_cond_t opal_thread_internal_cond_t;

#define OPAL_THREAD_INTERNAL_MUTEX_INITIALIZER PTHREAD_MUTEX_INITIALIZER
#define OPAL_THREAD_INTERNAL_COND_INITIALIZER PTHREAD_COND_INITIALIZER

static inline int opal_thread_internal_mutex_init(opal_thread_internal_mutex_t *lock, bool recursive)
{
    pthread_mutexattr_t kind;
    if (0 != pthread_mutexattr_init(&kind)) {
        return OPAL_ERR_IN_ERRNO;
    }
    pthread_mutexattr_settype(&kind, recursive ? PTHREAD_MUTEX_RECURSIVE : PTHREAD_MUTEX_DEFAULT);
    int rc = pthread_mutex_init(lock, &kind);
    pthread_mutexattr_destroy(&kind);
    return 0 == rc ? OPAL_SUCCESS : OPAL_ERR_IN_ERRNO;
}
static inline void opal_thread_internal_mutex_destroy(opal_thread_internal_mutex_t *lock)
{
    pthread_mutex_destroy(lock);
}
static inline int opal_thread_internal_mutex_trylock(opal_thread_internal_mutex_t *lock)
{
    return 0 != pthread_mutex_trylock(lock);
}
static inline void opal_thread_internal_mutex_lock(opal_thread_internal_mutex_t *lock) { pthread_mutex_lock(lock); }
static inline void opal_thread_internal_mutex_unlock(opal_thread_internal_mutex_t *lock) { pthread_mutex_unlock(lock); }

static inline int opal_thread_internal_cond_init(opal_thread_internal_cond_t *condition)
{
    return 0 == pthread_cond_init(condition, NULL) ? OPAL_SUCCESS : OPAL_ERR_IN_ERRNO;
}
static inline void opal_thread_internal_cond_destroy(opal_thread_internal_cond_t *condition)
{
    pthread_cond_destroy(condition);
}
static inline void opal_thread_internal_cond_wait(opal_thread_internal_cond_t *condition,
                                                  opal_thread_internal_mutex_t *lock)
{
    pthread_cond_wait(condition, lock);
}
static inline void opal_thread_internal_cond_signal(opal_thread_internal_cond_t *condition)
{
    pthread_cond_signal(condition);
}

#endif
