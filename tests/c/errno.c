/* No call of the library changes errno: neither the first one in a process, a thread or a forked
 * child, nor one that is refused. */
#include <pfp.h>

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#define KEPT 4242

#define KEEPS(call)                                                                  \
    do {                                                                             \
        errno = KEPT;                                                                \
        call;                                                                        \
        if (errno != KEPT) {                                                         \
            printf("errno is %d after %s\n", errno, #call);                         \
            exit(1);                                                                 \
        }                                                                            \
    } while (0)

static int task, interrupt;

static void region(void)
{
    PFP_SCOPE("region");
}

static void regions(void)
{
    KEEPS(region());
    KEEPS(region());
    KEEPS(pfpBegin(1, NULL));
    KEEPS(pfpEnd(1, 0));
    KEEPS(pfpTaskSwitch(NULL, &task));
    KEEPS(pfpHwiBegin(&interrupt));
    KEEPS(region());
    KEEPS(pfpHwiEnd(&interrupt));
    KEEPS(pfpTaskSwitch(&task, NULL));
}

/* A thread that ends without leaving its task. */
static void *takes(void *of_thread)
{
    (void)of_thread;
    KEEPS(pfpTaskSwitch(NULL, &task));
    return NULL;
}

static void *measures(void *of_thread)
{
    regions();
    return of_thread;
}

static void in_thread(void *(*work)(void *))
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, work, NULL) || pthread_join(thread, NULL))
        exit(1);
}

int main(void)
{
    pfp_point_t *point;
    pfpStats_t stats;
    pid_t child;
    int status;

    KEEPS(region());
    KEEPS(pfpCreate());
    KEEPS(pfpEnable(1));
    KEEPS(pfpTaskCreate(&task));
    KEEPS(pfpHwiCreate(&interrupt));
    regions();
    KEEPS(point = pfp_point("of a name", NULL, 0));
    KEEPS(pfp_begin(point));
    KEEPS(pfp_end(point, 0));
    KEEPS(pfp_get_stats(point, &stats));
    KEEPS(pfpCalibrate(100, 1));
    KEEPS(pfpBegin(-1, NULL));
    KEEPS(pfpTaskSwitch(NULL, &stats));
    in_thread(measures);
    in_thread(takes);
    regions();

    /* The child inherits a task that this thread has entered in the parent. */
    KEEPS(pfpTaskSwitch(NULL, &task));
    child = fork();
    if (child == 0) {
        KEEPS(region());
        KEEPS(pfpTaskSwitch(NULL, &task));
        KEEPS(pfpTaskSwitch(&task, NULL));
        regions();
        _exit(0);
    }
    if (waitpid(child, &status, 0) != child || status != 0)
        return 1;
    puts("kept");
    return 0;
}
