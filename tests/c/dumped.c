/* Measures on several threads and aborts; its core dump includes the kinds of mapping in FILTER.
 *
 * dumped FILTER HOW: "named", or "unlinked" to remove the segment's name first. If PFP_DISABLE is
 * defined, the program does not use pfp. */
#include <pfp.h>

#include <pthread.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "script.h"

enum { THREADS = 16, TIMES = 5000 };

static pthread_barrier_t measured;
static int aborts = 1;

static void *works(void *ends)
{
    for (volatile int i = 0; i < TIMES; i++) {
        PFP_SCOPE("work");
    }
    pthread_barrier_wait(&measured);
    if (ends)
        abort();
    pause();
    return NULL;
}

/* Removes the segments' names; returns how many there were. */
static int unlink_segments(void)
{
    char line[512], *path;
    int found = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    EXPECT(maps);
    while (fgets(line, sizeof line, maps)) {
        if ((path = strstr(line, "/dev/shm/pfp-"))) {
            path[strcspn(path, " \n")] = 0;
            found += unlink(path) == 0;
        }
    }
    fclose(maps);
    return found;
}

int main(int count, char **arguments)
{
    struct rlimit all = {RLIM_INFINITY, RLIM_INFINITY};
    pthread_attr_t small;
    pthread_t thread;
    FILE *filter;
    int found = 0;

    EXPECT(count == 3);
    EXPECT(setrlimit(RLIMIT_CORE, &all) == 0);
    EXPECT((filter = fopen("/proc/self/coredump_filter", "w")) != NULL);
    EXPECT(fputs(arguments[1], filter) >= 0 && fclose(filter) == 0);
    EXPECT(pthread_barrier_init(&measured, NULL, THREADS + 1) == 0);
    EXPECT(pthread_attr_init(&small) == 0);
    EXPECT(pthread_attr_setstacksize(&small, 1 << 16) == 0);
    {
        /* Creates the segment first, since other threads do not wait long for it. */
        PFP_SCOPE("first");
    }
    for (int i = 1; i < THREADS; i++)
        EXPECT(pthread_create(&thread, &small, works, NULL) == 0);
    {
        PFP_SCOPE("work");
        if (!strcmp(arguments[2], "unlinked"))
            found = unlink_segments();
    }
    say("unlinked %d", found);
    reach("measured");
    EXPECT(pthread_create(&thread, &small, works, &aborts) == 0);
    works(NULL);
    return 0;
}
