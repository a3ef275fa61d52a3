/* Reads bytes of a file that the page cache has, without waiting for a disk. */
#ifndef KAFKALOG_CACHED_READS_H
#define KAFKALOG_CACHED_READS_H

#include <stddef.h>
#include <stdint.h>

#if defined(__linux__)
#include <errno.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>
#endif

/* Returns the number of bytes read, perhaps fewer than asked for; -1 if they are not there, -2 if this is not possible.
 * The call itself, since the C library of an old Linux has no function for it. */
static ptrdiff_t kl_read_cached(int descriptor, void *to, size_t size, int64_t position) {
#if defined(SYS_preadv2)
    struct iovec room = {to, size};
    const int only_cached = 8; /* RWF_NOWAIT */
    long n = syscall(SYS_preadv2, descriptor, &room, 1L, (long)position, (long)(position >> 32), only_cached);
    return n >= 0 ? n : errno == EAGAIN ? -1 : -2;
#else
    (void)descriptor, (void)to, (void)size, (void)position;
    return -2;
#endif
}

#endif
