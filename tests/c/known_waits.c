/* Nine threads, each of which waits again and again for one reason in a region of its own, and
 * works in between. At each step, the main thread prints the kernel's counts of each:
 *
 *     counts NAME NOW_NS RUN_NS QUEUED_NS
 *
 * The argument is a file to write to. */
#include <pfp.h>

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "script.h"

/* Time of a wait whose length the program chooses, and of the work after each wait. */
enum { WAIT_MS = 20, WORK_MS = 10 };

pthread_mutex_t JOBS = PTHREAD_MUTEX_INITIALIZER;
pthread_rwlock_t TABLE = PTHREAD_RWLOCK_INITIALIZER;
pthread_cond_t READY = PTHREAD_COND_INITIALIZER;
static pthread_mutex_t ready_lock = PTHREAD_MUTEX_INITIALIZER;
static int is_ready;
static int pipe_ends[2], socket_ends[2], cold_fd;
static char *cold_page;
static const char *file_name;

static struct timespec ms(long count)
{
    return (struct timespec){count / 1000, count % 1000 * 1000000};
}

static void pause_ms(long count)
{
    struct timespec left = ms(count);
    while (nanosleep(&left, &left) != 0)
        ;
}

static unsigned long long now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (unsigned long long)now.tv_sec * 1000000000 + (unsigned long long)now.tv_nsec;
}

static void work(void)
{
    const unsigned long long until = now_ns() + WORK_MS * 1000000ULL;
    while (now_ns() < until)
        ;
}

static void wait_for_mutex(void)
{
    pthread_mutex_lock(&JOBS);
    pthread_mutex_unlock(&JOBS);
}

static void wait_for_table(void)
{
    pthread_rwlock_rdlock(&TABLE);
    pthread_rwlock_unlock(&TABLE);
}

static void wait_until_ready(void)
{
    pthread_mutex_lock(&ready_lock);
    while (!is_ready)
        pthread_cond_wait(&READY, &ready_lock);
    is_ready = 0;
    pthread_mutex_unlock(&ready_lock);
}

static void read_pipe(void)
{
    char byte;
    EXPECT(read(pipe_ends[0], &byte, 1) == 1);
}

static void read_socket(void)
{
    char byte;
    EXPECT(recv(socket_ends[0], &byte, 1, 0) == 1);
}

static void sync_file(void)
{
    static char block[1 << 18];
    static int file = -1;
    if (file < 0)
        EXPECT((file = open(file_name, O_RDWR | O_CREAT | O_CLOEXEC, 0600)) >= 0);
    block[0]++;
    EXPECT(pwrite(file, block, sizeof block, 0) == sizeof block);
    EXPECT(fdatasync(file) == 0);
}

static void sleep_a_little(void)
{
    pause_ms(WAIT_MS);
}

static void touch_cold_page(void)
{
    EXPECT(madvise(cold_page, 4096, MADV_DONTNEED) == 0);
    *(volatile char *)cold_page = 1;
}

static void share_a_cpu(void)
{
    work();
}

static struct reason {
    const char *name;
    void (*wait)(void);
    atomic_int id;
} reasons[] = {
    {.name = "mutex", .wait = wait_for_mutex},
    {.name = "rwlock", .wait = wait_for_table},
    {.name = "condition", .wait = wait_until_ready},
    {.name = "pipe", .wait = read_pipe},
    {.name = "socket", .wait = read_socket},
    {.name = "fsync", .wait = sync_file},
    {.name = "sleep", .wait = sleep_a_little},
    {.name = "fault", .wait = touch_cold_page},
    {.name = "queue", .wait = share_a_cpu},
};
enum { REASONS = sizeof reasons / sizeof *reasons };

static void *loop(void *argument)
{
    struct reason *reason = argument;
    pthread_setname_np(pthread_self(), reason->name);
    PFP_SCOPE_OF(pfp_point(reason->name, __FILE__, __LINE__));
    atomic_store(&reason->id, (int)syscall(SYS_gettid));
    for (;;) {
        reason->wait();
        work();
    }
    return NULL;
}

static void say_counts(const struct reason *reason)
{
    char text[128];
    unsigned long long run, queued;
    snprintf(text, sizeof text, "/proc/self/task/%d/schedstat", reason->id);
    const int file = open(text, O_RDONLY | O_CLOEXEC);
    EXPECT(file >= 0);
    const ssize_t bytes = read(file, text, sizeof text - 1);
    EXPECT(bytes > 0);
    close(file);
    text[bytes] = 0;
    EXPECT(sscanf(text, "%llu %llu", &run, &queued) == 2);
    say("counts %s %llu %llu %llu", reason->name, now_ns(), run, queued);
}

/* Holds each lock, and ends the other waits, after `WAIT_MS`. */

