/* Measures, and prints whether it has other rights than the user who started it. Built with
 * ANNOTATED, it does not use pfp, and the library that its argument names measures it. */
#include <dlfcn.h>
#include <stdint.h>
#include <sys/auxv.h>

#include "script.h"

#ifdef ANNOTATED
static union {
    void *found;
    void (*init)(int, uint64_t, uint32_t, void *);
    void (*push)(const char *);
    void (*pop)(void);
} init, push, pop;

static void load(const char *path)
{
    void *library = dlopen(path, RTLD_NOW);
    EXPECT(library != NULL);
    EXPECT((init.found = dlsym(library, "kokkosp_init_library")) != NULL);
    EXPECT((push.found = dlsym(library, "kokkosp_push_profile_region")) != NULL);
    EXPECT((pop.found = dlsym(library, "kokkosp_pop_profile_region")) != NULL);
    init.init(0, 20211015, 0, NULL);
}

#define MEASURE(name) (push.push(name), pop.pop())
#else
#include <pfp.h>

#define load(path) (void)(path)
#define MEASURE(name)     \
    do {                  \
        PFP_SCOPE(name);  \
    } while (0)
#endif

int main(int count, char **arguments)
{
    load(arguments[count - 1]);
    for (int i = 0; i < 10; i++)
        MEASURE("work");
    MEASURE("asked for");
    MEASURE("step 17");
    say("secure %lu", getauxval(AT_SECURE));
    reach("done");
    return 0;
}
