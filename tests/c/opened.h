/* CUDA memory of another process, opened from its handle; for memory.h. The other process is this program again, started as
 * `PROGRAM own BYTES`: it allocates, writes the handle and stays for as long as the one that started it. */
#ifndef HETCCL_OPENED_H
#define HETCCL_OPENED_H

#include <unistd.h>

/* Two buffers of this size are there at a time. */
#define OPENED_BYTES ((size_t) 8 << 20)

struct cuda_handle {
    char data[64];
};

static struct {
    unsigned long long base;
    FILE *owner;
    int given;
    int (*get)(struct cuda_handle *, unsigned long long);
    int (*open)(unsigned long long *, struct cuda_handle, unsigned);
} opened;

static inline void load_cuda(void);

/* What the other process does; 1 when this is it. */
static inline int opened_own(int argc, char **argv)
{
    if (3 != argc || 0 != strcmp(argv[1], "own")) {
        return 0;
    }
    unsigned long long memory;
    struct cuda_handle handle;
    load_cuda();
    *(void **) &opened.get = find(cuda.library, "cuIpcGetMemHandle");
    must("cuMemAlloc", cuda.alloc(&memory, (size_t) atol(argv[2])));
    must("cuIpcGetMemHandle", opened.get(&handle, memory));
    if (1 != fwrite(&handle, sizeof(handle), 1, stdout) || 0 != fflush(stdout)) {
        return 1;
    }
    while (getppid() == atoi(getenv("HETCCL_OPENED_BY"))) {
        usleep(20000);
    }
    return 1;
}

/* A part of the opened memory: another one than the call before gave. */
static inline void *opened_alloc(size_t bytes)
{
    if (bytes > OPENED_BYTES) {
        fprintf(stderr, "opened memory has no %zu bytes\n", bytes);
        exit(3);
    }
    if (NULL == opened.owner) {
        char program[4096], command[4200], parent[16];
        struct cuda_handle handle;
        ssize_t length = readlink("/proc/self/exe", program, sizeof(program) - 1);
        program[length < 0 ? 0 : length] = 0;
        snprintf(parent, sizeof(parent), "%d", (int) getpid());
        setenv("HETCCL_OPENED_BY", parent, 1);
        snprintf(command, sizeof(command), "exec '%s' own %zu", program, 2 * OPENED_BYTES);
        opened.owner = popen(command, "r");
        if (NULL == opened.owner || 1 != fread(&handle, sizeof(handle), 1, opened.owner)) {
            fprintf(stderr, "%s gave no handle\n", command);
            exit(3);
        }
        *(void **) &opened.open = find(cuda.library, "cuIpcOpenMemHandle_v2");
        must("cuIpcOpenMemHandle", opened.open(&opened.base, handle, 1));
    }
    return (void *) (opened.base + OPENED_BYTES * (size_t) (opened.given++ % 2));
}

#endif
