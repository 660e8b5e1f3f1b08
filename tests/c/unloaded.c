/* A plugin that measures is closed while a thread that has measured in it lives on. */
#include <dlfcn.h>
#include <pthread.h>
#include <semaphore.h>

#include "script.h"

typedef int (*call_t)(int);

static void *plugin;
static call_t call;
static sem_t called, closed;

static void *works(void *unused)
{
    (void)unused;
    call(1);
    sem_post(&called);
    sem_wait(&closed);
    return NULL;
}

int main(int count, char **arguments)
{
    pthread_t thread;

    EXPECT(count == 2);
    EXPECT(sem_init(&called, 0, 0) == 0 && sem_init(&closed, 0, 0) == 0);
    EXPECT((plugin = dlopen(arguments[1], RTLD_NOW)) != NULL);
    *(void **)&call = dlsym(plugin, "call");
    EXPECT(call != NULL);
    EXPECT(pthread_create(&thread, NULL, works, NULL) == 0);
    sem_wait(&called);
    EXPECT(dlclose(plugin) == 0);
    sem_post(&closed);
    EXPECT(pthread_join(thread, NULL) == 0);
    say("lives 1");
    return 0;
}
