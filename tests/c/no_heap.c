/* The allocator refuses memory at its n-th call, for each n. Each function of the library then
 * fails or works without the memory, and the program continues. The linker redirects the calls of
 * the allocator to this file (`--wrap`). */
#include <pfp.h>

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "script.h"

/* Number of calls that succeed before one is refused; negative if none is refused. If `for_good` is
 * set, all calls after the refused one are refused, too; otherwise they succeed. */
static long left = -1;
static int for_good;
static long refused;

static int refuses(void)
{
    if (left < 0 || left-- > 0)
        return 0;
    left = for_good ? 0 : -1;
    refused++;
    errno = ENOMEM;
    return 1;
}

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *memory, size_t size);
int __real_posix_memalign(void **memory, size_t align, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *memory, size_t size);
int __wrap_posix_memalign(void **memory, size_t align, size_t size);

void *__wrap_malloc(size_t size)
{
    return refuses() ? NULL : __real_malloc(size);
}

void *__wrap_calloc(size_t count, size_t size)
{
    return refuses() ? NULL : __real_calloc(count, size);
}

void *__wrap_realloc(void *memory, size_t size)
{
    return refuses() ? NULL : __real_realloc(memory, size);
}

int __wrap_posix_memalign(void **memory, size_t align, size_t size)
{
    return refuses() ? ENOMEM : __real_posix_memalign(memory, align, size);
}

static pfp_point_t *point, *amounts;
static int handles[1000];
static int next_handle, next_line;
static int null;

static void snapshot_to(void)
{
    int status = pfp_snapshot_to("snapshot.json");
    EXPECT(status == PFP_OK || (status == PFP_EFILE && errno == ENOMEM));
    EXPECT((access("snapshot.json", F_OK) == 0) == (status == PFP_OK));
    unlink("snapshot.json");
}

static void snapshot_over(void)
{
    int status = pfp_snapshot_over("over.json");
    EXPECT(status == PFP_OK || (status == PFP_EFILE && errno == ENOMEM));
}

static void show(void)
{
    int status = pfpShow(null);
    EXPECT(status == PFP_OK || (status == PFP_EFILE && errno == ENOMEM));
}

static void regions(void)
{
    pfpStats_t stats;
    uint64_t sums[2];
    const uint64_t some[2] = {3, 4};
    {
        PFP_SCOPE("scope");
        PFP_METERED("metered", 5, 6);
    }
    pfp_begin(point);
    pfp_end(point, 1);
    pfp_begin(amounts);
    pfp_end_amounts(amounts, 0, some, 2);
    pfp_get_stats(point, &stats);
    pfp_get_amounts(amounts, sums, 2);
}

static void steering(void)
{
    pfp_set_alpha(point, 0.5);
    pfp_clear_alpha(point);
    pfp_set_fenced(point, 1);
    pfp_set_fenced(point, 0);
    pfp_reset(point);
    pfp_disable(point);
    pfp_enable(point);
    pfp_set_enabled(0);
    pfp_set_enabled(1);
}

static void points(void)
{
    char name[32];
    snprintf(name, sizeof name, "point %d", next_line++);
    pfp_point(name, "file", (unsigned)next_line);
    pfp_point_amounts(name, "file", (unsigned)next_line, "bytes,flops");
}

static void names(void)
{
    char name[32];
    snprintf(name, sizeof name, "name %d", next_line++);
    pfp_set_program_name(name);
    pfp_register_thread(name);
    pfpSetName(3, name);
    pfp_error(-9);
    pfp_version();
}

static void numbered(void)
{
    pfpStats_t stats;
    pfpCreate();
    pfpBegin(3, NULL);
    pfpEnd(3, 0);
    pfpGetStats(3, &stats);
    pfpSetAlpha(3, 0.5f);
    pfpSetAverage(3, 1, 10);
    pfpClearAlpha(3);
    pfpDisable(3);
    pfpEnable(3);
    pfpResetStats(3);
    pfpCalibrate(16, 0);
}

