/* A plugin that measures with its own copy of pfp. */
#include <pfp.h>

__attribute__((visibility("default"))) int work(int (*inside)(int), int argument);
__attribute__((visibility("default"))) void pause_all(int pause);

int work(int (*inside)(int), int argument)
{
    PFP_SCOPE("plugin in C");
    for (volatile int turn = 0; turn < 20000; turn++)
        ;
    return (inside ? inside(argument) : argument) + 1;
}

void pause_all(int pause)
{
    pfp_set_enabled(!pause);
}
