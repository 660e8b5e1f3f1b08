/* A preloaded library that simulates a disk that hangs: reads at an offset of a recording do not
 * return while the file PFP_TEST_HANGS exists. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static int is_recording(int file)
{
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0)
        return 0;
    path[length] = 0;
    return strstr(path, ".pfprec") != NULL;
}

ssize_t pread64(int file, void *bytes, size_t length, off64_t offset)
{
    const char *hangs = getenv("PFP_TEST_HANGS");
    while (hangs && access(hangs, F_OK) == 0 && is_recording(file))
        usleep(1000);
    return syscall(SYS_pread64, file, bytes, length, offset);
}
