/* Memory and events of another process. `processes` starts itself as `processes open`. */
#include "gpu.h"
#include <sys/wait.h>

enum { BYTES = 12345 };

struct message {
    handle memory, freed, event;
};

static int reader, writer;

static void receive(void *data, size_t bytes) { CHECK(read(reader, data, bytes) == (ssize_t)bytes); }
static void send(const void *data, size_t bytes) { CHECK(write(writer, data, bytes) == (ssize_t)bytes); }

static int opener(void) {
    START();
    struct message message;
    pointer memory, again, base;
    size_t bytes;
    event done;
    char data[BYTES], go = 1;
    receive(&message, sizeof message);
    OK(gpuIpcOpenMemHandle(&memory, message.memory, 1));
    OK(gpuMemGetAddressRange(&base, &bytes, memory));
    CHECK(base == memory && bytes == BYTES);
    OK(gpuIpcOpenMemHandle(&again, message.memory, 1));
#ifdef CUDA
    CHECK(again == memory);
#else
    CHECK(again != memory);
#endif
    OK(gpuIpcCloseMemHandle(again));
    EXPECT(gpuIpcOpenMemHandle(&again, message.freed, 1), INVALID_VALUE);
    CHECK(write(STDOUT_FILENO, (void *)memory, 4) == -1);
    /* The exporter's stream waits for `go` before it fills the memory. */
    OK(gpuIpcOpenEventHandle(&done, message.event));
    EXPECT(gpuEventQuery(done), NOT_READY);
    send(&go, 1);
    OK(gpuEventSynchronize(done));
    OK(gpuMemcpy((pointer)data, memory, BYTES));
    CHECK(data[0] == 3 && data[BYTES - 1] == 3);
    OK(gpuMemset(memory, 4, BYTES));
    OK(gpuDeviceSynchronize());
    OK(gpuIpcCloseMemHandle(memory));
    CHECK(gpuIpcCloseMemHandle(memory) != 0);
    EXPECT(gpuMemcpy((pointer)data, memory, 1), INVALID_VALUE);
    send(&go, 1);
    return 0;
}

int main(int count, char **arguments) {
    if (count > 2) {
        reader = atoi(arguments[1]);
        writer = atoi(arguments[2]);
        return opener();
    }
    int there[2], back[2];
    CHECK(pipe(there) == 0 && pipe(back) == 0);
    pid_t child = fork();
    if (child == 0) {
        char read_end[16], write_end[16];
        snprintf(read_end, sizeof read_end, "%d", there[0]);
        snprintf(write_end, sizeof write_end, "%d", back[1]);
        execl("/proc/self/exe", arguments[0], read_end, write_end, NULL);
        _exit(9);
    }
    close(there[0]);
    close(back[1]);
    reader = back[0];
    writer = there[1];

    START();
    struct message message;
    pointer memory, freed, gate, opened;
    event event;
    stream stream;
    char data[BYTES], go;
    OK(gpuMalloc(&memory, BYTES));
    OK(gpuMalloc(&freed, 100));
    OK(gpuHostMalloc(&gate, 4, 0));
    OK(gpuStreamCreate(&stream, NON_BLOCKING));
    OK(gpuIpcGetMemHandle(&message.memory, memory));
    OK(gpuIpcGetMemHandle(&message.freed, freed));
    CHECK(gpuIpcOpenMemHandle(&opened, message.memory, 1) == INVALID_CONTEXT);
    OK(gpuFree(freed));
    *(volatile int *)gate = 0;
    OK(gpuStreamWaitValue32(stream, gate, 1, 1));
    OK(gpuMemsetAsync(memory, 3, BYTES, stream));
    CHECK(gpuEventCreate(&event, INTERPROCESS) == INVALID_VALUE);
    OK(gpuEventCreate(&event, INTERPROCESS | DISABLE_TIMING));
    OK(gpuEventRecord(event, stream));
    OK(gpuIpcGetEventHandle(&message.event, event));
    send(&message, sizeof message);
    receive(&go, 1);
    *(volatile int *)gate = 1;
    receive(&go, 1);
    OK(gpuMemcpy((pointer)data, memory, BYTES));
    CHECK(data[0] == 4 && data[BYTES - 1] == 4);
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    return 0;
}
