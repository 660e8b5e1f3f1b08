/* A parallel job: a launcher and its ranks. Ranks with odd numbers call exec on this program. The
 * ranks end by exit(), _exit(), abort() and SIGKILL in turn. */
#include <pfp.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "script.h"

#define MOST 16

static int ready[2], go[2];

static unsigned steps_of(int rank)
{
    return 100u * (unsigned)(rank + 1);
}

static void step(void)
{
    PFP_SCOPE("step");
    pfpBegin(1, NULL);
    pfpEnd(1, 0);
}

/* Works, prints its counts, waits for the launcher, and ends. */
static void be_rank(int rank)
{
    struct rlimit none = {0, 0};
    char byte = 0;

    EXPECT(pfpCreate() == PFP_OK && pfpEnable(1) == PFP_OK);
    for (unsigned i = 0; i < steps_of(rank); i++)
        step();
    say("rank %d %ld %u", rank, (long)getpid(), steps_of(rank));
    EXPECT(write(ready[1], &byte, 1) == 1);
    EXPECT(read(go[0], &byte, 1) == 0);
    setrlimit(RLIMIT_CORE, &none);
    switch (rank % 4) {
    case 0:
        exit(0);
    case 1:
        _exit(0);
    case 2:
        abort();
    default:
        raise(SIGKILL);
    }
}

static void start(const char *program, int rank)
{
    PFP_SCOPE("launch");
    char numbers[3][16];
    pid_t child = fork();
    EXPECT(child >= 0);
    if (child > 0)
        return;
    close(ready[0]);
    close(go[1]);
    if (rank % 2 == 0)
        be_rank(rank);
    snprintf(numbers[0], sizeof numbers[0], "%d", rank);
    snprintf(numbers[1], sizeof numbers[1], "%d", ready[1]);
    snprintf(numbers[2], sizeof numbers[2], "%d", go[0]);
    execl(program, program, "--rank", numbers[0], numbers[1], numbers[2], (char *)NULL);
    _exit(127);
}

int main(int argc, char **argv)
{
    int ranks = argc > 1 ? atoi(argv[1]) : 0, crashed = 0, status;
    char byte;

    if (argc == 5 && strcmp(argv[1], "--rank") == 0) {
        ready[1] = atoi(argv[3]);
        go[0] = atoi(argv[4]);
        be_rank(atoi(argv[2]));
    }
    EXPECT(ranks > 0 && ranks <= MOST);
    EXPECT(pipe(ready) == 0 && pipe(go) == 0);
    EXPECT(pfpCreate() == PFP_OK && pfpEnable(1) == PFP_OK);
    for (int i = 0; i < 7; i++)
        step();
    for (int rank = 0; rank < ranks; rank++)
        start(argv[0], rank);
    for (int rank = 0; rank < ranks; rank++)
        EXPECT(read(ready[0], &byte, 1) == 1);
    reach("measured");
    close(go[1]);
    while (wait(&status) > 0)
        crashed += WIFSIGNALED(status);
    say("crashed %d", crashed);
    reach("ended");
    return 0;
}
