/* peer.c - two nodes for tests: one that holds the Files, one that fetches them. */
#include "peer.h"

#include <dirent.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

void pair_new(struct pair *p, uint32_t files, const uint64_t *sizes)
{
    p->owner = board_new(files, sizes);
    p->asker = board_new(files, sizes);
    board_start(p->owner, 2, 1);
    board_start(p->asker, 1, 1);
    if (!p->serves.peers)
        p->serves = (struct monarch_server_options){
            .peers = PEERS, .connections = 32, .park_ms = 60000, .stall_ms = 60000};
    if (!p->receives.peers)
        p->receives = (struct monarch_receiver_options){.peers = PEERS,
                                                        .in_flight = 16,
                                                        .timeout_ms = 60000,
                                                        .react_ms = 60000,
                                                        .threads = 2};
    p->receives.sealed = p->asker->options.seal_key != NULL;
    CHECK(monarch_server_new(p->owner->engine, &p->serves, &p->server) == 0);
    CHECK(monarch_receiver_new(p->asker->engine, &p->receives, &p->receiver) == 0);
}

void pair_free(struct pair *p)
{
    atomic_store(&p->agent_ends, true);
    if (p->agent_runs)
        pthread_join(p->agent, NULL);
    if (p->receiver)
        monarch_receiver_free(p->receiver);
    if (p->server)
        monarch_server_free(p->server);
    CHECK(board_names(p->asker, ".part") == 0);
    board_free(p->owner);
    board_free(p->asker);
    *p = (struct pair){0};
}

static void *stage_what_is_asked(void *pair)
{
    struct pair *p = pair;
    struct monarch_completion done[64];
    uint32_t files[64];
    while (!atomic_load(&p->agent_ends)) {
        uint32_t n = board_asked(p->owner, files, 64, 10);
        for (uint32_t i = 0; i < n; i++) {
            if (STATE_OF(board_state(p->owner, files[i])) != REPLICA_ABSENT)
                continue;
            atomic_fetch_add(&p->staged, 1);
            board_submit(p->owner, files[i], MONARCH_DEMAND);
        }
        n = monarch_engine_completions(p->owner->engine, done, 64);
        for (uint32_t i = 0; i < n; i++)
            CHECK(done[i].status == 0);
    }
    return NULL;
}

void pair_start_agent(struct pair *p)
{
    p->agent_runs = true;
    CHECK(pthread_create(&p->agent, NULL, stage_what_is_asked, p) == 0);
}

struct ends ends_local(void)
{
    int fds[2];
    CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) == 0);
    return (struct ends){.asks = fds[0], .serves = fds[1]};
}

struct ends ends_tcp(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof(address);
    struct ends ends;
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(bind(listener, (struct sockaddr *)&address, n) == 0);
    CHECK(listen(listener, 1) == 0);
    CHECK(getsockname(listener, (struct sockaddr *)&address, &n) == 0);
    ends.asks = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(connect(ends.asks, (struct sockaddr *)&address, n) == 0);
    ends.serves = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    CHECK(ends.serves >= 0);
    close(listener);
    return ends;
}

void pair_connect(struct pair *p, struct ends ends)
{
    int rc;
    while ((rc = monarch_server_adopt(p->server, 1, ends.serves)) == -EMFILE)
        poll(NULL, 0, 1); /* those before are being closed */
    CHECK(rc == 0);
    CHECK(monarch_receiver_connect(p->receiver, OWNER, ends.asks) == 0);
}

void pair_submit(struct pair *p, uint32_t file)
{
    const struct monarch_order order = {.file = file, .peer = OWNER};
    board_set_state(p->asker, file, STATE_WORD(REPLICA_STAGING, 0, 0));
    CHECK(monarch_receiver_submit(p->receiver, &order, 1) == 1);
}

