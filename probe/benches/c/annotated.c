/* Cost of annotations for other tools with libpfp_inject. This is a worker like
 * `region.c`. Each annotation is a load and a call, as in the headers of NVTX and ITT.
 *
 *     annotated --case NAME
 *
 * The macro LIBRARY is the path of libpfp_inject.so. */
#include <dlfcn.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define NOTHING() __asm__ volatile("" ::: "memory")

/* ---- NVTX: connects to the tool as NVTX's header does ---- */

typedef void (*function)(void);
typedef struct nvtx_event {
    uint16_t version, size;
    uint32_t category;
    int32_t color_kind;
    uint32_t color;
    int32_t payload_kind, reserved;
    uint64_t payload;
    int32_t message_kind;
    const void *message;
} nvtx_event;

static int (*volatile push)(const char *);
static int (*volatile pop)(void);
static int (*volatile domain_push)(void *, const nvtx_event *);
static int (*volatile domain_pop)(void *);
static void *(*domain_create)(const char *);
static void *(*register_string)(void *, const char *);

static function *core[17], *core2[17];

static int module_table(int module, function ***table, unsigned *size)
{
    if (module != 1 && module != 5)
        return 0;
    core[9] = (function *)&push;
    core[11] = (function *)&pop;
    core2[4] = (function *)&domain_push;
    core2[5] = (function *)&domain_pop;
    core2[10] = (function *)&register_string;
    core2[12] = (function *)&domain_create;
    for (int at = 0; at < 17; at++) {
        static function unused;
        core[at] = core[at] ? core[at] : &unused;
        core2[at] = core2[at] ? core2[at] : &unused;
    }
    *table = module == 1 ? core : core2;
    *size = 16;
    return 1;
}

static const void *export_table(uint32_t number)
{
    static const struct {
        size_t size;
        int (*table)(int, function ***, unsigned *);
    } callbacks = {sizeof callbacks, module_table};
    return number == 1 ? &callbacks : NULL;
}

/* ---- ITT: connects to the tool as ITT's header does ---- */

typedef struct itt_domain {
    volatile int flags;
} itt_domain;
typedef struct itt_id {
    unsigned long long words[3];
} itt_id;

static itt_domain *(*itt_domain_create)(const char *);
static void *(*itt_string)(const char *);
static void (*volatile itt_begin)(const itt_domain *, itt_id, itt_id, void *);
static void (*volatile itt_end)(const itt_domain *);

static void start_itt(void *library)
{
    static struct api {
        const char *name;
        void *function, *first, *null;
        int group;
    } list[] = {
        {"__itt_domain_create", &itt_domain_create, NULL, NULL, 1},
        {"__itt_string_handle_create", &itt_string, NULL, NULL, 1},
        {"__itt_task_begin", (void *)&itt_begin, NULL, NULL, 1},
        {"__itt_task_end", (void *)&itt_end, NULL, NULL, 1},
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
    *(void **)&init = dlsym(library, "__itt_api_init");
    init(&global, -1);
}

/* ---- the cases ---- */

static void nvtx_text(unsigned long calls)
{
    for (unsigned long call = 0; call < calls; call++) {
        push("a range of the program");
        NOTHING();
        pop();
    }
}

static void nvtx_registered(unsigned long calls)
{
    static void *domain, *text;
    nvtx_event event = {.version = 2, .size = sizeof event, .message_kind = 3};
    if (!domain) {
        domain = domain_create("bench");
        text = register_string(domain, "a range of the domain");
    }
    event.message = text;
    for (unsigned long call = 0; call < calls; call++) {
        domain_push(domain, &event);
        NOTHING();
        domain_pop(domain);
    }
}

static void itt_task(unsigned long calls)
{
    static itt_domain *domain;
    static void *text;
    const itt_id none = {{0, 0, 0}};
    if (!domain) {
        domain = itt_domain_create("bench");
        text = itt_string("a task");
    }
    for (unsigned long call = 0; call < calls; call++) {
        if (domain->flags)
            itt_begin(domain, none, none, text);
        NOTHING();
        if (domain->flags)
            itt_end(domain);
    }
}

static const struct {
    const char *name;
    void (*batch)(unsigned long calls);
} CASES[] = {
    {"NVTX: push with a text, pop", nvtx_text},
    {"NVTX: push with a registered string, pop", nvtx_registered},
    {"ITT: task", itt_task},
};

static double ns(clockid_t clock)
{
    struct timespec time;
    clock_gettime(clock, &time);
    return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

int main(int argc, char **argv)
{
    void (*batch)(unsigned long) = NULL;
    int (*start_nvtx)(const void *(*)(uint32_t));
    void *library = dlopen(LIBRARY, RTLD_LAZY);
    unsigned long calls;

    for (size_t at = 0; argc == 3 && at < sizeof CASES / sizeof *CASES; at++)
        if (strcmp(argv[2], CASES[at].name) == 0)
            batch = CASES[at].batch;
    if (!batch || !library)
        return 2;
    *(void **)&start_nvtx = dlsym(library, "InitializeInjectionNvtx2");
    start_nvtx(export_table);
    start_itt(library);
    batch(10);
    while (scanf("%lu %*u", &calls) == 1) {
        double cpu = ns(CLOCK_THREAD_CPUTIME_ID), start = ns(CLOCK_MONOTONIC), took;
        batch(calls);
        took = ns(CLOCK_MONOTONIC) - start;
        cpu = ns(CLOCK_THREAD_CPUTIME_ID) - cpu;
        printf("%f %f 0\n", took / (double)(calls ? calls : 1),
               cpu / (double)(calls ? calls : 1));
        fflush(stdout);
    }
    return 0;
}
