/* Forks children while other threads hold the locks of the loader, of its list of objects and of
 * the environment. Each child measures for the first time, and calls a function that its parent
 * has not called. Prints how many hung, died or miscounted.
 *
 * beside_locks first|later CHILDREN: whether the parent has measured before. */
#include <pfp.h>

#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "script.h"

enum { CALLS = 3 };

static atomic_int is_over, has_child, loads, lists, changes;

/* Pauses this thread while a child runs. The child's copies of the locks stay as they were at the
 * fork, so the pause does not release them. */
static void rest(void)
{
    while (atomic_load(&has_child) && !atomic_load(&is_over))
        usleep(100);
}

static void *load(void *unused)
{
    (void)unused;
    while (!atomic_load(&is_over)) {
        void *library = dlopen("libm.so.6", RTLD_NOW);
        if (library)
            dlclose(library);
        atomic_fetch_add(&loads, 1);
        rest();
    }
    return NULL;
}

static int look(struct dl_phdr_info *object, size_t size, void *unused)
{
    (void)object, (void)size, (void)unused;
    return 0;
}

static void *list(void *unused)
{
    (void)unused;
    while (!atomic_load(&is_over)) {
        dl_iterate_phdr(look, NULL);
        atomic_fetch_add(&lists, 1);
        rest();
    }
    return NULL;
}

static void *change(void *unused)
{
    char value[16];
    (void)unused;
    while (!atomic_load(&is_over)) {
        snprintf(value, sizeof value, "%d", atomic_fetch_add(&changes, 1) % 100);
        setenv("NOTHING_OF_PFPS", value, 1);
        rest();
    }
    return NULL;
}

static unsigned long call(void)
{
    static pfp_point_t *point;
    pfpStats_t stats;
    point = pfp_point("beside locks", "beside", 1);
    for (int i = 0; i < CALLS; i++) {
        pfp_begin(point);
        pfp_end(point, 0);
    }
    return pfp_get_stats(point, &stats) == PFP_OK ? (unsigned long)stats.n_count : 0;
}

/* Only children call this function. If the compiler inserts hooks, it is a point. */
__attribute__((noinline)) static int newcomer(int argument)
{
    return atomic_load(&is_over) + argument;
}

int main(int count, char **arguments)
{
    pthread_t loader, lister, changer;
    unsigned long hung = 0, died = 0, miscounted = 0;
    EXPECT(count == 3);
    if (!strcmp(arguments[1], "later"))
        EXPECT(call() == CALLS);
    EXPECT(setenv("NOTHING_OF_PFPS", "00", 1) == 0);
    EXPECT(pthread_create(&loader, NULL, load, NULL) == 0);
    EXPECT(pthread_create(&lister, NULL, list, NULL) == 0);
    EXPECT(pthread_create(&changer, NULL, change, NULL) == 0);
    for (int left = atoi(arguments[2]); left > 0; left--) {
        int status = 0, before[] = {loads, lists, changes};
        pid_t child;
        atomic_store(&has_child, 0);
        do
            usleep(200);
        while (loads == before[0] || lists == before[1] || changes == before[2]);
        child = fork();
        EXPECT(child >= 0);
        atomic_store(&has_child, 1);
        if (child == 0) {
            alarm(20);
            _exit(newcomer(CALLS) != CALLS || call() != CALLS);
        }
        EXPECT(waitpid(child, &status, 0) == child);
        hung += WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM;
        died += WIFSIGNALED(status) && WTERMSIG(status) != SIGALRM;
        miscounted += WIFEXITED(status) && WEXITSTATUS(status);
    }
    atomic_store(&is_over, 1);
    EXPECT(pthread_join(loader, NULL) == 0 && pthread_join(lister, NULL) == 0);
    EXPECT(pthread_join(changer, NULL) == 0);
    say("hung %lu", hung);
    say("died %lu", died);
    say("miscounted %lu", miscounted);
    reach("done");
    return 0;
}
