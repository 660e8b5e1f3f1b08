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

#endif