static void tasks(void)
{
    int *task = &handles[next_handle++ % 1000];
    int status = pfpTaskCreate(task);
    EXPECT(status == PFP_OK || status == PFP_ENOSPACE);
    if (status == PFP_OK) {
        EXPECT(pfpTaskSwitch(NULL, task) == PFP_OK);
        EXPECT(pfpTaskSwitch(task, NULL) == PFP_OK);
    }
}

static void clocks(void)
{
    pfp_timer_t timer;
    pfp_timer_start(&timer);
    pfp_timer_stop(&timer);
    pfp_ticks();
    pfp_ticks_per_second();
    pfp_on_cpu_ticks();
}

static const struct {
    const char *name;
    void (*call)(void);
} CALLS[] = {
    {"snapshot_to", snapshot_to}, {"snapshot_over", snapshot_over}, {"show", show},
    {"regions", regions},         {"steering", steering},           {"points", points},
    {"names", names},             {"numbered", numbered},           {"tasks", tasks},
    {"clocks", clocks},
};

/* Starts the library in a child in which the n-th request is refused. Returns the child's status;
 * sets `*asked` if there was such a request. The child's errors go to the file `errors`. */
static int start_in_child(long n, int *asked)
{
    int status, ends[2];
    pid_t child;
    EXPECT(pipe(ends) == 0);
    child = fork();
    EXPECT(child >= 0);
    if (child == 0) {
        /* The child must not write the file that the parent writes when it ends. */
        setenv("PFP_SNAPSHOT", "start.json", 1);
        dup2(open("errors", O_WRONLY | O_CREAT | O_APPEND, 0600), 2);
        left = n;
        pfp_init();
        regions();
        left = -1;
        if (write(ends[1], &refused, sizeof refused) < 0)
            exit(1);
        /* Once memory is available again, the library starts. */
        EXPECT(pfp_init() == PFP_OK);
        regions();
        exit(7);
    }
    close(ends[1]);
    *asked = read(ends[0], &refused, sizeof refused) != sizeof refused || refused > 0;
    refused = 0;
    close(ends[0]);
    EXPECT(waitpid(child, &status, 0) == child);
    return status;
}

/* Only one refused request is permitted to abort the program: the 37 bytes that the `shared_memory`
 * crate requests for the name of an object. An aborted child leaves its beacon file, so the number
 * of this request varies between children. */
static void start(void)
{
    struct stat errors;
    int asked = 1;
    for (for_good = 0; for_good < 2; for_good++) {
        long n, lost = 0;
        for (n = 0; asked || n == 0; n++) {
            int status = start_in_child(n, &asked);
            if (WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT) {
                char text[64] = "";
                int file = open("errors", O_RDONLY);
                EXPECT(read(file, text, sizeof text - 1) > 0 && strstr(text, "of 37 bytes failed"));
                close(file);
                unlink("errors");
                lost++;
            } else {
                EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == 7);
                EXPECT(stat("errors", &errors) == 0 && errors.st_size == 0);
            }
        }
        say("%s %ld %ld", for_good ? "start_for_good" : "start_once", n - 1, lost);
        asked = 1;
    }
}

int main(void)
{
    size_t at;
    start();
    null = open("/dev/null", O_WRONLY);
    EXPECT(pfp_init() == PFP_OK && pfpCreate() == PFP_OK);
    point = pfp_point("point", "file", 1);
    amounts = pfp_point_amounts("amounts", "file", 2, "bytes,flops");
    pfpEnable(3);
    regions();
    for (at = 0; at < sizeof CALLS / sizeof *CALLS; at++) {
        long n = 0, asked = 0;
        for (for_good = 0; for_good < 2; for_good++) {
            for (n = 0;; n++) {
                long before = refused;
                left = n;
                CALLS[at].call();
                left = -1;
                if (refused == before)
                    break;
            }
            if (n > asked)
                asked = n;
        }
        say("%s %ld", CALLS[at].name, asked);
    }
    /* Memory is refused until the process ends: its end writes no snapshot and prints nothing. */
    for_good = 1;
    left = 0;
    return 7;
}
