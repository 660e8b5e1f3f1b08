/* Loads a tool as Kokkos does from 3.7 on, and reports one event of every kind to it. */
#include <dlfcn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define VERSION 20211015

typedef struct space {
    char name[64];
} space;

static void *tool;

static void *symbol(const char *name)
{
    void *found = dlsym(tool, name);
    if (!found) {
        fprintf(stderr, "the tool has no %s\n", name);
        exit(1);
    }
    return found;
}

static void kernel(const char *begin_name, const char *end_name, const char *label)
{
    void (*begin)(const char *, uint32_t, uint64_t *);
    void (*end)(uint64_t);
    uint64_t id = 7;
    *(void **)&begin = symbol(begin_name);
    *(void **)&end = symbol(end_name);
    begin(label, 1, &id);
    end(id);
}

int main(int argc, char **argv)
{
    int rounds = argc > 1 ? atoi(argv[1]) : 1;
    const char *library = getenv("KOKKOS_TOOLS_LIBS");
    bool settings[256] = {true};
    void (*init)(int, uint64_t, uint32_t, void *);
    void (*request)(uint32_t, bool *);
    void (*push)(const char *);
    void (*pop)(void);
    void (*copy)(space, const char *, const void *, space, const char *, const void *, uint64_t);
    void (*copied)(void);
    void (*event)(const char *);
    void (*create)(const char *, uint32_t *);
    void (*start)(uint32_t);
    void (*stop)(uint32_t);
    space host = {"Host"};
    uint32_t section, others[1100];

    /* Kokkos uses the first library that the variable lists. If it lists none, there is no tool. */
    if (!library || !*library)
        return 0;
    tool = dlopen(strtok(strdup(library), ";"), RTLD_NOW | RTLD_GLOBAL);
    if (!tool) {
        fprintf(stderr, "%s\n", dlerror());
        return 1;
    }
    *(void **)&init = symbol("kokkosp_init_library");
    *(void **)&request = symbol("kokkosp_request_tool_settings");
    *(void **)&push = symbol("kokkosp_push_profile_region");
    *(void **)&pop = symbol("kokkosp_pop_profile_region");
    *(void **)&copy = symbol("kokkosp_begin_deep_copy");
    *(void **)&copied = symbol("kokkosp_end_deep_copy");
    *(void **)&event = symbol("kokkosp_profile_event");
    *(void **)&create = symbol("kokkosp_create_profile_section");
    *(void **)&start = symbol("kokkosp_start_profile_section");
    *(void **)&stop = symbol("kokkosp_stop_profile_section");
    init(0, VERSION, 1, NULL);
    request(1, settings);
    if (settings[0])
        return 2;
    create("section", &section);
    for (int round = 0; round < rounds; round++) {
        start(section);
        push("round");
        kernel("kokkosp_begin_parallel_for", "kokkosp_end_parallel_for", "fill");
        kernel("kokkosp_begin_parallel_reduce", "kokkosp_end_parallel_reduce", "add");
        kernel("kokkosp_begin_parallel_scan", "kokkosp_end_parallel_scan", "sum up");
        kernel("kokkosp_begin_fence", "kokkosp_end_fence", "wait for all");
        copy(host, "to", NULL, host, "from", NULL, 800);
        copied();
        event("event");
        pop();
        stop(section);
    }
    /* More sections than the tool has room for. */
    for (size_t at = 0; at < sizeof others / sizeof *others; at++)
        create("other", &others[at]);
    for (size_t at = 1000; at < sizeof others / sizeof *others; at++) {
        start(others[at]);
        stop(others[at]);
    }
    return 0;
}
