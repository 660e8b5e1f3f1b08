/* A program in C that loads plugins, each with its own copy of pfp. */
#include <pfp.h>

#include <dlfcn.h>
#include <string.h>
#include <unistd.h>

#include "script.h"

enum { TIMES = 200 };

static int inside(int argument)
{
    PFP_SCOPE("inside");
    for (volatile int turn = 0; turn < 20000; turn++)
        ;
    return argument;
}

int main(int argc, char **argv)
{
    for (int at = 1; at < argc; at++) {
        int (*work)(int (*)(int), int);
        void *plugin = dlopen(argv[at], RTLD_NOW | RTLD_LOCAL);
        if (!plugin)
            fprintf(stderr, "%s\n", dlerror());
        EXPECT(plugin != NULL);
        void *found = dlsym(plugin, "work");
        EXPECT(found != NULL);
        memcpy(&work, &found, sizeof work);
        for (int i = 0; i < TIMES; i++) {
            PFP_SCOPE("outside");
            for (volatile int turn = 0; turn < 20000; turn++)
                ;
            EXPECT(work(inside, i) == i + 1);
        }
    }
    say("times %d", TIMES);
    reach("done");
    return 0;
}
