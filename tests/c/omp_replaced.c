/* Two parallel regions, in functions whose names are the macros FIRST and SECOND. The macro PROGRAM
 * leaves out the functions, and LIBRARY leaves out `main`, which ends when its input ends. */
#include <stdio.h>

void FIRST(void);
void SECOND(void);

#ifndef PROGRAM
static volatile double sum;

__attribute__((noinline)) void FIRST(void) {
#pragma omp parallel num_threads(2)
    {
        double own = 0;
        for (int i = 0; i < 1000; i++)
            own += i;
        sum = own;
    }
    /* Work after the region, so that the compiler calls the region and does not jump to it. */
    sum = sum + 1;
}

__attribute__((noinline)) void SECOND(void) {
#pragma omp parallel num_threads(2)
    {
        double own = 1;
        for (int i = 0; i < 1000; i++)
            own *= 1.0001;
        sum = own;
    }
    sum = sum + 1;
}
#endif

#ifndef LIBRARY
int main(void) {
    FIRST();
    SECOND();
    puts("ran");
    fflush(stdout);
    getchar();
    return 0;
}
#endif
