/* Regions that allocate much and free all of it, but for one, which forgets a buffer in each call:
 * 4000 buffers of 1500 bytes. */
#include <pfp.h>
#include <stdlib.h>
#include <string.h>

#include "script.h"

static char *last;

static void parse(void)
{
    PFP_SCOPE("parse");
    char *text = strdup("some words that are split at their spaces"), *rest;
    for (char *word = strtok_r(text, " ", &rest); word; word = strtok_r(NULL, " ", &rest))
        free(strdup(word));
    free(text);
    free(calloc(100, 30));
}

static int compare(const void *one, const void *other)
{
    return *(const int *)one - *(const int *)other;
}

static void sort(int number)
{
    PFP_SCOPE("sort");
    int *numbers = malloc(500 * sizeof(int));
    for (int i = 0; i < 500; i++)
        numbers[i] = (number + i) * 7919 % 1009;
    qsort(numbers, 500, sizeof(int), compare);
    EXPECT(numbers[0] <= numbers[499]);
    free(numbers);
}

static void receive(int number)
{
    PFP_SCOPE("receive");
    char *buffer = malloc(1500);
    memset(buffer, number, 1500);
    char *copy = malloc(3000);
    memcpy(copy, buffer, 1500);
    free(copy);
    last = buffer; /* the buffer before is forgotten */
}

int main(void)
{
    for (int number = 0; number < 4000; number++) {
        parse();
        sort(number);
        receive(number);
    }
    EXPECT(last != NULL);
    return 0;
}
