/* Runs programs one after the other, and prints how each ended. */

#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>

int main(int count, char **programs)
{
    for (int i = 1; i < count; i++) {
        int status = system(programs[i]);
        printf("status %d\n", WIFEXITED(status) ? WEXITSTATUS(status) : -1);
        fflush(stdout);
    }
    return 0;
}
