/* The program's side of the protocol with its test, as `src/script.rs` in Rust: it prints `key
 * value ...` lines, and waits at each step until the test continues it. */
#ifndef SCRIPT_H
#define SCRIPT_H

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

/* Prints a line: a key and its values. */
__attribute__((format(printf, 1, 2), unused)) static void say(const char *format, ...)
{
    va_list values;
    va_start(values, format);
    vprintf(format, values);
    va_end(values);
    putchar('\n');
    fflush(stdout);
}

/* Prints a step and waits for a line, or for the end of the input. */
__attribute__((unused)) static void reach(const char *name)
{
    int byte;
    say("%s", name);
    do
        byte = getchar();
    while (byte != '\n' && byte != EOF);
}

/* Ends the program with an error if a condition is false. */
#define EXPECT(condition)                                                            \
    do {                                                                             \
        if (!(condition)) {                                                          \
            fprintf(stderr, "%s:%d: expected %s\n", __FILE__, __LINE__, #condition); \
            exit(1);                                                                 \
        }                                                                            \
    } while (0)

/* Prints both numbers if the first exceeds the second. */
#define EXPECT_AT_MOST(found, limit)                                                      \
    do {                                                                                  \
        const unsigned long long found_ = (found), limit_ = (limit);                      \
        if (found_ > limit_) {                                                            \
            fprintf(stderr, "%s:%d: expected %s to be at most %s = %llu, found %llu\n",   \
                __FILE__, __LINE__, #found, #limit, limit_, found_);                      \
            exit(1);                                                                      \
        }                                                                                 \
    } while (0)

#endif
