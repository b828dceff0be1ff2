/* Ranks of one host that leave together, without MPI: mpirun ends everybody as soon as one leaves without MPI_Finalize. */
#ifndef HETCCL_TOGETHER_H
#define HETCCL_TOGETHER_H

#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

/* Waits until so many ranks have come here, or for 20 s. They meet by the number of the process that started them all. */
static inline void leave_together(int ranks)
{
    char name[64];
    snprintf(name, sizeof name, "/together-%d", (int) getppid());
    const int file = shm_open(name, O_RDWR | O_CREAT, 0600);
    if (file < 0 || 0 != ftruncate(file, sizeof(atomic_int))) {
        _exit(2);
    }
    atomic_int *come = mmap(NULL, sizeof *come, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (MAP_FAILED == come) {
        _exit(2);
    }
    atomic_fetch_add(come, 1);
    for (int i = 0; i < 2000 && atomic_load(come) < ranks; ++i) {
        usleep(10000);
    }
    shm_unlink(name);
    _exit(0);
}

#endif
