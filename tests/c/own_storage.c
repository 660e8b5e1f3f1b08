/* A plugin with a copy of pfp and BYTES of thread-local storage of its own. */
#include <pfp.h>

static __thread char own[BYTES];

__attribute__((visibility("default"))) int work(int argument);
__attribute__((visibility("default"))) char *storage(void);

/* Returns the plugin's own storage, which glibc allocates at a thread's first use. */
char *storage(void)
{
    return own;
}

int work(int argument)
{
    PFP_SCOPE("plugin");
    return argument + 1;
}
