/* Preloaded into a Python: the bytes that PyTorch's CPU allocator has at a time, counted where it asks for them.
 * It takes every tensor's memory by `posix_memalign` at 64 bytes, as do oneDNN and nobody else to speak of. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>

enum { ALIGNMENT = 64, SMALLEST = 2048, SLOTS = 1 << 18 };

static struct { uintptr_t at; long bytes; } blocks[SLOTS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static long now, most;

static unsigned slot_of(uintptr_t at) {
    return (unsigned)((at / ALIGNMENT * UINT64_C(0x9E3779B97F4A7C15)) >> 46) & (SLOTS - 1);
}

int posix_memalign(void **out, size_t alignment, size_t bytes) {
    static int (*next)(void **, size_t, size_t);
    if (!next) *(void **)&next = dlsym(RTLD_NEXT, "posix_memalign");
    int failed = next(out, alignment, bytes);
    if (failed || alignment != ALIGNMENT || bytes < SMALLEST) return failed;
    pthread_mutex_lock(&lock);
    unsigned slot = slot_of((uintptr_t)*out);
    while (blocks[slot].at) slot = (slot + 1) & (SLOTS - 1);
    blocks[slot].at = (uintptr_t)*out;
    blocks[slot].bytes = (long)bytes;
    now += (long)bytes;
    if (now > most) most = now;
    pthread_mutex_unlock(&lock);
    return 0;
}

void free(void *block) {
    static void (*next)(void *);
    if (!next) *(void **)&next = dlsym(RTLD_NEXT, "free");
    if (block && (uintptr_t)block % ALIGNMENT == 0) {
        pthread_mutex_lock(&lock);
        unsigned slot = slot_of((uintptr_t)block);
        while (blocks[slot].at && blocks[slot].at != (uintptr_t)block) slot = (slot + 1) & (SLOTS - 1);
        if (blocks[slot].at) {
            now -= blocks[slot].bytes;
            /* What follows moves up, so that a search may end at the first hole. */
            for (unsigned hole = slot, other = slot;;) {
                blocks[hole].at = 0;
                unsigned home;
                do {
                    other = (other + 1) & (SLOTS - 1);
                    if (!blocks[other].at) goto done;
                    home = slot_of(blocks[other].at);
                } while (((other - home) & (SLOTS - 1)) < ((other - hole) & (SLOTS - 1)));
                blocks[hole] = blocks[other];
                hole = other;
            }
        }
    done:
        pthread_mutex_unlock(&lock);
    }
    next(block);
}

long real_bytes(void) { return now; }
long real_peak(void) { return most; }
void real_restart(void) { most = now; }
