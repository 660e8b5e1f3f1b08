/* Replaces the CUDA driver: a device whose clock the test advances. Work that is put into a stream
 * starts after the stream's earlier work, and an event is done once the clock has reached it. */
#include <stdlib.h>

enum { SUCCESS = 0, INVALID = 1, NOT_READY = 600 };

struct event {
    double at;
};

static double clock_ms, stream_ends[2];
static int devices = 1, live, syncs, refuses;

static double *stream_end(void *stream) { return &stream_ends[stream ? 1 : 0]; }

/* ---- called by the test ---- */

void stand_in_devices(int count) { devices = count; }
void stand_in_refuse(int refuse) { refuses = refuse; }
int stand_in_events(void) { return live; }
int stand_in_syncs(void) { return syncs; }
void stand_in_advance(double ms) { clock_ms += ms; }
void stand_in_launch(void *stream, double ms)
{
    double *end = stream_end(stream);
    *end = (*end > clock_ms ? *end : clock_ms) + ms;
}

/* ---- declared as in cuda.h ---- */

unsigned cuInit(unsigned flags) { return flags ? INVALID : SUCCESS; }
unsigned cuDeviceGetCount(int *count) { return *count = devices, SUCCESS; }

unsigned cuEventCreate(void **event, unsigned flags)
{
    if (flags || refuses)
        return INVALID;
    live++;
    *event = calloc(1, sizeof(struct event));
    return SUCCESS;
}

unsigned cuEventDestroy_v2(void *event)
{
    live--;
    free(event);
    return SUCCESS;
}

unsigned cuEventRecord(void *event, void *stream)
{
    double end = *stream_end(stream);
    ((struct event *)event)->at = end > clock_ms ? end : clock_ms;
    return refuses ? INVALID : SUCCESS;
}

unsigned cuEventQuery(void *event)
{
    return ((struct event *)event)->at <= clock_ms ? SUCCESS : NOT_READY;
}

unsigned cuEventSynchronize(void *event)
{
    syncs++;
    if (((struct event *)event)->at > clock_ms)
        clock_ms = ((struct event *)event)->at;
    return SUCCESS;
}

unsigned cuEventElapsedTime(float *ms, void *start, void *end)
{
    if (cuEventQuery(start) || cuEventQuery(end))
        return NOT_READY;
    *ms = (float)(((struct event *)end)->at - ((struct event *)start)->at);
    return SUCCESS;
}
