/* Repeats the work of a program with a library that the tests did not write. */
#ifndef ROUNDS_H
#define ROUNDS_H

#include <pfp.h>
#include <stdlib.h>

#include "script.h"

/* Does the work in a region as often as the argument of the program says. The first time, which no
 * region measures, the library allocates what it keeps. */
static int rounds(int count, char **arguments, void (*work)(void))
{
    EXPECT(count == 2);
    work();
    for (int left = atoi(arguments[1]); left > 0; left--) {
        PFP_SCOPE("work");
        work();
    }
    return 0;
}

#endif
