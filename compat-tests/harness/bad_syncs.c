/* fsync and fdatasync that fail or take long while a file says so: preloaded into a broker by bad_syncs.py.
   The file that BAD_SYNCS names holds "fail", or milliseconds to wait; missing or empty, all is well. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int disturbed(void) {
    char order[32] = {0};
    const char *path = getenv("BAD_SYNCS");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0) return 0;
    ssize_t size = read(file, order, sizeof order - 1);
    close(file);
    if (size <= 0) return 0;
    if (strncmp(order, "fail", 4) == 0) { errno = EIO; return -1; }
    usleep((useconds_t) atoi(order) * 1000);
    return 0;
}

int fsync(int file) {
    static int (*real)(int);
    if (!real) real = dlsym(RTLD_NEXT, "fsync");
    return disturbed() ? -1 : real(file);
}

int fdatasync(int file) {
    static int (*real)(int);
    if (!real) real = dlsym(RTLD_NEXT, "fdatasync");
    return disturbed() ? -1 : real(file);
}
