/* Begins and ends tasks as the macros of ITT do, only while the domain's flag is set. Prints how
 * many tasks were begun. Argument: the tool. */
#include <dlfcn.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../c/script.h"

struct domain {
    volatile int flags;
};
struct id {
    unsigned long long words[3];
};

static struct domain *(*domain_create)(const char *);
static void *(*string_handle_create)(const char *);
static void (*task_begin)(const struct domain *, struct id, struct id, void *);
static void (*task_end)(const struct domain *);
static void (*region_begin)(const struct domain *, struct id, struct id, void *);
static void (*region_end)(const struct domain *, struct id);

static void load(const char *tool)
{
    static struct api {
        const char *name;
        void *function, *first, *null;
        int group;
    } list[] = {
        {"__itt_domain_create", &domain_create, NULL, NULL, 1},
        {"__itt_string_handle_create", &string_handle_create, NULL, NULL, 1},
        {"__itt_task_begin", &task_begin, NULL, NULL, 1},
        {"__itt_task_end", &task_end, NULL, NULL, 1},
        {"__itt_region_begin", &region_begin, NULL, NULL, 1},
        {"__itt_region_end", &region_end, NULL, NULL, 1},
        {NULL, NULL, NULL, NULL, 0},
    };
    static struct {
        unsigned char magic[8];
        unsigned long version[3];
        volatile long state[3];
        pthread_mutex_t mutex;
        void *library, *error_handler, *path;
        struct api *list;
    } global = {.magic = {0xed, 0xab, 0xab, 0xec, 0x0d, 0xee, 0xda, 0x30}, .list = list};
    void (*init)(void *, int);
    void *library = dlopen(tool, RTLD_LAZY);
    EXPECT(library);
    *(void **)&init = dlsym(library, "__itt_api_init");
    init(&global, -1);
}

static const struct id none, span = {{1, 2, 3}};
static struct domain *domain, *off;
static void *work, *of_thread, *of_span;
static pthread_barrier_t step;

static unsigned long tasks(unsigned long count)
{
    unsigned long called = 0;
    for (; count > 0; count--) {
        if (domain->flags)
            task_begin(domain, none, none, work), called++;
        if (domain->flags)
            task_end(domain);
    }
    return called;
}

/* A thread that has a task open between the two barriers. */
static void *holds(void *unused)
{
    if (domain->flags)
        task_begin(domain, none, none, of_thread);
    pthread_barrier_wait(&step);
    pthread_barrier_wait(&step);
    if (domain->flags)
        task_end(domain);
    return unused;
}

#define MANY 400000

int main(int argc, char **argv)
{
    pthread_t thread;
    pid_t child;
    int status;

    EXPECT(argc == 2);
    load(argv[1]);
    domain = domain_create("rests");
    EXPECT(domain && domain == domain_create("rests"));
    off = domain_create("off by the program");
    off->flags = 0;
    work = string_handle_create("work");
    of_thread = string_handle_create("of a thread");
    of_span = string_handle_create("span");
    pthread_barrier_init(&step, NULL, 2);
    EXPECT(pthread_create(&thread, NULL, holds, NULL) == 0);
    pthread_barrier_wait(&step);
    region_begin(domain, span, none, of_span);
    region_end(domain, span);
    region_begin(domain, span, none, of_span);
    say("on %lu", tasks(10));
    reach("begun");
    /* All points are off, and two of them have open regions. */
    say("open %lu", tasks(MANY));
    pthread_barrier_wait(&step);
    pthread_join(thread, NULL);
    say("span %lu", tasks(MANY));
    region_end(domain, span);
    say("closed %lu", tasks(MANY));
    say("rests %lu", tasks(MANY));
    child = fork();
    if (child == 0)
        _exit(domain->flags == 1 && off->flags == 0 && tasks(MANY) == MANY ? 0 : 1);
    EXPECT(waitpid(child, &status, 0) == child && status == 0);
    say("forked %lu", tasks(MANY));
    reach("rested");
    /* One point is enabled. */
    say("awake %lu %d", tasks(1000), off->flags);
    reach("awoken");
    /* All points are off. Then a second viewer enables one, before the program checks. */
    tasks(MANY);
    say("again %lu", tasks(MANY));
    reach("done");
    return 0;
}
