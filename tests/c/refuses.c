/* A library to preload, whose allocator refuses pfp's module for Python the n-th request. Requests
 * of the interpreter are granted. */
#include <dlfcn.h>
#include <errno.h>
#include <stddef.h>
#include <string.h>

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *memory, size_t size);

/* Number of requests of the module that are granted before one is refused; negative if none is. */
static long left = -1, refused;
static int for_good;

/* ---- called by the test ---- */

void refuse_from(long n, int all_later)
{
    for_good = all_later;
    left = n;
}

/* Grants all requests from now on. Returns the number of refused ones. */
long grant(void)
{
    long count = refused;
    left = -1;
    refused = 0;
    return count;
}

/* ---- the allocator ---- */

static int refuses(const void *caller)
{
    Dl_info info;
    if (left < 0 || !dladdr(caller, &info) || !strstr(info.dli_fname, "_pfp.abi3.so") || left-- > 0)
        return 0;
    left = for_good ? 0 : -1;
    refused++;
    errno = ENOMEM;
    return 1;
}

void *malloc(size_t size)
{
    return refuses(__builtin_return_address(0)) ? NULL : __libc_malloc(size);
}

void *calloc(size_t count, size_t size)
{
    return refuses(__builtin_return_address(0)) ? NULL : __libc_calloc(count, size);
}

void *realloc(void *memory, size_t size)
{
    return refuses(__builtin_return_address(0)) ? NULL : __libc_realloc(memory, size);
}
