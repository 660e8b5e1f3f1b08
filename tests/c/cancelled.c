/* Threads with a pending cancellation enter pfp's slow paths, which may call cancellation points:
 * each thread finishes the path, and ends at its own next cancellation point.
 *
 * cancelled HOW: the slow path to enter, or the function of pfp to call. */
#include <pfp.h>

#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "script.h"

static const char *how;
static int came_through, null;
static pfp_point_t *known;

/* With -finstrument-functions, only the functions without this attribute are measured. */
#define NOT_BY_ITSELF __attribute__((no_instrument_function))
__attribute__((noinline)) static int inner(int x) { return x + 1; }
__attribute__((noinline)) static int outer(int x) { return inner(x) + 1; }

NOT_BY_ITSELF static void act(void)
{
    char path[64];
    if (!strcmp(how, "process") || !strcmp(how, "thread")) {
        PFP_SCOPE("first");
    } else if (!strcmp(how, "point")) {
        PFP_SCOPE("another");
    } else if (!strcmp(how, "named point")) {
        pfp_point_t *point = pfp_point("of a name", NULL, 0);
        EXPECT(pfp_begin(point) == PFP_OK && pfp_end(point, 0) == PFP_OK);
    } else if (!strcmp(how, "amounts")) {
        PFP_METERED("with amounts", 1, 2);
    } else if (!strcmp(how, "number")) {
        EXPECT(pfpCreate() == PFP_OK && pfpEnable(3) == PFP_OK && pfpSetName(3, "three") == PFP_OK);
        EXPECT(pfpBegin(3, NULL) == PFP_OK && pfpEnd(3, 0) == PFP_OK);
    } else if (!strcmp(how, "tasks")) {
        EXPECT(pfpCreate() == PFP_OK && pfpTaskCreate(&null) == PFP_OK);
        EXPECT(pfpTaskSwitch(NULL, &null) == PFP_OK && pfpTaskSwitch(&null, NULL) == PFP_OK);
        EXPECT(pfpTaskDelete(&null) == PFP_OK);
    } else if (!strcmp(how, "init")) {
        EXPECT(pfp_init() == PFP_OK);
    } else if (!strcmp(how, "calibrate")) {
        EXPECT(pfpCreate() == PFP_OK && pfpCalibrate(100, 0) == PFP_OK);
    } else if (!strcmp(how, "names")) {
        EXPECT(pfp_set_program_name("program") == PFP_OK);
        EXPECT(pfp_register_thread("thread") == PFP_OK);
    } else if (!strcmp(how, "snapshot")) {
        snprintf(path, sizeof path, "%s/%d.json", getenv("PFP_DIR"), (int)getpid());
        EXPECT(pfp_snapshot_to(path) == PFP_OK && unlink(path) == 0);
    } else if (!strcmp(how, "show")) {
        EXPECT(pfpShow(null) == PFP_OK);
    } else if (!strcmp(how, "stats")) {
        pfpStats_t stats;
        uint64_t sums[2];
        pfp_point_t *point = pfp_point_amounts("sums", NULL, 0, "bytes,flops");
        EXPECT(pfp_get_stats(known, &stats) == PFP_OK);
        EXPECT(pfp_get_amounts(point, sums, 2) == PFP_OK);
    } else if (!strcmp(how, "timer")) {
        pfp_timer_t timer = PFP_TIMER_INIT;
        EXPECT(pfp_timer_start(&timer) == PFP_OK && pfp_timer_stop(&timer) == PFP_OK);
        EXPECT(pfp_timer_elapsed_ms(&timer) >= 0 && pfp_ticks_per_second() > 0);
    } else {
        EXPECT(!strcmp(how, "function") && outer(null) == null + 2);
    }
}

NOT_BY_ITSELF static void *works(void *enabled)
{
    int state, type, before = enabled ? PTHREAD_CANCEL_ENABLE : PTHREAD_CANCEL_DISABLE;
    EXPECT(pthread_setcancelstate(before, NULL) == 0);
    EXPECT(pthread_cancel(pthread_self()) == 0);
    act();
    /* These calls are not cancellation points. */
    EXPECT(pthread_setcancelstate(before, &state) == 0 && state == before);
    EXPECT(pthread_setcanceltype(PTHREAD_CANCEL_DEFERRED, &type) == 0);
    EXPECT(type == PTHREAD_CANCEL_DEFERRED);
    came_through++;
    pthread_testcancel();
    /* Only a thread that has disabled cancellation gets here. */
    EXPECT(!enabled);
    return &null;
}

NOT_BY_ITSELF int main(int count, char **arguments)
{
    int was_first = 1;

    EXPECT(count == 2);
    how = arguments[1];
    EXPECT((null = open("/dev/null", O_WRONLY)) >= 0);
    if (strcmp(how, "process") && strcmp(how, "init") && strcmp(how, "function")) {
        PFP_SCOPE("first");
        known = pfp_point("known", NULL, 0);
        EXPECT(pfp_begin(known) == PFP_OK && pfp_end(known, 0) == PFP_OK);
        was_first = 0;
    }
    for (int enabled = 1; enabled >= 0; enabled--) {
        pthread_t thread;
        void *result;
        EXPECT(pthread_create(&thread, NULL, works, enabled ? &came_through : NULL) == 0);
        EXPECT(pthread_join(thread, &result) == 0);
        EXPECT(result == (enabled ? PTHREAD_CANCELED : (void *)&null));
    }
    say("through %d", came_through);
    say("first %d", was_first);
    reach("done");
    return 0;
}
