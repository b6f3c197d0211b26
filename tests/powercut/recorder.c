/* Records what a process does to the files below RECORDER_ROOT, in order, into the file RECORDER_LOG.
 *
 * Loaded with LD_PRELOAD. A record is written when the call has returned; a sync has two, before and after, so that
 * what it covers is known: the writes whose records precede its begin. Record: op u8, fd i32, offset u64, length u32,
 * then `length` bytes. replay.py is the reader. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

enum { OPENED = 1, CLOSED, WRITTEN, TRUNCATED, SYNC_BEGUN, SYNC_DONE, RENAMED, REMOVED, MADE_DIR };
#define FDS 4096

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int log_fd = -2;
static const char *root;
static char tracked[FDS];
#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static void start(void) {
    if (log_fd != -2) return;
    root = getenv("RECORDER_ROOT");
    const char *path = getenv("RECORDER_LOG");
    log_fd = root && path ? REAL(open)(path, O_CREAT | O_WRONLY | O_APPEND | O_CLOEXEC, 0644) : -1;
}

static int below(const char *path, char *full) {
    start();
    if (log_fd < 0 || !path) return 0;
    if (path[0] == '/') snprintf(full, PATH_MAX, "%s", path);
    else { char cwd[PATH_MAX]; if (!getcwd(cwd, sizeof cwd)) return 0;
           if (snprintf(full, PATH_MAX, "%s/%s", cwd, path) >= PATH_MAX) return 0; }
    return strncmp(full, root, strlen(root)) == 0;
}

static void record(uint8_t op, int32_t fd, uint64_t offset, const struct iovec *parts, int count) {
    int saved = errno;
    uint32_t length = 0;
    for (int i = 0; i < count; i++) length += parts[i].iov_len;
    size_t total = 17 + (size_t)length, at = 17;
    char *out = malloc(total);
    if (!out) _exit(97);
    memcpy(out, &op, 1); memcpy(out + 1, &fd, 4); memcpy(out + 5, &offset, 8); memcpy(out + 13, &length, 4);
    for (int i = 0; i < count; i++) { memcpy(out + at, parts[i].iov_base, parts[i].iov_len); at += parts[i].iov_len; }
    pthread_mutex_lock(&lock);
    for (at = 0; at < total;) {
        ssize_t done = REAL(write)(log_fd, out + at, total - at);
        if (done < 0) { fprintf(stderr, "recorder: the recording cannot be written\n"); _exit(97); }
        at += done;
    }
    pthread_mutex_unlock(&lock);
    free(out);
    errno = saved;
}

static void record_path(uint8_t op, int fd, uint64_t offset, const char *one, const char *two) {
    struct iovec parts[3] = {{(void *)one, strlen(one)}, {(void *)"\0", 1}, {(void *)(two ? two : ""), two ? strlen(two) : 0}};
    record(op, fd, offset, parts, two ? 3 : 1);
}

static int opened(int fd, const char *path, int flags) {
    char full[PATH_MAX];
    if (fd >= 0 && fd < FDS && below(path, full)) {
        tracked[fd] = 1;
        record_path(OPENED, fd, (uint64_t)(flags & (O_CREAT | O_TRUNC | O_APPEND)), full, NULL);
    }
    return fd;
}

#define OPEN(name) \
    int name(const char *path, int flags, ...) { \
        va_list more; va_start(more, flags); mode_t mode = va_arg(more, mode_t); va_end(more); \
        return opened(REAL(name)(path, flags, mode), path, flags); }
OPEN(open)
OPEN(open64)
int openat(int dir, const char *path, int flags, ...) {
    va_list more; va_start(more, flags); mode_t mode = va_arg(more, mode_t); va_end(more);
    return opened(REAL(openat)(dir, path, flags, mode), path, flags);
}
int openat64(int dir, const char *path, int flags, ...) {
    va_list more; va_start(more, flags); mode_t mode = va_arg(more, mode_t); va_end(more);
    return opened(REAL(openat64)(dir, path, flags, mode), path, flags);
}

static int known(int fd) { return fd >= 0 && fd < FDS && tracked[fd]; }

int close(int fd) {
    int was = known(fd);
    if (was) { tracked[fd] = 0; record(CLOSED, fd, 0, NULL, 0); }
    return REAL(close)(fd);
}

static ssize_t wrote(int fd, const struct iovec *parts, int count, int64_t offset, ssize_t done) {
    if (done > 0 && known(fd)) {
        struct iovec cut[count];
        size_t left = done; int used = 0;
        for (; used < count && left; used++) {
            cut[used] = parts[used];
            if (cut[used].iov_len > left) cut[used].iov_len = left;
            left -= cut[used].iov_len;
        }
        record(WRITTEN, fd, (uint64_t)offset, cut, used);
    }
    return done;
}

ssize_t pwrite(int fd, const void *data, size_t size, off_t offset) {
    struct iovec part = {(void *)data, size};
    return wrote(fd, &part, 1, offset, REAL(pwrite)(fd, data, size, offset));
}
ssize_t pwrite64(int fd, const void *data, size_t size, off64_t offset) {
    struct iovec part = {(void *)data, size};
    return wrote(fd, &part, 1, offset, REAL(pwrite64)(fd, data, size, offset));
}
ssize_t pwritev(int fd, const struct iovec *parts, int count, off_t offset) {
    return wrote(fd, parts, count, offset, REAL(pwritev)(fd, parts, count, offset));
}
ssize_t pwritev64(int fd, const struct iovec *parts, int count, off64_t offset) {
    return wrote(fd, parts, count, offset, REAL(pwritev64)(fd, parts, count, offset));
}
ssize_t pwritev2(int fd, const struct iovec *parts, int count, off_t offset, int flags) {
    return wrote(fd, parts, count, offset, REAL(pwritev2)(fd, parts, count, offset, flags));
}
ssize_t pwritev64v2(int fd, const struct iovec *parts, int count, off64_t offset, int flags) {
    return wrote(fd, parts, count, offset, REAL(pwritev64v2)(fd, parts, count, offset, flags));
}
ssize_t write(int fd, const void *data, size_t size) {
    int64_t at = known(fd) ? lseek(fd, 0, SEEK_CUR) : 0;
    struct iovec part = {(void *)data, size};
    return wrote(fd, &part, 1, at, REAL(write)(fd, data, size));
}

#define TRUNCATE(name, type) \
    int name(int fd, type size) { \
        int r = REAL(name)(fd, size); \
        if (!r && known(fd)) { record(TRUNCATED, fd, (uint64_t)size, NULL, 0); } \
        return r; }
TRUNCATE(ftruncate, off_t)
TRUNCATE(ftruncate64, off64_t)

static int grown(int fd, int r) {
    struct stat now;
    if (!r && known(fd) && !fstat(fd, &now)) record(TRUNCATED, fd, (uint64_t)now.st_size, NULL, 0);
    return r;
}
int posix_fallocate(int fd, off_t offset, off_t size) { return grown(fd, REAL(posix_fallocate)(fd, offset, size)); }
int posix_fallocate64(int fd, off64_t offset, off64_t size) { return grown(fd, REAL(posix_fallocate64)(fd, offset, size)); }

#define SYNC(name) \
    int name(int fd) { \
        if (!known(fd)) { return REAL(name)(fd); } \
        record(SYNC_BEGUN, fd, 0, NULL, 0); \
        int r = REAL(name)(fd); \
        if (!r) { record(SYNC_DONE, fd, 0, NULL, 0); } \
        return r; }
SYNC(fsync)
SYNC(fdatasync)

int rename(const char *old, const char *new) {
    char from[PATH_MAX], to[PATH_MAX];
    int r = REAL(rename)(old, new);
    if (!r && below(old, from) && below(new, to)) record_path(RENAMED, 0, 0, from, to);
    return r;
}
int unlink(const char *path) {
    char full[PATH_MAX];
    int r = REAL(unlink)(path);
    if (!r && below(path, full)) record_path(REMOVED, 0, 0, full, NULL);
    return r;
}
int mkdir(const char *path, mode_t mode) {
    char full[PATH_MAX];
    int r = REAL(mkdir)(path, mode);
    if (!r && below(path, full)) record_path(MADE_DIR, 0, 0, full, NULL);
    return r;
}
