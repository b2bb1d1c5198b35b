/* peers.c - the peer server and receiver beside plain C ones, in turn, over loopback TCP.
 *
 * A library for peers.py: one process serves, its child asks, and in both of them Python
 * may be busy meanwhile. Each pair uses one connection and the same congestion control.
 * Files lie below $TEST_BASE; with TEST_SEALED, seals are made and checked. A pass is one
 * reading of all Files. bench_ask() prints the medians of the rounds, one line each: NAME
 * MB/S ASKING SERVING BUFFER ALIKE. Asking and serving cost processor seconds per GB; the
 * last two are ratios to plain-buffer and to the plain pair that lands its bytes alike, in
 * the same round:
 *
 *   plain-buffer   plain server, received into a private buffer
 *   server-buffer  our server, the same plain receiver
 *   plain-file     plain server, received into new files in the Tier
 *   agent-file     our server, our receiver, published as Replicas
 */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "board.h"
#include "dataplane/base/clock.h"
#include "dataplane/peers/wire.h"
#include "dataplane/base/poller.h"

enum { ROUNDS_MAX = 64, DEPTH_MAX = 64, BUFFER = CHUNK_BYTES + (64 << 10) };
enum kind { PLAIN_BUFFER, SERVER_BUFFER, PLAIN_FILE, AGENT_FILE, KINDS };

static const char *const names[KINDS] = {"plain-buffer", "server-buffer", "plain-file",
                                         "agent-file"};

static struct board *owner, *asker;
static uint32_t in_flight;
static pid_t serving;
static int ports[2]; /* listening: plain, ours */
static int go[2];    /* a pipe by which the asking process is told to begin */

/* ---- the plain server: one thread, descriptors kept open --------------------------- */

static int kept[FILES_MAX];

static void wait_for(int fd, uint32_t events)
{
    struct pollfd one = {.fd = fd, .events = (short)events};
    poll(&one, 1, -1);
}

static bool send_file(int fd, const struct frame_request *f)
{
    uint64_t size = owner->sizes[f->file];
    const struct frame_reply head = {
        .magic = FRAME_REPLY_MAGIC, .id = f->id, .file = f->file, .size = size};
    off_t at = 0;
    while (send(fd, &head, sizeof(head), MSG_MORE | MSG_NOSIGNAL) < 0) {
        if (errno != EAGAIN)
            return false;
        wait_for(fd, POLLOUT);
    }
    while ((uint64_t)at < size) {
        ssize_t n = sendfile(fd, kept[f->file], &at, size - (uint64_t)at);
        if (n < 0 && errno != EAGAIN)
            return false;
        if (n < 0)
            wait_for(fd, POLLOUT);
    }
    return true;
}

static void answer_plainly(int fd)
{
    struct frame_request f[DEPTH_MAX];
    int loop = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event event = {.events = EPOLLIN};
    size_t held = 0;
    CHECK(epoll_ctl(loop, EPOLL_CTL_ADD, fd, &event) == 0);
    while (epoll_wait(loop, &event, 1, -1) >= 0) {
        ssize_t n = recv(fd, (char *)f + held, sizeof(f) - held, 0);
        if (n == 0 || (n < 0 && errno != EAGAIN))
            break;
        held += n > 0 ? (size_t)n : 0;
        size_t whole = held / sizeof(*f);
        for (size_t i = 0; i < whole; i++)
            if (!send_file(fd, &f[i]))
                break;
        held -= whole * sizeof(*f);
        memmove(f, &f[whole], held);
    }
    close(loop);
    close(fd);
}

static void *serve_plainly(void *unused)
{
    for (int fd; (fd = accept4(ports[0], NULL, NULL, SOCK_CLOEXEC)) >= 0;) {
        CHECK(socket_prepare(fd) == 0);
        answer_plainly(fd);
    }
    return unused;
}

/* ---- the plain receiver ------------------------------------------------------------ */

static int connect_to(int listener)
{
    struct sockaddr_in address;
    socklen_t n = sizeof(address);
    CHECK(getsockname(listener, (struct sockaddr *)&address, &n) == 0);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(connect(fd, (struct sockaddr *)&address, n) == 0);
    CHECK(socket_prepare(fd) == 0);
    return fd;
}

static void ask(int fd, uint32_t file)
{
    const struct block_run all = {0, extent_blocks(owner->sizes[file], 0)};
    struct frame_request f = frame_request_make(owner->catalog, file, file, all);
    CHECK(send(fd, &f, sizeof(f), MSG_NOSIGNAL) == sizeof(f));
}

/* receive - gets `want` bytes at least, as many as fit at most; what is held after it. */
static size_t receive(int fd, int loop, char *buffer, size_t held, size_t want)
{
    struct epoll_event event;
    while (held < want) {
        ssize_t n = recv(fd, buffer + held, want + sizeof(struct frame_reply) - held,
                         0);
        if (n < 0 && errno == EAGAIN)
            epoll_wait(loop, &event, 1, -1);
        else
            CHECK(n > 0);
        held += n > 0 ? (size_t)n : 0;
    }
    return held;
}

