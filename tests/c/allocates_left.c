/* Regions that are left by a jump and by the end of a thread, memory that a forked child frees, and
 * another copy of pfp that is loaded later: `allocates_left FILE COPY` writes its figures into FILE.
 */
#include <pfp.h>
#include <dlfcn.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "script.h"

enum { MANY = 4000, STACK = 1 << 20 };

static void *volatile kept[2 * MANY];
static jmp_buf back;
static int task;

static void left_by_a_jump(void)
{
    PFP_SCOPE("jumped out of");
    kept[0] = malloc(100);
    longjmp(back, 1);
}

static void jump(void)
{
    PFP_SCOPE("jumped into");
    kept[1] = malloc(100000);
    if (setjmp(back) == 0)
        left_by_a_jump();
}

/* Ends without its destructors, in a region of a task. Then its memory is unmapped. */
static void *ends(void *none)
{
    (void)none;
    EXPECT(pfpTaskSwitch(NULL, &task) == PFP_OK);
    pfp_begin(pfp_point("in a task", NULL, 0));
    kept[2] = malloc(100);
    syscall(SYS_exit, 0);
    return NULL;
}

static void *begins(void *none)
{
    PFP_SCOPE("of the next thread");
    return none;
}

static void end_a_thread(void)
{
    pthread_attr_t attributes;
    pthread_t thread;
    void *stack = mmap(NULL, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    EXPECT(stack != MAP_FAILED);
    EXPECT(pfpTaskCreate(&task) == PFP_OK);
    EXPECT(pthread_attr_init(&attributes) == 0);
    EXPECT(pthread_attr_setstack(&attributes, stack, STACK) == 0);
    EXPECT(pthread_create(&thread, &attributes, ends, NULL) == 0);
    EXPECT(pthread_join(thread, NULL) == 0);
    EXPECT(munmap(stack, STACK) == 0);
    /* Its lane is released here, and what its task has counted. */
    for (int i = 0; i < 3; i++) {
        EXPECT(pthread_create(&thread, NULL, begins, NULL) == 0);
        EXPECT(pthread_join(thread, NULL) == 0);
    }
}

static void keep(int first)
{
    PFP_SCOPE("kept");
    for (int i = first; i < first + MANY; i++)
        kept[i] = malloc(4096);
}

/* A fork of which the C library does not know. */
static pid_t fork_by_hand(void)
{
    return syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
}

static void free_in_a_child(pid_t (*forks)(void))
{
    int status;
    pid_t pid = forks();
    EXPECT(pid >= 0);
    if (pid == 0) {
        for (int i = 0; i < MANY; i++)
            free(kept[i]);
        _exit(0);
    }
    EXPECT(waitpid(pid, &status, 0) == pid && status == 0);
}

int main(int count, char **arguments)
{
    EXPECT(count == 3);
    EXPECT(pfpCreate() == PFP_OK);
    jump();
    end_a_thread();
    keep(0);
    free_in_a_child(fork);
    free_in_a_child(fork_by_hand);
    EXPECT(dlopen(arguments[2], RTLD_NOW) != NULL);
    keep(MANY);
    EXPECT(pfp_snapshot_to(arguments[1]) == PFP_OK);
    return 0;
}
