/* How a program follows a test's script: it says `key value ...` lines, and waits
 * at each step until it may go on. As `src/script.rs` does it in Rust. */
#ifndef SCRIPT_H
#define SCRIPT_H

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

/* Says a line: a key and its values. */
__attribute__((format(printf, 1, 2), unused)) static void say(const char *format, ...)
{
    va_list values;
    va_start(values, format);
    vprintf(format, values);
    va_end(values);
    putchar('\n');
    fflush(stdout);
}

/* Says a step and waits for a line; the end of the input goes on as well. */
__attribute__((unused)) static void reach(const char *name)
{
    int byte;
    say("%s", name);
    do
        byte = getchar();
    while (byte != '\n' && byte != EOF);
}

/* Ends the program if something is not as it must be. */
#define EXPECT(condition)                                                            \
    do {                                                                             \
        if (!(condition)) {                                                          \
            fprintf(stderr, "%s:%d: expected %s\n", __FILE__, __LINE__, #condition); \
            exit(1);                                                                 \
        }                                                                            \
    } while (0)

#endif