static int new_file(uint32_t file)
{
    char path[512];
    snprintf(path, sizeof(path), "%s/plain%u", asker->tier, file);
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    CHECK(fd >= 0);
    return fd;
}

/* take_file - takes in one reply; what is held of the next one. */
static size_t take_file(int fd, int loop, size_t held, bool lands)
{
    static char buffer[BUFFER];
    struct frame_reply head;
    held = receive(fd, loop, buffer, held, sizeof(head));
    memcpy(&head, buffer, sizeof(head));
    CHECK(head.magic == FRAME_REPLY_MAGIC && head.status == 0);
    held -= sizeof(head);
    memmove(buffer, buffer + sizeof(head), held);
    int out = lands ? new_file(head.file) : -1;
    for (uint64_t left = head.size; left;) {
        size_t n = left < CHUNK_BYTES ? left : CHUNK_BYTES;
        held = receive(fd, loop, buffer, held, n);
        CHECK(!lands || write(out, buffer, n) == (ssize_t)n);
        held -= n;
        left -= n;
        memmove(buffer, buffer + n, held);
    }
    if (lands)
        close(out);
    return held;
}

static void read_plainly(int fd, bool lands)
{
    int loop = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event event = {.events = EPOLLIN};
    uint32_t asked = 0;
    size_t held = 0;
    CHECK(epoll_ctl(loop, EPOLL_CTL_ADD, fd, &event) == 0);
    while (asked < in_flight && asked < owner->files)
        ask(fd, asked++);
    for (uint32_t taken = 0; taken < owner->files; taken++) {
        held = take_file(fd, loop, held, lands);
        if (asked < owner->files)
            ask(fd, asked++);
    }
    close(loop);
}

/* ---- our receiver ------------------------------------------------------------------ */

static void read_as_agent(struct receiver *r)
{
    static struct monarch_order orders[FILES_MAX];
    static struct monarch_completion done[FILES_MAX];
    struct pollfd event = {.fd = monarch_receiver_event_fd(r), .events = POLLIN};
    for (uint32_t i = 0; i < owner->files; i++)
        orders[i] = (struct monarch_order){.file = i};
    for (uint32_t i = 0; i < owner->files; i++)
        board_set_state(asker, i, STATE_WORD(REPLICA_STAGING, 0, 0));
    CHECK(monarch_receiver_submit(r, orders, owner->files) == owner->files);
    for (uint32_t got = 0; got < owner->files;) {
        poll(&event, 1, -1);
        uint32_t n = monarch_receiver_arrivals(r, done, FILES_MAX);
        for (uint32_t i = 0; i < n; i++)
            CHECK(done[i].status == 0);
        got += n;
    }
}

/* ---- measuring --------------------------------------------------------------------- */

struct pace {
    double mb_per_s, asking, serving, buffer, alike;
};

