/* Names of threads, and everything that NVTX takes as wide strings. Says nothing. */
#include <nvtx3/nvToolsExt.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

static void *named(void *name)
{
    nvtxNameOsThreadW((uint32_t)syscall(SYS_gettid), name);
    nvtxMarkA("of a named thread");
    return NULL;
}

int main(int argc, char **argv)
{
    int rounds = argc > 1 ? atoi(argv[1]) : 1;
    nvtxDomainHandle_t domain = nvtxDomainCreateW(L"wide/\u00e4");
    nvtxStringHandle_t registered = nvtxDomainRegisterStringW(domain, L"registered \u20ac");
    nvtxEventAttributes_t event = {0};
    pthread_t thread;
    static wchar_t name[] = L"wide thread";

    event.version = NVTX_VERSION;
    event.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
    nvtxDomainNameCategoryW(domain, 3, L"part");
    nvtxNameOsThreadA((uint32_t)syscall(SYS_gettid), "the first");
    /* Of another thread, whose name it does not become. */
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
        /* No amount: it is negative. */
        event.payload.dValue = -2.6;
        nvtxDomainMarkEx(domain, &event);
        event.payloadType = NVTX_PAYLOAD_UNKNOWN;
    }
    if (pthread_create(&thread, NULL, named, name) != 0)
        return 1;
    pthread_join(thread, NULL);
    return 0;
}