static void *hold_mutex(void *unused)
{
    (void)unused;
    pthread_setname_np(pthread_self(), "holder");
    PFP_SCOPE("flush");
    for (;;) {
        pthread_mutex_lock(&JOBS);
        pause_ms(WAIT_MS);
        pthread_mutex_unlock(&JOBS);
        pause_ms(1);
    }
    return NULL;
}

static void *hold_table(void *unused)
{
    (void)unused;
    for (;;) {
        pthread_rwlock_wrlock(&TABLE);
        pause_ms(WAIT_MS);
        pthread_rwlock_unlock(&TABLE);
        pause_ms(1);
    }
    return NULL;
}

static void *end_waits(void *unused)
{
    (void)unused;
    for (;;) {
        pause_ms(WAIT_MS + WORK_MS);
        pthread_mutex_lock(&ready_lock);
        is_ready = 1;
        pthread_cond_signal(&READY);
        pthread_mutex_unlock(&ready_lock);
        /* A full pipe or socket has enough for its reader. */
        if (write(pipe_ends[1], "", 1) < 0)
            EXPECT(errno == EAGAIN);
        if (send(socket_ends[1], "", 1, MSG_DONTWAIT) < 0)
            EXPECT(errno == EAGAIN);
    }
    return NULL;
}

static void *make_pages(void *unused)
{
    (void)unused;
    for (;;) {
        struct uffd_msg message;
        EXPECT(read(cold_fd, &message, sizeof message) == sizeof message);
        pause_ms(WAIT_MS);
        struct uffdio_zeropage page = {.range = {.start = (uintptr_t)cold_page, .len = 4096}};
        EXPECT(ioctl(cold_fd, UFFDIO_ZEROPAGE, &page) == 0);
    }
    return NULL;
}

static void *spin(void *unused)
{
    (void)unused;
    for (;;)
        work();
    return NULL;
}

static pthread_t start(void *(*function)(void *), void *argument)
{
    pthread_t thread;
    EXPECT(pthread_create(&thread, NULL, function, argument) == 0);
    return thread;
}

/* A connection through the loopback interface. */
static void connect_sockets(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET};
    socklen_t bytes = sizeof address;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const int listener = socket(AF_INET, SOCK_STREAM, 0);
    EXPECT(listener >= 0 && bind(listener, (struct sockaddr *)&address, bytes) == 0);
    EXPECT(listen(listener, 1) == 0);
    EXPECT(getsockname(listener, (struct sockaddr *)&address, &bytes) == 0);
    EXPECT((socket_ends[0] = socket(AF_INET, SOCK_STREAM, 0)) >= 0);
    EXPECT(connect(socket_ends[0], (struct sockaddr *)&address, bytes) == 0);
    EXPECT((socket_ends[1] = accept(listener, NULL, NULL)) >= 0);
    say("port %d", ntohs(address.sin_port));
}

/* A page that a thread of this program makes when it is touched. 0 if the kernel refuses. */
static int prepare_cold_page(void)
{
    cold_fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | UFFD_USER_MODE_ONLY);
    struct uffdio_api api = {.api = UFFD_API};
    if (cold_fd < 0 || ioctl(cold_fd, UFFDIO_API, &api) != 0)
        return 0;
    cold_page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    EXPECT(cold_page != MAP_FAILED);
    struct uffdio_register its = {.range = {.start = (uintptr_t)cold_page, .len = 4096},
                                  .mode = UFFDIO_REGISTER_MODE_MISSING};
    return ioctl(cold_fd, UFFDIO_REGISTER, &its) == 0;
}

int main(int count, char **arguments)
{
    EXPECT(count > 1);
    file_name = arguments[1];
    EXPECT(pipe(pipe_ends) == 0 && fcntl(pipe_ends[1], F_SETFL, O_NONBLOCK) == 0);
    connect_sockets();
    const int has_cold_page = prepare_cold_page();
    start(hold_mutex, NULL);
    start(hold_table, NULL);
    start(end_waits, NULL);
    if (has_cold_page)
        start(make_pages, NULL);
    const pthread_t rival = start(spin, NULL);
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    EXPECT(pthread_setaffinity_np(rival, sizeof one, &one) == 0);
    for (int i = 0; i < REASONS; i++) {
        if (!has_cold_page && reasons[i].wait == touch_cold_page)
            continue;
        const pthread_t thread = start(loop, &reasons[i]);
        if (reasons[i].wait == share_a_cpu)
            EXPECT(pthread_setaffinity_np(thread, sizeof one, &one) == 0);
        while (!atomic_load(&reasons[i].id))
            pause_ms(1);
    }
    reach("started");
    for (int step = 0; step < 2; step++) {
        for (int i = 0; i < REASONS; i++)
            if (reasons[i].id)
                say_counts(&reasons[i]);
        reach("step");
    }
    unlink(file_name);
    _exit(0);
}