static double cpu_seconds(pid_t pid)
{
    clockid_t clock;
    struct timespec t;
    CHECK(clock_getcpuclockid(pid, &clock) == 0 && clock_gettime(clock, &t) == 0);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void empty_tier(void)
{
    char path[512];
    memset(asker->inodes->slots, 0, asker->inodes->slot_count * sizeof(struct inode));
    for (uint32_t i = 0; i < owner->files; i++) {
        snprintf(path, sizeof(path), "%s/plain%u", asker->tier, i);
        unlink(path);
        board_replica_path(asker, i, path);
        unlink(path);
    }
}

static struct receiver *new_receiver(void)
{
    const struct monarch_receiver_options options = {
        .peers = 1,
        .in_flight = in_flight,
        .timeout_ms = 60000,
        .react_ms = 60000,
        .threads = 1,
        .sealed = asker->options.seal_key != NULL};
    struct receiver *r;
    CHECK(monarch_receiver_new(asker->engine, &options, &r) == 0);
    CHECK(monarch_receiver_connect(r, 0, connect_to(ports[1])) == 0);
    return r;
}

static struct pace measure(enum kind kind, int passes)
{
    struct receiver *r = kind == AGENT_FILE ? new_receiver() : NULL;
    int fd = r ? -1 : connect_to(ports[kind == SERVER_BUFFER]);
    double seconds = 0, asking = 0, serves = 0, gb = 0;
    for (int i = 0; i < passes; i++) {
        uint64_t began = clock_ns();
        double own = cpu_seconds(getpid()), other = cpu_seconds(serving);
        if (r)
            read_as_agent(r);
        else
            read_plainly(fd, kind == PLAIN_FILE);
        seconds += (double)(clock_ns() - began) / 1e9;
        asking += cpu_seconds(getpid()) - own;
        serves += cpu_seconds(serving) - other;
        gb += (double)owner->files * (double)owner->sizes[0] / 1e9;
        empty_tier();
    }
    if (r)
        monarch_receiver_free(r);
    else
        close(fd);
    return (struct pace){
        .mb_per_s = 1e3 * gb / seconds, .asking = asking / gb, .serving = serves / gb};
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(const struct pace *all, int rounds, size_t offset)
{
    double values[ROUNDS_MAX];
    for (int i = 0; i < rounds; i++)
        memcpy(&values[i], (const char *)&all[i] + offset, sizeof(double));
    qsort(values, (size_t)rounds, sizeof(*values), ascending);
    return values[rounds / 2];
}

static void measure_all(int passes, int rounds)
{
    static struct pace found[KINDS][ROUNDS_MAX];
    board_start(asker, 1, 1);
    for (enum kind kind = 0; kind < KINDS; kind++)
        measure(kind, 1);
    for (int i = 0; i < rounds; i++) {
        for (enum kind kind = 0; kind < KINDS; kind++) {
            found[kind][i] = measure(kind, passes);
            struct pace *p = &found[kind][i];
            p->buffer = p->mb_per_s / found[PLAIN_BUFFER][i].mb_per_s;
            p->alike = p->mb_per_s / found[kind & 2][i].mb_per_s;
        }
    }
    for (enum kind kind = 0; kind < KINDS; kind++)
        printf("%s %.0f %.3f %.3f %.3f %.3f\n", names[kind],
               median(found[kind], rounds, offsetof(struct pace, mb_per_s)),
               median(found[kind], rounds, offsetof(struct pace, asking)),
               median(found[kind], rounds, offsetof(struct pace, serving)),
               median(found[kind], rounds, offsetof(struct pace, buffer)),
               median(found[kind], rounds, offsetof(struct pace, alike)));
    board_stop(asker);
}

static int listen_here(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(socket_prepare(fd) == 0 && fcntl(fd, F_SETFL, 0) == 0);
    CHECK(bind(fd, (struct sockaddr *)&address, sizeof(address)) == 0);
    CHECK(listen(fd, 8) == 0);
    return fd;
}

/* stage_all - makes the owner's Replicas, which the plain server sends too. */
static void stage_all(void)
{
    char path[512];
    for (uint32_t i = 0; i < owner->files; i++) {
        CHECK(board_run(owner, i, MONARCH_DEMAND).status == 0);
        board_replica_path(owner, i, path);
        kept[i] = open(path, O_RDONLY | O_CLOEXEC);
        CHECK(kept[i] >= 0);
    }
}

static void *serve_as_agent(void *server)
{
    for (int fd; (fd = accept4(ports[1], NULL, NULL, SOCK_CLOEXEC)) >= 0;)
        CHECK(monarch_server_adopt(server, 0, fd) == 0);
    return NULL;
}

void bench_prepare(uint32_t files, uint64_t bytes, uint32_t depth);
void bench_ask(int passes, int rounds);
int bench_serve(pid_t asking);

/* bench_prepare - what both processes share; to be called before one becomes two. */
void bench_prepare(uint32_t files, uint64_t bytes, uint32_t depth)
{
    CHECK(depth <= DEPTH_MAX && bytes <= EXTENT_BYTES && pipe(go) == 0);
    in_flight = depth;
    owner = board_new_equal(files, bytes);
    asker = board_new_equal(files, bytes);
    ports[0] = listen_here();
    ports[1] = listen_here();
    serving = getpid();
}

/* bench_ask - measures in the child, when the other process is ready. */
void bench_ask(int passes, int rounds)
{
    char start;
    CHECK(rounds > 0 && rounds <= ROUNDS_MAX && read(go[0], &start, 1) == 1);
    measure_all(passes, rounds);
    fflush(stdout);
}

/* bench_serve - serves in this process until the asking one has ended: its status. */
int bench_serve(pid_t asking)
{
    const struct monarch_server_options options = {
        .peers = 1, .connections = 8, .park_ms = 60000, .stall_ms = 60000};
    pthread_t plain, ours;
    struct server *s;
    int status;
    board_start(owner, 1, 1);
    stage_all();
    CHECK(monarch_server_new(owner->engine, &options, &s) == 0);
    pthread_create(&plain, NULL, serve_plainly, NULL);
    pthread_create(&ours, NULL, serve_as_agent, s);
    CHECK(write(go[1], "", 1) == 1);
    CHECK(waitpid(asking, &status, 0) == asking);
    shutdown(ports[0], SHUT_RDWR);
    shutdown(ports[1], SHUT_RDWR);
    pthread_join(plain, NULL);
    pthread_join(ours, NULL);
    monarch_server_free(s);
    board_stop(owner);
    board_free(asker);
    board_free(owner);
    return status;
}
