/* Scopes and points that are used for the first time in a signal handler do not call the
 * allocator, which the signal may have interrupted. */
#include <pfp.h>

#include <signal.h>
#include <stdio.h>

extern void *__libc_malloc(size_t bytes);
extern void *__libc_calloc(size_t count, size_t bytes);
extern void *__libc_realloc(void *before, size_t bytes);
extern void *__libc_memalign(size_t to, size_t bytes);

static volatile sig_atomic_t in_handler, allocated;

static void seen(void)
{
    allocated += in_handler;
}

void *malloc(size_t bytes)
{
    seen();
    return __libc_malloc(bytes);
}

void *calloc(size_t count, size_t bytes)
{
    seen();
    return __libc_calloc(count, bytes);
}

void *realloc(void *before, size_t bytes)
{
    seen();
    return __libc_realloc(before, bytes);
}

void *memalign(size_t to, size_t bytes)
{
    seen();
    return __libc_memalign(to, bytes);
}

int posix_memalign(void **place, size_t to, size_t bytes)
{
    seen();
    *place = __libc_memalign(to, bytes);
    return *place ? 0 : 12;
}

void *aligned_alloc(size_t to, size_t bytes)
{
    seen();
    return __libc_memalign(to, bytes);
}

static pfp_point_t *named, *again;

static void handle(int number)
{
    in_handler = 1;
    (void)number;
    {
        PFP_SCOPE("first in a handler");
    }
    {
        /* A name that is not valid UTF-8. */
        PFP_SCOPE("\xff\xfe of bytes");
    }
    named = pfp_point("asked for in a handler", "a file", 7);
    pfp_begin(named);
    pfp_end(named, 0);
    in_handler = 0;
}

int main(void)
{
    pfpStats_t stats;
    {
        PFP_SCOPE("outside");
    }
    signal(SIGUSR1, handle);
    raise(SIGUSR1);
    again = pfp_point("asked for in a handler", "a file", 7);
    pfp_get_stats(named, &stats);
    printf("allocated %d, same %d, count %d\n", (int)allocated, named == again,
           (int)stats.n_count);
    return 0;
}
