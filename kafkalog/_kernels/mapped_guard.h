/* Reads mapped pages of a file that another process may cut: SIGBUS is handled for these pages, and ends no process.
 *
 * Populating pages is not enough: a cut takes them away again. While a thread reads, a slot has the thread and the
 * addresses. The handler looks for the slot of the thread that it runs in, which nobody else changes, and puts zeros in
 * place of the rest of the pages. Any other SIGBUS goes to the action that was there before: it is restored for good,
 * and the instruction runs once more.
 */
#ifndef KAFKALOG_MAPPED_GUARD_H
#define KAFKALOG_MAPPED_GUARD_H

#include <stddef.h>
#include <stdint.h>

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

/* Begin to read mapped bytes in this thread; the number of the slot, or -1: read them another way. */
static int kl_guard(const void *bytes, size_t size) {
    uintptr_t nobody;
    pthread_once(&kl_once, kl_set_action);
    for (int i = 0; i < KL_SLOTS; i++) {
        nobody = 0;
        if (!__atomic_compare_exchange_n(&kl_slots[i].owner, &nobody, (uintptr_t)pthread_self(), 0, __ATOMIC_ACQ_REL,
                                         __ATOMIC_RELAXED))
            continue;
        kl_slots[i].start = (uintptr_t)bytes & ~(kl_page - 1);
        kl_slots[i].end = ((uintptr_t)bytes + size + kl_page - 1) & ~(kl_page - 1);
        kl_slots[i].is_cut = 0;
        __atomic_signal_fence(__ATOMIC_SEQ_CST);
        return i;
    }
    return -1;
}

/* End the reading; whether all bytes were there. */
static int kl_unguard(int slot) {
    int is_whole;
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    is_whole = !kl_slots[slot].is_cut;
    kl_slots[slot].start = kl_slots[slot].end = 0;
    __atomic_store_n(&kl_slots[slot].owner, 0, __ATOMIC_RELEASE);
    return is_whole;
}
#else /* nothing is mapped there */
static int kl_guard(const void *bytes, size_t size) {
    (void)bytes, (void)size;
    return -1;
}

static int kl_unguard(int slot) {
    (void)slot;
    return 1;
}
#endif

#endif
