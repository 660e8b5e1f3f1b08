/* Prints the clock source of a system whose C library has no restartable sequences: perf, if the
 * kernel permits a thread to open a software event for itself, otherwise cputime. */
#include <stdint.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

int main(void)
{
    struct {
        uint32_t type, size;
        uint64_t config, sample[3], flags, rest[2];
    } event = {.type = 1, .size = 64, .config = 9, .flags = 1 << 5 | 1 << 6};
    puts(syscall(SYS_perf_event_open, &event, 0, -1, -1, 0) < 0 ? "cputime" : "perf");
    return 0;
}
