/* A program that loads a plugin again and again. With `forks` it forks as well. */
#include <pfp.h>

#include <dlfcn.h>
#include <pthread.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "script.h"

enum { LOADS = 20, CALLS = 50, CHILD_CALLS = 30 };

static void *call(void *plug)
{
    int (*function)(int);
    memcpy(&function, &plug, sizeof function);
    for (int i = 0; i < CALLS; i++)
        EXPECT(function(i) == i + 1);
    return NULL;
}

/* Calls the plugin in this thread and in one that ends, and unloads it. */
static void load_once(const char *path)
{
    pthread_t thread;
    void *plugin = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!plugin)
        fprintf(stderr, "%s\n", dlerror());
    EXPECT(plugin != NULL);
    void *plug = dlsym(plugin, "plug");
    EXPECT(plug != NULL);
    call(plug);
    EXPECT(pthread_create(&thread, NULL, call, plug) == 0);
    EXPECT(pthread_join(thread, NULL) == 0);
    EXPECT(dlclose(plugin) == 0);
    EXPECT(dlopen(path, RTLD_NOW | RTLD_NOLOAD) == NULL);
}

static int child(void)
{
    pfpStats_t stats;
    for (int i = 0; i < CHILD_CALLS; i++) {
        PFP_SCOPE("in the child");
        EXPECT(pfpBegin(1, NULL) == PFP_OK);
        EXPECT(pfpEnd(1, 0) == PFP_OK);
    }
    /* The child has none of its parent's counts. */
    EXPECT(pfpGetStats(1, &stats) == PFP_OK && stats.n_count == CHILD_CALLS);
    EXPECT(stats.enabled);
    say("child %d %d", (int)getpid(), CHILD_CALLS);
    reach("done");
    return 0;
}

int main(int argc, char **argv)
{
    EXPECT(argc >= 2);
    EXPECT(pfpCreate() == PFP_OK && pfpEnable(1) == PFP_OK);
    for (int i = 0; i < LOADS; i++) {
        PFP_SCOPE("host");
        EXPECT(pfpBegin(1, NULL) == PFP_OK);
        load_once(argv[1]);
        EXPECT(pfpEnd(1, 0) == PFP_OK);
    }
    if (argc > 2) {
        int status;
        const pid_t forked = fork();
        EXPECT(forked >= 0);
        if (forked == 0)
            return child();
        EXPECT(waitpid(forked, &status, 0) == forked);
        EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    say("loads %d", LOADS);
    say("calls %d", 2 * LOADS * CALLS);
    reach("unloaded");
    return 0;
}
