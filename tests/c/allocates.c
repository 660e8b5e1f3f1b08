/* Allocates by every function of the C library in one region: `allocates N` repeats the work N
 * times. */
#include <malloc.h>
#include <pthread.h>
#include <pfp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "script.h"

/* The compiler does not see that these sizes are too large. */
static volatile size_t too_many = SIZE_MAX;

/* Keeps the compiler from leaving out an allocation. */
static void *seen(void *memory)
{
    __asm__ volatile("" : "+r"(memory) : : "memory");
    return memory;
}

static void *freed_there(void *memory)
{
    free(memory);
    return NULL;
}

static int compare(const void *one, const void *other)
{
    return *(const int *)one - *(const int *)other;
}

static void work(const char *lines, size_t size)
{
    void *memory = seen(malloc(100));
    memory = seen(realloc(memory, 100000)); /* grows */
    memory = seen(realloc(memory, 50)); /* shrinks */
    memory = seen(reallocarray(memory, 30, 7));
    EXPECT(seen(reallocarray(memory, too_many, 2)) == NULL);
    free(memory);
    free(seen(realloc(NULL, 77)));
    free(seen(realloc(NULL, 0)));
    EXPECT(seen(realloc(seen(malloc(40)), 0)) == NULL); /* frees */
    free(seen(reallocarray(NULL, 11, 3)));
    free(seen(calloc(9, 13)));
    EXPECT(seen(calloc(too_many, 2)) == NULL);
    free(seen(malloc(0)));
    free(seen(malloc(1 << 20))); /* has a mapping of its own */
    free(seen(aligned_alloc(64, 128)));
    free(seen(memalign(256, 300)));
    EXPECT(posix_memalign(&memory, 4096, 17) == 0);
    free(seen(memory));
    EXPECT(posix_memalign(&memory, 3, 17) != 0);
    free(NULL);

    free(seen(strdup("some text")));
    free(seen(strndup("some text", 4)));
    char *text;
    EXPECT(asprintf(&text, "%0*d", 300, 7) == 300);
    free(seen(text));

    FILE *file = fmemopen((void *)(uintptr_t)lines, size, "r");
    char *line = NULL;
    size_t room = 0;
    while (getline(&line, &room, file) >= 0)
        seen(line);
    free(line);
    fclose(file);

    int *numbers = seen(malloc(100000 * sizeof(int)));
    for (int i = 0; i < 100000; i++)
        numbers[i] = (int)(i * 2654435761u >> 8);
    qsort(numbers, 100000, sizeof(int), compare);
    EXPECT(numbers[0] <= numbers[1]);
    free(numbers);
}

int main(int count, char **arguments)
{
    char lines[3000];
    EXPECT(count == 2);
    for (size_t i = 0; i < sizeof lines; i++)
        lines[i] = i % 700 == 699 ? '\n' : 'x';
    for (int rounds = atoi(arguments[1]); rounds > 0; rounds--) {
        pthread_t other;
        void *memory;
        {
            PFP_SCOPE("work");
            work(lines, sizeof lines);
            memory = seen(malloc(1234));
        }
        EXPECT(pthread_create(&other, NULL, freed_there, memory) == 0);
        EXPECT(pthread_join(other, NULL) == 0);
    }
    return 0;
}
