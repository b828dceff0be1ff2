/* What Open MPI's inline functions ask of a thread. */
#ifndef HETCCL_STAND_IN_THREADS_H
#define HETCCL_STAND_IN_THREADS_H

#include <pthread.h>
#include <sched.h>

static inline void opal_thread_yield(void) { sched_yield(); }

#endif
