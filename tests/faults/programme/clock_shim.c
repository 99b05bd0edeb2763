/* Steps the wall clock of the processes that are started with it: adds the seconds (a double) that stand in the file
   $FAULTS_CLOCK to every reading of CLOCK_REALTIME. All other clocks stay as they are. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>
#include <sys/syscall.h>

static volatile double *offset;

__attribute__((constructor)) static void prepare(void) {
    const char *path = getenv("FAULTS_CLOCK");
    int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (fd < 0) return;
    void *found = mmap(NULL, sizeof(double), PROT_READ, MAP_SHARED, fd, 0);
    if (found != MAP_FAILED) offset = found;
    close(fd);
}

static void shift(struct timespec *at) {
    if (!offset) return;
    long long ns = (long long)at->tv_sec * 1000000000LL + at->tv_nsec + (long long)(*offset * 1e9);
    at->tv_sec = ns / 1000000000LL;
    at->tv_nsec = ns % 1000000000LL;
}

int clock_gettime(clockid_t clock, struct timespec *at) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
    int code = real ? real(clock, at) : (int)syscall(SYS_clock_gettime, clock, at);
    if (!code && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) shift(at);
    return code;
}

int gettimeofday(struct timeval *restrict at, void *restrict zone) {
    struct timespec now;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &now);
    at->tv_sec = now.tv_sec;
    at->tv_usec = now.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *at) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (at) *at = now.tv_sec;
    return now.tv_sec;
}
