/* What the soak programs of both interfaces share: choices that all ranks make alike, elements, and a line on how a rank is.
 *
 * Element i of a rank's contribution is 1, 2 or 3, by rank, place and the call's salt: sums and products of a few ranks are exact in
 * every type. */
#ifndef HETCCL_SOAK_H
#define HETCCL_SOAK_H

#include <dirent.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

/* splitmix64: the same numbers on all ranks. */
static uint64_t random_state;

static inline uint64_t random_word(void)
{
    uint64_t z = random_state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

static inline int below(int n) { return (int) (random_word() % (uint64_t) n); }

/* Elements up to `most`, all magnitudes alike; 0 among them. */
static inline int random_count(int most)
{
    int bits = 0;
    while ((2 << bits) <= most) {
        ++bits;
    }
    const int top = below(bits + 2);
    const int count = 0 == top ? 0 : (1 << (top - 1)) + below(1 << (top - 1));
    return count < most ? count : most;
}

enum type { INT8, UINT8, INT32, UINT32, INT64, UINT64, FLOAT32, FLOAT64, TYPES };
static const int widths[TYPES] = {1, 1, 4, 4, 8, 8, 4, 8};

enum op { SUM, PROD, MAX, MIN, OPS };

static inline void store(enum type type, double value, void *at)
{
    switch (type) {
    case INT8: *(int8_t *) at = (int8_t) value; break;
    case UINT8: *(uint8_t *) at = (uint8_t) value; break;
    case INT32: *(int32_t *) at = (int32_t) value; break;
    case UINT32: *(uint32_t *) at = (uint32_t) value; break;
    case INT64: *(int64_t *) at = (int64_t) value; break;
    case UINT64: *(uint64_t *) at = (uint64_t) value; break;
    case FLOAT32: *(float *) at = (float) value; break;
    default: *(double *) at = value; break;
    }
}

static inline double load(enum type type, const void *at)
{
    switch (type) {
    case INT8: return *(const int8_t *) at;
    case UINT8: return *(const uint8_t *) at;
    case INT32: return *(const int32_t *) at;
    case UINT32: return *(const uint32_t *) at;
    case INT64: return (double) *(const int64_t *) at;
    case UINT64: return (double) *(const uint64_t *) at;
    case FLOAT32: return *(const float *) at;
    default: return *(const double *) at;
    }
}

static inline double element(int rank, int i, int salt) { return 1 + (rank * 5 + i * 7 + salt) % 3; }

/* Ranks first to last - 1 combined, at place i. */
static inline double combined(enum op op, int first, int last, int i, int salt)
{
    double result = element(first, i, salt);
    for (int rank = first + 1; rank < last; ++rank) {
        const double other = element(rank, i, salt);
        switch (op) {
        case SUM: result += other; break;
        case PROD: result *= other; break;
        case MAX: result = other > result ? other : result; break;
        default: result = other < result ? other : result; break;
        }
    }
    return result;
}

static inline double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double) now.tv_sec + (double) now.tv_nsec / 1e9;
}

static inline long resident_kib(void)
{
    long pages = 0, resident = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (NULL == file) {
        return 0;
    }
    const int got = fscanf(file, "%ld %ld", &pages, &resident);
    fclose(file);
    return 2 == got ? resident * (sysconf(_SC_PAGESIZE) / 1024) : 0;
}

static inline int open_descriptors(void)
{
    int count = -1; /* the one that looks */
    DIR *folder = opendir("/proc/self/fd");
    if (NULL == folder) {
        return 0;
    }
    for (struct dirent *entry; NULL != (entry = readdir(folder));) {
        count += '.' != entry->d_name[0];
    }
    closedir(folder);
    return count;
}

/* In one write, so that lines of several ranks stay whole. */
static inline void say(const char *line)
{
    const size_t bytes = strlen(line);
    if (write(1, line, bytes) != (ssize_t) bytes) {
        _exit(2);
    }
}

static inline void report(int rank, double since, long calls)
{
    char line[160];
    snprintf(line, sizeof line, "soak rank %d at %.1f s: %ld calls, %ld KiB, %d descriptors\n", rank, seconds() - since, calls,
             resident_kib(), open_descriptors());
    say(line);
}

static void kill_this(int number)
{
    (void) number;
    kill(getpid(), SIGKILL);
}

/* SIGKILL after some milliseconds, wherever the process is then. */
static inline void die_after(int ms)
{
    struct itimerval timer = {{0, 0}, {ms / 1000, ms % 1000 * 1000}};
    signal(SIGALRM, kill_this);
    setitimer(ITIMER_REAL, &timer, NULL);
}

#endif
