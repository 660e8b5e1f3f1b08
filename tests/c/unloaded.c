/* Closes a plugin while threads that have measured in it still run. Then the threads end, and the
 * plugin is opened and closed again.
 *
 * unloaded PLUGIN: prints how often the plugin was called, and whether it was still loaded after
 * it was closed. */
#include <dlfcn.h>
#include <pthread.h>
#include <string.h>

#include "script.h"

enum { THREADS = 6, TIMES = 50, ROUNDS = 3 };

typedef int (*work_t)(int (*)(int), int);

static const char *path;
static work_t work;
static pthread_barrier_t called, closed;
static pthread_key_t key;

/* Destructor of `key`. It runs before or after pfp's own destructor, and always after the plugin
 * was closed. */
static void at_end(void *unused)
{
    (void)unused;
    work(NULL, 1);
}

static void *works(void *unused)
{
    (void)unused;
    EXPECT(pthread_setspecific(key, &key) == 0);
    for (int i = 0; i < TIMES; i++)
        EXPECT(work(NULL, i) == i + 1);
    pthread_barrier_wait(&called);
    pthread_barrier_wait(&closed);
    return NULL;
}

static void *open_plugin(void)
{
    void *found, *plugin = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    EXPECT(plugin != NULL);
    EXPECT((found = dlsym(plugin, "work")) != NULL);
    memcpy(&work, &found, sizeof work);
    return plugin;
}

static int is_loaded(void)
{
    void *plugin = dlopen(path, RTLD_NOW | RTLD_NOLOAD);
    if (plugin)
        dlclose(plugin);
    return plugin != NULL;
}

int main(int count, char **arguments)
{
    int stayed = 1;

    EXPECT(count == 2);
    path = arguments[1];
    EXPECT(pthread_key_create(&key, at_end) == 0);
    EXPECT(pthread_barrier_init(&called, NULL, THREADS + 1) == 0);
    EXPECT(pthread_barrier_init(&closed, NULL, THREADS + 1) == 0);
    for (int round = 0; round < ROUNDS; round++) {
        pthread_t threads[THREADS];
        void *plugin = open_plugin();
        /* The first call runs alone: a region that begins while another thread registers its point
         * is missed. */
        work(NULL, 0);
        for (int i = 0; i < THREADS; i++)
            EXPECT(pthread_create(&threads[i], NULL, works, NULL) == 0);
        pthread_barrier_wait(&called);
        EXPECT(dlclose(plugin) == 0);
        stayed &= is_loaded();
        pthread_barrier_wait(&closed);
        for (int i = 0; i < THREADS; i++)
            EXPECT(pthread_join(threads[i], NULL) == 0);
    }
    say("stayed %d", stayed);
    say("called %d", ROUNDS * (1 + THREADS * (TIMES + 1)));
    reach("done");
    return 0;
}
