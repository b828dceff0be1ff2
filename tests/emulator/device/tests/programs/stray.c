/* Dies of touching device memory, or of something else, as the argument says. */
#include "gpu.h"
#include <signal.h>

static void handler(int signal) {
    (void)signal;
    static const char text[] = "the program's handler\n";
    (void)!write(STDERR_FILENO, text, sizeof text - 1);
    _exit(3);
}

int main(int count, char **arguments) {
    CHECK(count == 2);
    signal(SIGSEGV, handler);
    START();
    pointer memory;
    OK(gpuMalloc(&memory, 64));
    if (strcmp(arguments[1], "read") == 0) return *(volatile char *)memory;
    if (strcmp(arguments[1], "write") == 0) *(volatile char *)(memory + 8) = 1;
    if (strcmp(arguments[1], "freed") == 0) {
        OK(gpuFree(memory));
        return *(volatile char *)memory;
    }
    if (strcmp(arguments[1], "late-handler") == 0) {
        signal(SIGSEGV, handler);
        OK(gpuMalloc(&memory, 64)); /* the emulator notices here */
        return *(volatile char *)memory;
    }
    if (strcmp(arguments[1], "other") == 0) *(volatile char *)8 = 1;
    return 0;
}
