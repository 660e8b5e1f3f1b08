/* Names threads, and calls every function of NVTX that takes wide strings. Prints nothing. */
#include <nvtx3/nvToolsExt.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

static void *named(void *name)
{
    nvtxNameOsThreadW((uint32_t)syscall(SYS_gettid), name);
    nvtxMarkA("of a named thread");
    return NULL;
}

/* A thread that the main thread names: before its first measurement, or after it if `is_late`. */
struct other {
    int is_late;
    uint32_t id;
    pthread_t thread;
    sem_t ready, named, done;
};

static void *named_by_another(void *of)
{
    struct other *other = of;
    if (other->is_late)
        nvtxMarkA("of another thread");
    other->id = (uint32_t)syscall(SYS_gettid);
    sem_post(&other->ready);
    sem_wait(&other->named);
    if (!other->is_late)
        nvtxMarkA("of another thread");
    sem_post(&other->ready);
    sem_wait(&other->done);
    return NULL;
}

static void name_another(struct other *other, const char *name)
{
    sem_init(&other->ready, 0, 0);
    sem_init(&other->named, 0, 0);
    sem_init(&other->done, 0, 0);
    if (pthread_create(&other->thread, NULL, named_by_another, other) != 0)
        exit(1);
    sem_wait(&other->ready);
    nvtxNameOsThreadA(other->id, name);
    sem_post(&other->named);
    sem_wait(&other->ready);
}

int main(int argc, char **argv)
{
    int rounds = argc > 1 ? atoi(argv[1]) : 1;
    nvtxDomainHandle_t domain = nvtxDomainCreateW(L"wide/\u00e4");
    nvtxStringHandle_t registered = nvtxDomainRegisterStringW(domain, L"registered \u20ac");
    nvtxEventAttributes_t event = {0};
    struct other early = {.is_late = 0}, late = {.is_late = 1};
    pthread_t thread;
    static wchar_t name[] = L"wide thread";

    event.version = NVTX_VERSION;
    event.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
    nvtxDomainNameCategoryW(domain, 3, L"part");
    nvtxNameOsThreadA((uint32_t)syscall(SYS_gettid), "the first");
    /* The id of a thread of another program. */
    nvtxNameOsThreadA(1, "somebody else");
    for (int round = 0; round < rounds; round++) {
        nvtxRangePushW(L"pushed \u00df");
        nvtxMarkW(L"marked");
        nvtxRangePop();
        nvtxRangeEnd(nvtxRangeStartW(L"started"));
        event.category = 3;
        event.messageType = NVTX_MESSAGE_TYPE_UNICODE;
        event.message.unicode = L"unicode";
        nvtxDomainRangePushEx(domain, &event);
        nvtxDomainRangePop(domain);
        event.category = 0;
        event.messageType = NVTX_MESSAGE_TYPE_REGISTERED;
        event.message.registered = registered;
        event.payloadType = NVTX_PAYLOAD_TYPE_DOUBLE;
        event.payload.dValue = 2.6;
        nvtxDomainMarkEx(domain, &event);
        /* A negative value is no amount. */
        event.payload.dValue = -2.6;
        nvtxDomainMarkEx(domain, &event);
        event.payloadType = NVTX_PAYLOAD_TYPE_UNSIGNED_INT64;
        event.payload.ullValue = (uint64_t)round;
        nvtxDomainRangeEnd(domain, nvtxDomainRangeStartEx(domain, &event));
        event.payloadType = NVTX_PAYLOAD_UNKNOWN;
    }
    /* All threads are alive at once, so that each has its own lane. */
    name_another(&early, "named before it measures");
    name_another(&late, "named later");
    if (pthread_create(&thread, NULL, named, name) != 0)
        return 1;
    pthread_join(thread, NULL);
    sem_post(&early.done);
    sem_post(&late.done);
    pthread_join(early.thread, NULL);
    pthread_join(late.thread, NULL);
    return 0;
}