struct monarch_completion pair_wait(struct pair *p)
{
    struct monarch_completion arrival;
    struct pollfd fd = {.fd = monarch_receiver_event_fd(p->receiver), .events = POLLIN};
    while (monarch_receiver_arrivals(p->receiver, &arrival, 1) == 0)
        CHECK(poll(&fd, 1, 1000 * PATIENCE_NS_MAX) == 1);
    return arrival;
}

struct monarch_completion pair_fetch(struct pair *p, uint32_t file)
{
    pair_submit(p, file);
    return pair_wait(p);
}

struct monarch_traffic pair_served(struct pair *p)
{
    struct monarch_traffic all[PEERS];
    monarch_server_traffic(p->server, all);
    return all[1];
}

struct monarch_traffic pair_received(struct pair *p)
{
    struct monarch_traffic all[PEERS];
    monarch_receiver_traffic(p->receiver, all);
    return all[OWNER];
}

void pair_until_closed(struct pair *p)
{
    uint64_t began = clock_ns();
    while (pair_served(p).connections) {
        CHECK(clock_ns() - began < PATIENCE_NS_MAX * SECOND_NS);
        poll(NULL, 0, 1);
    }
}

void pair_until_served(struct pair *p, uint64_t bytes)
{
    uint64_t began = clock_ns();
    while (pair_served(p).bytes != bytes) {
        CHECK(clock_ns() - began < PATIENCE_NS_MAX * SECOND_NS);
        poll(NULL, 0, 1);
    }
}

void make_ready(struct board *b, uint32_t file)
{
    CHECK(board_run(b, file, MONARCH_DEMAND).status == 0);
}

/* unpublish - as the agent does at eviction; a File without Replica is left alone. */
void unpublish(struct board *b, uint32_t file)
{
    char path[512];
    struct stat st;
    board_replica_path(b, file, path);
    board_set_state(b, file, STATE_WORD(REPLICA_EVICTING, 0, 0));
    if (stat(path, &st) == 0) {
        monarch_engine_forget(b->engine, 0, st.st_ino);
        CHECK(unlink(path) == 0);
    }
    board_set_state(b, file, STATE_WORD(REPLICA_ABSENT, 0, 0));
}

bool nothing_published(struct board *b, uint32_t file)
{
    char path[512];
    board_replica_path(b, file, path);
    return access(path, F_OK) != 0 && STATE_OF(board_state(b, file)) != REPLICA_READY;
}

unsigned descriptors_open(void)
{
    unsigned n = 0;
    DIR *dir = opendir("/proc/self/fd");
    CHECK(dir);
    while (readdir(dir))
        n++;
    closedir(dir);
    return n;
}

struct frame_request take_request(int fd)
{
    struct frame_request f;
    CHECK(recv(fd, &f, sizeof(f), MSG_WAITALL) == sizeof(f));
    CHECK(f.magic == FRAME_REQUEST_MAGIC && f.first % EXTENT_BLOCKS == 0 && !f.packing);
    return f;
}

struct frame_request ask_extent(struct board *b, uint64_t id, uint32_t file,
                                uint32_t extent)
{
    const uint64_t size = file < b->files ? b->sizes[file] : 0;
    const uint32_t most = extent < extents_of(size) ? extent_blocks(size, extent) : 1;
    struct frame_request f = frame_request_make(
        b->catalog, id, file, (struct block_run){extent * EXTENT_BLOCKS, most});
    f.flags = FRAME_WHOLE;
    return f;
}

void put_reply(int fd, const struct frame_reply *head, const void *bytes)
{
    CHECK(send(fd, head, sizeof(*head), MSG_NOSIGNAL) == sizeof(*head));
    if (head->size)
        CHECK(send(fd, bytes, head->size, MSG_NOSIGNAL) == (ssize_t)head->size);
}

struct frame_reply reply_to(const struct frame_request *f)
{
    return (struct frame_reply){
        .magic = FRAME_REPLY_MAGIC, .id = f->id, .file = f->file, .first = f->first};
}
