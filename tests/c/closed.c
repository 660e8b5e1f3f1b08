/* A program that closes the standard descriptors, and then makes pfp open each kind of its files. */
#include <pfp.h>

#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

static void *work(void *unused)
{
    PFP_SCOPE("work");
    return unused;
}

/* Runs before `main`: if functions are measured, the call of `main` makes pfp open files. */
__attribute__((constructor, no_instrument_function)) static void close_standard(void)
{
    for (int number = 0; number < 3; number++)
        close(number);
}

int main(int argc, char **argv)
{
    pthread_t thread;
    work(NULL);
    if (pthread_create(&thread, NULL, work, NULL) != 0 || pthread_join(thread, NULL) != 0)
        return 2;
    if (argc > 1 && pfp_snapshot_to(argv[1]) != PFP_OK)
        return 3;
    for (int number = 0; number < 3; number++)
        if (fcntl(number, F_GETFD) != -1)
            return 4;
    return 7;
}
