/* A preloaded library that refuses to back the page PFP_TEST_REFUSED of a shared mapping, counted
 * from its start. At the end it adds to the file PFP_TEST_REPORT a line for each page that was
 * backed, and one for each page that was touched although it was not backed. */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif
#define PAGE 4096
#define MOST 16

static struct mapping {
    char *start;
    size_t pages;
    unsigned char *backed;
    int is_asked_for;
} mappings[MOST];

static pthread_mutex_t guard = PTHREAD_MUTEX_INITIALIZER;

static struct mapping *mapping_of(const char *place)
{
    for (struct mapping *it = mappings; it < mappings + MOST; it++)
        if (it->start && place >= it->start && place < it->start + it->pages * PAGE)
            return it;
    return NULL;
}

void *mmap(void *place, size_t length, int access, int flags, int file, off_t offset)
{
    char *start = (char *)syscall(SYS_mmap, place, length, access, flags, file, offset);
    if (file < 0 || !(flags & MAP_SHARED) || start == MAP_FAILED)
        return start;
    pthread_mutex_lock(&guard);
    for (struct mapping *it = mappings; it < mappings + MOST; it++) {
        if (it->start)
            continue;
        it->pages = length / PAGE;
        it->backed = calloc(it->pages + 1, 1);
        it->is_asked_for = 0;
        it->start = it->backed ? start : NULL;
        break;
    }
    pthread_mutex_unlock(&guard);
    return start;
}

void *mmap64(void *place, size_t length, int access, int flags, int file, off_t offset)
{
    return mmap(place, length, access, flags, file, offset);
}

static void report(struct mapping *it)
{
    const char *path = getenv("PFP_TEST_REPORT");
    /* Only the probe's own shared mappings are reported, since only the probe asks for backing. */
    FILE *to = path && it->is_asked_for ? fopen(path, "a") : NULL;
    unsigned char *there = calloc(it->pages + 1, 1);
    if (to && there && mincore(it->start, it->pages * PAGE, there) == 0)
        for (size_t page = 0; page < it->pages; page++) {
            if (it->backed[page])
                fprintf(to, "backed %zu\n", page);
            else if (there[page] & 1)
                fprintf(to, "touched %zu\n", page);
        }
    free(there);
    if (to)
        fclose(to);
    it->start = NULL;
}

int munmap(void *place, size_t length)
{
    struct mapping *it = mapping_of(place);
    if (it && it->start == place)
        report(it);
    return (int)syscall(SYS_munmap, place, length);
}

int madvise(void *place, size_t length, int advice)
{
    struct mapping *it = advice == MADV_POPULATE_WRITE ? mapping_of(place) : NULL;
    if (!it)
        return (int)syscall(SYS_madvise, place, length, advice);
    it->is_asked_for = 1;
    size_t first = (size_t)((char *)place - it->start) / PAGE;
    size_t end = first + length / PAGE;
    const char *refused = getenv("PFP_TEST_REFUSED");
    size_t page = refused ? strtoul(refused, NULL, 10) : 0;
    if (refused && page >= first && page < end) {
        errno = EFAULT;
        return -1;
    }
    int result = (int)syscall(SYS_madvise, place, length, advice);
    for (page = first; result == 0 && page < end; page++)
        it->backed[page] = 1;
    return result;
}

__attribute__((destructor)) static void report_all(void)
{
    for (struct mapping *it = mappings; it < mappings + MOST; it++)
        if (it->start)
            report(it);
}
