/* Loads plugins at run time and calls each of them in the main thread and in other threads, where a
 * signal handler calls it first. With one plugin, no handler may allocate. Many plugins create
 * more pthread keys than glibc has room for in each thread, so that glibc itself allocates. */
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "script.h"

enum { PLUGINS = 64, THREADS = 20 };

void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t count, size_t bytes);
void *__libc_realloc(void *memory, size_t bytes);
void __libc_free(void *memory);

static __thread int is_in_handler;
static int (*plugins[PLUGINS])(int);
static int loaded;

static void no_handler(void)
{
    static const char said[] = "a handler asked for heap memory\n";
    if (is_in_handler) {
        if (write(2, said, sizeof said - 1) < 0)
            _exit(4);
        _exit(3);
    }
}

void *malloc(size_t bytes)
{
    no_handler();
    return __libc_malloc(bytes);
}

void *calloc(size_t count, size_t bytes)
{
    no_handler();
    return __libc_calloc(count, bytes);
}

void *realloc(void *memory, size_t bytes)
{
    no_handler();
    return __libc_realloc(memory, bytes);
}

void free(void *memory)
{
    if (memory)
        no_handler();
    __libc_free(memory);
}

static void handle(int number)
{
    is_in_handler = loaded == 1;
    for (int at = 0; at < loaded; at++)
        EXPECT(plugins[at](number) == number + 1);
    is_in_handler = 0;
}

static void *begin(void *unused)
{
    raise(SIGUSR1);
    handle(7);
    return unused;
}

static void load(const char *path)
{
    void *plugin = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!plugin)
        fprintf(stderr, "%s\n", dlerror());
    EXPECT(plugin != NULL);
    void *found = dlsym(plugin, "work");
    EXPECT(found != NULL);
    memcpy(&plugins[loaded], &found, sizeof found);
    EXPECT(plugins[loaded](1) == 2);
    loaded++;
}

int main(int argc, char **argv)
{
    EXPECT(argc <= PLUGINS);
    signal(SIGUSR1, handle);
    for (int at = 1; at < argc; at++) {
        load(argv[at]);
        /* After a load, glibc extends a thread's storage at its first use: here in a handler. */
        raise(SIGUSR1);
    }
    for (int at = 0; at < THREADS; at++) {
        pthread_t thread;
        EXPECT(pthread_create(&thread, NULL, begin, NULL) == 0);
        EXPECT(pthread_join(thread, NULL) == 0);
    }
    say("calls %d", 2 + 2 * THREADS);
    reach("done");
    return 0;
}
