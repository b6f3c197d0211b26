/* Makes a process's disk fail and its wall clock wrong, as a page of shared memory says from moment to moment.
 *
 * Loaded with LD_PRELOAD. QUORATE_SHIM is the page's file, QUORATE_SHIM_ROOT the folder whose files are concerned, without
 * links and dots; both are read once. Calls that no fault concerns go straight on. What a process writes through a mapping, and calls that
 * it makes to the kernel without libc, are not seen here. shim.py is the writer of the page. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

struct page {
    volatile int64_t writes_wait, syncs_wait;   /* while not 0 */
    volatile int64_t writes_errno, syncs_errno; /* what they fail with, 0: they do not */
    volatile int64_t writes_us, syncs_us;       /* how much longer they take */
    volatile int64_t clock_turn;                /* odd while the next three change */
    volatile int64_t clock_ahead_ns, clock_since_ns, clock_gains_ppb;
};

static const struct page *page;
static char root[PATH_MAX];
static size_t root_size;

#define NEXT(type, name) \
    static type next_##name; \
    static type real_##name(void) { \
        type found = __atomic_load_n(&next_##name, __ATOMIC_RELAXED); \
        if (!found) { found = (type)dlsym(RTLD_NEXT, #name); __atomic_store_n(&next_##name, found, __ATOMIC_RELAXED); } \
        return found; }

typedef int (*clock_call)(clockid_t, struct timespec *);
NEXT(clock_call, clock_gettime)

__attribute__((constructor)) static void start(void) {
    const char *path = getenv("QUORATE_SHIM"), *folder = getenv("QUORATE_SHIM_ROOT");
    if (!path || !folder || strlen(folder) >= sizeof root) return;
    strcpy(root, folder);
    root_size = strlen(root);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return;
    void *mapped = mmap(NULL, sizeof(struct page), PROT_READ, MAP_SHARED, fd, 0);
    close(fd);
    if (mapped != MAP_FAILED) __atomic_store_n(&page, mapped, __ATOMIC_RELEASE);
}

/* --- disks --------------------------------------------------------------------------------------------------- */

static int below_root(int fd) {
    char link[40], path[PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t size = readlink(link, path, sizeof path - 1);
    return size >= (ssize_t)root_size && !memcmp(path, root, root_size)
        && (size == (ssize_t)root_size || path[root_size] == '/');
}

static void wait_us(int64_t us) {
    struct timespec left = {us / 1000000, us % 1000000 * 1000};
    while (clock_nanosleep(CLOCK_MONOTONIC, 0, &left, &left) == EINTR) {}
}

/* 0, or what the call fails with. A disk that stalls is let go again even when it fails then. */
static int troubled(int fd, volatile const int64_t *waits, volatile const int64_t *fails, volatile const int64_t *us) {
    if (!*waits && !*fails && !*us) return 0;
    int saved = errno;
    if (!below_root(fd)) { errno = saved; return 0; }
    while (*waits) wait_us(1000);
    if (*us) wait_us(*us);
    errno = saved;
    return (int)*fails;
}
#define WRITE_TROUBLE(fd) (page ? troubled(fd, &page->writes_wait, &page->writes_errno, &page->writes_us) : 0)
#define SYNC_TROUBLE(fd) (page ? troubled(fd, &page->syncs_wait, &page->syncs_errno, &page->syncs_us) : 0)

#define WRITE(result, name, parameters, arguments) \
    typedef result (*name##_call) parameters; \
    NEXT(name##_call, name) \
    result name parameters { \
        int trouble = WRITE_TROUBLE(fd); \
        if (trouble) { errno = trouble; return -1; } \
        return real_##name() arguments; }
WRITE(ssize_t, write, (int fd, const void *data, size_t size), (fd, data, size))
WRITE(ssize_t, pwrite, (int fd, const void *data, size_t size, off_t at), (fd, data, size, at))
WRITE(ssize_t, pwrite64, (int fd, const void *data, size_t size, off64_t at), (fd, data, size, at))
WRITE(ssize_t, writev, (int fd, const struct iovec *parts, int count), (fd, parts, count))
WRITE(ssize_t, pwritev, (int fd, const struct iovec *parts, int count, off_t at), (fd, parts, count, at))
WRITE(ssize_t, pwritev64, (int fd, const struct iovec *parts, int count, off64_t at), (fd, parts, count, at))
WRITE(ssize_t, pwritev2, (int fd, const struct iovec *parts, int count, off_t at, int how), (fd, parts, count, at, how))
WRITE(ssize_t, pwritev64v2, (int fd, const struct iovec *parts, int count, off64_t at, int how),
      (fd, parts, count, at, how))
WRITE(int, ftruncate, (int fd, off_t size), (fd, size))
WRITE(int, ftruncate64, (int fd, off64_t size), (fd, size))
WRITE(int, fallocate, (int fd, int how, off_t at, off_t size), (fd, how, at, size))
WRITE(int, fallocate64, (int fd, int how, off64_t at, off64_t size), (fd, how, at, size))

#define ALLOCATE(name, type) \
    typedef int (*name##_call)(int, type, type); \
    NEXT(name##_call, name) \
    int name(int fd, type at, type size) { \
        int trouble = WRITE_TROUBLE(fd); \
        return trouble ? trouble : real_##name()(fd, at, size); }
ALLOCATE(posix_fallocate, off_t)
ALLOCATE(posix_fallocate64, off64_t)

#define SYNC(name) \
    typedef int (*name##_call)(int); \
    NEXT(name##_call, name) \
    int name(int fd) { \
        int trouble = SYNC_TROUBLE(fd); \
        if (trouble) { errno = trouble; return -1; } \
        return real_##name()(fd); }
SYNC(fsync)
SYNC(fdatasync)
SYNC(syncfs)

typedef int (*sync_file_range_call)(int, off64_t, off64_t, unsigned);
NEXT(sync_file_range_call, sync_file_range)
int sync_file_range(int fd, off64_t at, off64_t size, unsigned how) {
    int trouble = SYNC_TROUBLE(fd);
    if (trouble) { errno = trouble; return -1; }
    return real_sync_file_range()(fd, at, size, how);
}

/* Whether an address is mapped from a file below the root: asked of the kernel, only while syncs are in trouble. */
static int mapped_below_root(uintptr_t address) {
    FILE *maps = fopen("/proc/self/maps", "re");
    if (!maps) return 0;
    char line[PATH_MAX + 128];
    int found = 0;
    while (fgets(line, sizeof line, maps)) {
        unsigned long from, to; int at = 0;
        if (sscanf(line, "%lx-%lx %*s %*s %*s %*s %n", &from, &to, &at) == 2 && from <= address && address < to) {
            found = at && !strncmp(line + at, root, root_size) && line[at + root_size] == '/';
            break;
        }
    }
    fclose(maps);
    return found;
}

typedef int (*msync_call)(void *, size_t, int);
NEXT(msync_call, msync)
int msync(void *address, size_t size, int how) {
    if (page && (page->syncs_wait || page->syncs_errno || page->syncs_us) && mapped_below_root((uintptr_t)address)) {
        while (page->syncs_wait) wait_us(1000);
        if (page->syncs_us) wait_us(page->syncs_us);
        if (page->syncs_errno) { errno = (int)page->syncs_errno; return -1; }
    }
    return real_msync()(address, size, how);
}

/* --- the wall clock -------------------------------------------------------------------------------------------- */

/* How far it is from the right time, in ns. */
static int64_t wrong_ns(int64_t right_ns) {
    for (;;) {
        int64_t turn = __atomic_load_n(&page->clock_turn, __ATOMIC_ACQUIRE);
        int64_t ahead = page->clock_ahead_ns, since = page->clock_since_ns, ppb = page->clock_gains_ppb;
        __atomic_thread_fence(__ATOMIC_ACQUIRE);
        if (!(turn & 1) && turn == page->clock_turn)
            return ppb ? ahead + (int64_t)((__int128)(right_ns - since) * ppb / 1000000000) : ahead;
    }
}
#define NS(moment) ((int64_t)(moment).tv_sec * 1000000000 + (moment).tv_nsec)

static struct timespec of_ns(int64_t ns) {
    if (ns < 0) ns = 0;
    return (struct timespec){ns / 1000000000, ns % 1000000000};
}

int clock_gettime(clockid_t which, struct timespec *now) {
    int failed = real_clock_gettime()(which, now);
    if (!failed && page && (which == CLOCK_REALTIME || which == CLOCK_REALTIME_COARSE)) {
        int64_t right = NS(*now);
        *now = of_ns(right + wrong_ns(right));
    }
    return failed;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    struct timespec exact;
    (void)zone;
    if (clock_gettime(CLOCK_REALTIME, &exact)) return -1;
    *now = (struct timeval){exact.tv_sec, exact.tv_nsec / 1000};
    return 0;
}

time_t time(time_t *now) {
    struct timespec exact;
    if (clock_gettime(CLOCK_REALTIME, &exact)) return -1;
    if (now) *now = exact.tv_sec;
    return exact.tv_sec;
}

int timespec_get(struct timespec *now, int base) {
    return base == TIME_UTC && !clock_gettime(CLOCK_REALTIME, now) ? base : 0;
}

/* A moment of the wrong clock as one of the right clock, for those who wait until then. Moments of the monotonic
 * clock, which the same calls take, are those before 2001. */
static const struct timespec *right(const struct timespec *until, struct timespec *made) {
    struct timespec now;
    if (!page || !until || until->tv_sec < 1000000000 || real_clock_gettime()(CLOCK_REALTIME, &now)) return until;
    *made = of_ns(NS(*until) - wrong_ns(NS(now)));
    return made;
}

typedef int (*cond_wait_call)(pthread_cond_t *, pthread_mutex_t *, const struct timespec *);
static cond_wait_call next_cond_wait;
int pthread_cond_timedwait(pthread_cond_t *restrict cond, pthread_mutex_t *restrict mutex,
                           const struct timespec *restrict until) {
    struct timespec made;
    if (!next_cond_wait) { /* the oldest of that name, which dlsym may find, is of another layout */
        next_cond_wait = (cond_wait_call)dlvsym(RTLD_NEXT, "pthread_cond_timedwait", "GLIBC_2.3.2");
        if (!next_cond_wait) next_cond_wait = (cond_wait_call)dlsym(RTLD_NEXT, "pthread_cond_timedwait");
    }
    return next_cond_wait(cond, mutex, right(until, &made));
}

typedef int (*sem_timedwait_call)(sem_t *, const struct timespec *);
NEXT(sem_timedwait_call, sem_timedwait)
int sem_timedwait(sem_t *restrict sem, const struct timespec *restrict until) {
    struct timespec made;
    return real_sem_timedwait()(sem, right(until, &made));
}

typedef int (*clock_nanosleep_call)(clockid_t, int, const struct timespec *, struct timespec *);
NEXT(clock_nanosleep_call, clock_nanosleep)
int clock_nanosleep(clockid_t which, int how, const struct timespec *until, struct timespec *left) {
    struct timespec made;
    if (which == CLOCK_REALTIME && how & TIMER_ABSTIME) until = right(until, &made);
    return real_clock_nanosleep()(which, how, until, left);
}
