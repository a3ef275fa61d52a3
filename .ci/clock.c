/* A clock that is ahead by SECONDS_AHEAD, for what is preloaded with it: the time of day, and the times of files, so
   that what was just written is new. Times that tests give to files are taken back, and so are deadlines of waits: the
   kernel has the real time, and a wait for a client of S3 would take years. Monotonic clocks stay. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <time.h>

#define NEXT(name) (__typeof__(&name))dlsym(RTLD_NEXT, #name)

static time_t ahead;

__attribute__((constructor)) static void begin(void)
{
    const char *text = getenv("SECONDS_AHEAD");
    ahead = text ? (time_t)atoll(text) : 0;
}

int clock_gettime(clockid_t which, struct timespec *now)
{
    static __typeof__(&clock_gettime) next;
    if (!next) next = NEXT(clock_gettime);
    int result = next(which, now);
    if (!result && (which == CLOCK_REALTIME || which == CLOCK_REALTIME_COARSE)) now->tv_sec += ahead;
    return result;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone)
{
    static int (*next)(struct timeval *, void *);
    if (!next) next = (int (*)(struct timeval *, void *))dlsym(RTLD_NEXT, "gettimeofday");
    int result = next(now, zone);
    if (!result) now->tv_sec += ahead;
    return result;
}

time_t time(time_t *where)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (where) *where = now.tv_sec;
    return now.tv_sec;
}

static int shifted(int result, struct stat *found)
{
    if (!result) {
        found->st_mtim.tv_sec += ahead;
        found->st_ctim.tv_sec += ahead;
        found->st_atim.tv_sec += ahead;
    }
    return result;
}

#define STAT(name, parameters, ...)                                \
    int name parameters                                            \
    {                                                              \
        static __typeof__(&name) next;                             \
        if (!next) next = NEXT(name);                              \
        return shifted(next(__VA_ARGS__), (struct stat *)found);   \
    }

STAT(stat, (const char *restrict path, struct stat *restrict found), path, found)
STAT(lstat, (const char *restrict path, struct stat *restrict found), path, found)
STAT(fstat, (int file, struct stat *found), file, found)
STAT(fstatat, (int folder, const char *restrict path, struct stat *restrict found, int flags), folder, path, found, flags)
STAT(stat64, (const char *restrict path, struct stat64 *restrict found), path, found)
STAT(lstat64, (const char *restrict path, struct stat64 *restrict found), path, found)
STAT(fstat64, (int file, struct stat64 *found), file, found)
STAT(fstatat64, (int folder, const char *restrict path, struct stat64 *restrict found, int flags), folder, path, found, flags)

static const struct timespec *back(const struct timespec given[2], struct timespec real[2])
{
    if (!given) return given;
    for (int i = 0; i < 2; i++) {
        real[i] = given[i];
        if (given[i].tv_nsec != UTIME_NOW && given[i].tv_nsec != UTIME_OMIT) real[i].tv_sec -= ahead;
    }
    return real;
}

int utimensat(int folder, const char *path, const struct timespec times[2], int flags)
{
    static __typeof__(&utimensat) next;
    struct timespec real[2];
    if (!next) next = NEXT(utimensat);
    return next(folder, path, back(times, real), flags);
}

int futimens(int file, const struct timespec times[2])
{
    static __typeof__(&futimens) next;
    struct timespec real[2];
    if (!next) next = NEXT(futimens);
    return next(file, back(times, real));
}

/* Deadlines that are long over, or that never come, stay. */
static const struct timespec *due(clockid_t clock, const struct timespec *given, struct timespec *real)
{
    if (clock != CLOCK_REALTIME || given->tv_sec < 1000000000 || given->tv_sec > 10000000000) return given;
    *real = *given;
    real->tv_sec -= ahead;
    return real;
}

int pthread_cond_timedwait(pthread_cond_t *restrict one, pthread_mutex_t *restrict mutex, const struct timespec *restrict until)
{
    static __typeof__(&pthread_cond_timedwait) next;
    struct timespec real;
    /* the first version of this function has another kind of condition */
    if (!next) next = (__typeof__(next))dlvsym(RTLD_NEXT, "pthread_cond_timedwait", "GLIBC_2.3.2");
    if (!next) next = NEXT(pthread_cond_timedwait);
    /* a condition may have either clock; the monotonic one counts from the start of the system, and is too small */
    return next(one, mutex, due(CLOCK_REALTIME, until, &real));
}

#define WAIT(name, clock, parameters, ...)                    \
    int name parameters                                       \
    {                                                         \
        static __typeof__(&name) next;                        \
        struct timespec real;                                 \
        if (!next) next = NEXT(name);                         \
        return next(__VA_ARGS__, due(clock, until, &real));   \
    }

WAIT(pthread_cond_clockwait, clock, (pthread_cond_t *restrict one, pthread_mutex_t *restrict mutex, clockid_t clock, const struct timespec *restrict until), one, mutex, clock)
WAIT(pthread_mutex_timedlock, CLOCK_REALTIME, (pthread_mutex_t *restrict mutex, const struct timespec *restrict until), mutex)
WAIT(pthread_mutex_clocklock, clock, (pthread_mutex_t *restrict mutex, clockid_t clock, const struct timespec *restrict until), mutex, clock)
WAIT(pthread_rwlock_timedrdlock, CLOCK_REALTIME, (pthread_rwlock_t *restrict lock, const struct timespec *restrict until), lock)
WAIT(pthread_rwlock_timedwrlock, CLOCK_REALTIME, (pthread_rwlock_t *restrict lock, const struct timespec *restrict until), lock)
WAIT(pthread_rwlock_clockrdlock, clock, (pthread_rwlock_t *restrict lock, clockid_t clock, const struct timespec *restrict until), lock, clock)
WAIT(pthread_rwlock_clockwrlock, clock, (pthread_rwlock_t *restrict lock, clockid_t clock, const struct timespec *restrict until), lock, clock)
WAIT(pthread_timedjoin_np, CLOCK_REALTIME, (pthread_t thread, void **result, const struct timespec *until), thread, result)
WAIT(sem_timedwait, CLOCK_REALTIME, (sem_t *restrict one, const struct timespec *restrict until), one)
WAIT(sem_clockwait, clock, (sem_t *restrict one, clockid_t clock, const struct timespec *restrict until), one, clock)
