/* Maps a piece of a file for as long as it takes to read it once. A file that is cut meanwhile, or whose disk fails,
 * does not end the process: SIGBUS is handled where it is about such a piece, and the piece is told from a whole one.
 *
 * While a thread reads a piece, a slot has the thread and the addresses. The handler looks for the slot of the thread
 * that it runs in, which nobody else changes, and puts zeros in place of the rest of the piece. Whatever else raises
 * SIGBUS goes to the action that was there before: it is put back for good, and the instruction runs once more. Where
 * somebody has set another action since, nothing is mapped any more.
 */
#ifndef KAFKALOG_MAPPING_H
#define KAFKALOG_MAPPING_H

#include <stddef.h>
#include <stdint.h>

typedef struct {
    const uint8_t *bytes; /* what was asked for */
    uint8_t *start;       /* the pages it lies in; NULL: nothing is mapped */
    size_t size;
    int slot;
} kl_mapping;

#if defined(__linux__) && (defined(__GNUC__) || defined(__clang__))
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#define KL_SLOTS 64

static struct {
    uintptr_t owner, start, end;
    int is_cut;
} kl_slots[KL_SLOTS];
static struct sigaction kl_action_before;
static uintptr_t kl_page;
static pthread_once_t kl_once = PTHREAD_ONCE_INIT;

static void kl_on_bus_error(int number, siginfo_t *info, void *context) {
    uintptr_t at = (uintptr_t)info->si_addr, self = (uintptr_t)pthread_self();
    int error = errno;
    (void)context;
    for (int i = 0; info->si_code > 0 && i < KL_SLOTS; i++) {
        if (__atomic_load_n(&kl_slots[i].owner, __ATOMIC_ACQUIRE) != self) continue;
        if (at < kl_slots[i].start || at >= kl_slots[i].end) continue;
        at &= ~(kl_page - 1);
        if (mmap((void *)at, kl_slots[i].end - at, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0)
            == MAP_FAILED)
            break;
        kl_slots[i].is_cut = 1;
        errno = error;
        return;
    }
    sigaction(number, &kl_action_before, NULL);
    if (info->si_code <= 0) raise(number); /* sent by a process: no instruction would raise it once more */
    errno = error;
}

static void kl_set_action(void) {
    struct sigaction ours;
    kl_page = (uintptr_t)sysconf(_SC_PAGESIZE);
    ours.sa_sigaction = kl_on_bus_error;
    ours.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART;
    sigemptyset(&ours.sa_mask);
    sigaction(SIGBUS, &ours, &kl_action_before);
}

/* Whether pieces can be mapped: the action for SIGBUS is ours. The first call sets it. */
static int kl_guard(void) {
    struct sigaction now;
    pthread_once(&kl_once, kl_set_action);
    return sigaction(SIGBUS, NULL, &now) == 0 && (now.sa_flags & SA_SIGINFO) && now.sa_sigaction == kl_on_bus_error;
}

/* Map the bytes of a file from `start` to `stop`, which are there if nobody cuts it; whether that was possible. */
static int kl_map(kl_mapping *mapping, int descriptor, int64_t start, int64_t stop) {
    int64_t first = start & ~(int64_t)(kl_page - 1);
    uintptr_t nobody;
    mapping->start = NULL;
    for (mapping->slot = 0; mapping->slot < KL_SLOTS; mapping->slot++) {
        nobody = 0;
        if (__atomic_compare_exchange_n(&kl_slots[mapping->slot].owner, &nobody, (uintptr_t)pthread_self(), 0,
                                        __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
            break;
    }
    if (mapping->slot == KL_SLOTS) return 0;
    mapping->size = (size_t)(stop - first);
    /* all pages at once: each touched by itself would be a fault of its own */
    mapping->start = mmap(NULL, mapping->size, PROT_READ, MAP_SHARED | MAP_POPULATE, descriptor, first);
    if (mapping->start == MAP_FAILED) {
        mapping->start = NULL;
        __atomic_store_n(&kl_slots[mapping->slot].owner, 0, __ATOMIC_RELEASE);
        return 0;
    }
    mapping->bytes = mapping->start + (start - first);
    kl_slots[mapping->slot].start = (uintptr_t)mapping->start;
    kl_slots[mapping->slot].end = (uintptr_t)mapping->start + mapping->size;
    kl_slots[mapping->slot].is_cut = 0;
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    return 1;
}

/* Give a piece back, if one is mapped; whether all that was read of it was there. */
static int kl_unmap(kl_mapping *mapping) {
    int is_whole;
    if (mapping->start == NULL) return 1;
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    is_whole = !kl_slots[mapping->slot].is_cut;
    kl_slots[mapping->slot].start = kl_slots[mapping->slot].end = 0;
    __atomic_store_n(&kl_slots[mapping->slot].owner, 0, __ATOMIC_RELEASE);
    munmap(mapping->start, mapping->size);
    mapping->start = NULL;
    return is_whole;
}
#else
static int kl_guard(void) { return 0; }

static int kl_map(kl_mapping *mapping, int descriptor, int64_t start, int64_t stop) {
    (void)descriptor, (void)start, (void)stop;
    mapping->start = NULL;
    return 0;
}

static int kl_unmap(kl_mapping *mapping) {
    (void)mapping;
    return 1;
}
#endif

#endif
