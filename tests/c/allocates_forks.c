/* Forks in a region that allocates; the child begins regions of its own, and executes this program
 * again. A signal handler allocates in a region, too. Each process writes a file of figures:
 * `allocates_forks PARENT CHILD AGAIN`. */
#include <pfp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "script.h"

static void *volatile kept;

static void allocate(size_t bytes)
{
    kept = malloc(bytes);
    free(kept);
}

/* The program raises the signal itself, outside of malloc. */
static void on_signal(int number)
{
    (void)number;
    allocate(1000);
}

static void child(char **arguments)
{
    allocate(30);
    {
        PFP_SCOPE("of the child");
        allocate(40);
        PFP_SCOPE("inside");
        allocate(50);
    }
    EXPECT(pfp_snapshot_to(arguments[2]) == PFP_OK);
    execl("/proc/self/exe", arguments[0], "again", arguments[3], (char *)NULL);
    _exit(1);
}

int main(int count, char **arguments)
{
    int status;
    EXPECT(count >= 3);
    if (strcmp(arguments[1], "again") == 0) {
        {
            PFP_SCOPE("again");
            allocate(60);
        }
        EXPECT(pfp_snapshot_to(arguments[2]) == PFP_OK);
        return 0;
    }
    EXPECT(signal(SIGUSR1, on_signal) != SIG_ERR);
    {
        PFP_SCOPE("around");
        allocate(10);
        pid_t pid = fork();
        EXPECT(pid >= 0);
        if (pid == 0)
            child(arguments);
        EXPECT(waitpid(pid, &status, 0) == pid && status == 0);
        {
            PFP_SCOPE("inside");
            allocate(20);
            EXPECT(raise(SIGUSR1) == 0);
        }
    }
    EXPECT(pfp_snapshot_to(arguments[1]) == PFP_OK);
    return 0;
}
