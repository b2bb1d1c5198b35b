/* server_connection.c - takes in what a peer asks on one connection, and answers it by sendfile. */
#include "dataplane/peer_server.h"

#include <errno.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <unistd.h>

#include "dataplane/clock.h"
#include "dataplane/extent.h"
#include "shared/catalog.h"
#include "dataplane/request.h"
#include "dataplane/traffic.h"

enum { PARKED = 1 };

static struct monarch_traffic *traffic_of(struct server *s, const struct connection *c)
{
    return &s->traffic[c->peer];
}

static bool is_ready(const struct engine *e, uint32_t file)
{
    return STATE_OF(replica_load(e->catalog, file)) == REPLICA_READY;
}

/* take_frames - turns the whole frames that have come into pending requests. */
static int take_frames(struct server *s, struct connection *c)
{
    size_t at = 0;
    uint64_t now = clock_ns();
    for (; c->in_bytes - at >= sizeof(struct frame_request);
         at += sizeof(struct frame_request)) {
        struct frame_request f;
        memcpy(&f, c->in + at, sizeof(f));
        int rc = frame_check_request(s->engine->catalog, &f);
        if (rc == -EPROTO)
            return rc;
        c->pending[c->pending_count++] = (struct pending){
            .id = f.id,
            .since_ns = now,
            .file = f.file,
            .extent = f.extent,
            .status = rc,
            .ready = !rc && is_ready(s->engine, f.file)};
        traffic_add(&traffic_of(s, c)->requests, 1);
    }
    c->in_bytes -= at;
    memmove(c->in, c->in + at, c->in_bytes);
    return 0;
}

/* answer_read - takes in as many requests as there is room for; -EPROTO: one of them is
 * no request; -ECONNRESET: the peer has gone. */
int answer_read(struct server *s, struct connection *c)
{
    size_t room = (PIPELINE_MAX - c->pending_count) * sizeof(struct frame_request);
    if (room <= c->in_bytes)
        return 0;
    ssize_t n = recv(c->fd, c->in + c->in_bytes, room - c->in_bytes, 0);
    if (n == 0)
        return -ECONNRESET;
    if (n < 0)
        return errno == EAGAIN || errno == EINTR ? 0 : -errno;
    c->in_bytes += (size_t)n;
    return take_frames(s, c);
}

/* ask - tells Python that the File is wanted, as often as a program would. */
static void ask(struct engine *e, struct pending *p, uint64_t now)
{
    if (p->asked_ns && now - p->asked_ns < SERVER_TICK_MS * (SECOND_NS / 1000))
        return;
    p->asked_ns = now;
    request_forward(e, p->file);
}

/* verdict - 0: to be answered with bytes; -errno; or PARKED. */
static int verdict(struct server *s, struct pending *p, uint64_t now)
{
    struct engine *e = s->engine;
    uint32_t root = 0;
    if (p->status)
        return p->status;
    catalog_entry(e->catalog, p->file, &root);
    if (written_load(e->flags, root, p->file))
        return -ENOENT;
    uint32_t word = replica_load(e->catalog, p->file);
    if (STATE_OF(word) == REPLICA_READY)
        return 0;
    if (STATE_OF(word) == REPLICA_ABSENT && STATE_REASON(word) != REASON_NONE)
        return -ENOENT;
    if (now - p->since_ns >= s->options.park_ms * (SECOND_NS / 1000))
        return -EAGAIN;
    ask(e, p, now);
    return PARKED;
}

/* skipped - an earlier Extent of the same File waits: this one must not overtake it. */
static bool skipped(const struct connection *c, uint32_t number)
{
    for (uint32_t i = 0; i < number; i++)
        if (c->pending[i].file == c->pending[number].file)
            return true;
    return false;
}

/* same_replica - all Extents of a fetch are read from the Replica that the first was read
 * from: one that has taken its place may hold other bytes, although each is right. */
static bool same_replica(struct connection *c, uint64_t stamp)
{
    const struct frame_reply *head = &c->out.head;
    struct begun *known = NULL;
    for (uint32_t i = 0; i < FETCHES_OPEN_MAX && !known; i++)
        if (c->begun[i].file == (uint64_t)head->file + 1)
            known = &c->begun[i];
    if (known && head->extent)
        return known->stamp == stamp;
    if (!known)
        known = &c->begun[c->begun_next++ % FETCHES_OPEN_MAX];
    *known = (struct begun){.file = (uint64_t)head->file + 1, .stamp = stamp};
    return true;
}

/* attach - finds the bytes of a reply; else it becomes one without. */
static void attach(struct server *s, struct connection *c)
{
    struct engine *e = s->engine;
    struct outgoing *out = &c->out;
    struct frame_reply *head = &out->head;
    if (kept_take(e, s->kept, head->file, &out->single, &out->kept)) {
        request_forward(e, head->file); /* Python is to look at it */
        head->status = -EIO;
        return;
    }
    uint64_t size = catalog_entry(e->catalog, head->file, NULL)->size;
    if (size > EXTENT_BYTES && !same_replica(c, out->kept->stamp)) {
        kept_return(out->kept);
        out->kept = NULL;
        head->status = -EAGAIN; /* the peer is to begin anew */
        return;
    }
    uint64_t place = e->options.digest_first[head->file] + head->extent;
    head->size = frame_extent_bytes(size, head->extent);
    head->digest = __atomic_load_n(&e->options.digests[place], __ATOMIC_RELAXED);
    head->seal = extent_seal(e, place);
    out->offset = (int64_t)head->extent * EXTENT_BYTES;
    out->left = head->size;
}

static void say(struct connection *c, const struct pending *p, int status)
{
    c->out = (struct outgoing){.active = true,
                               .head = {.magic = FRAME_REPLY_MAGIC,
                                        .status = status,
                                        .id = p->id,
                                        .file = p->file,
                                        .extent = p->extent,
                                        .ready = p->ready ? FRAME_READY : 0}};
}

static void begin_reply(struct server *s, struct connection *c, uint32_t number,
                        int status)
{
    const struct pending p = c->pending[number];
    struct monarch_traffic *traffic = traffic_of(s, c);
    c->pending_count--;
    memmove(&c->pending[number], &c->pending[number + 1],
            (c->pending_count - number) * sizeof(p));
    say(c, &p, status);
    if (!status)
        attach(s, c);
    traffic_add(c->out.head.status ? &traffic->refused : &traffic->replies, 1);
    traffic_add(&traffic->late, c->out.head.status == -EAGAIN);
}

/* tell - says of a request that waits that it is known, and that this node lives; false:
 * that was said just now. */
static bool tell(struct connection *c, struct pending *p, uint64_t now)
{
    if (p->told && now - c->moved_ns < SERVER_TICK_MS * (SECOND_NS / 1000))
        return false;
    p->told = true;
    say(c, p, -EINPROGRESS);
    return true;
}

/* choose - begins the next thing to say: the reply to the oldest request that can be
 * answered, or before it that one waits; false: nothing. */
static bool choose(struct server *s, struct connection *c, uint64_t now)
{
    bool chosen = false;
    c->waits = false;
    for (uint32_t i = 0; i < c->pending_count && !chosen; i++) {
        int status = skipped(c, i) ? PARKED : verdict(s, &c->pending[i], now);
        c->waits = c->waits || status == PARKED;
        chosen = status != PARKED || tell(c, &c->pending[i], now);
        if (status != PARKED)
            begin_reply(s, c, i, status);
    }
    if (chosen)
        c->moved_ns = now;
    return chosen;
}

static ssize_t send_head(struct connection *c)
{
    struct outgoing *out = &c->out;
    const int flags = MSG_NOSIGNAL | (out->left ? MSG_MORE : 0);
    ssize_t n = send(c->fd, (const char *)&out->head + out->head_sent,
                     sizeof(out->head) - out->head_sent, flags);
    if (n > 0)
        out->head_sent += (uint32_t)n;
    return n;
}

static ssize_t send_bytes(struct server *s, struct connection *c)
{
    struct outgoing *out = &c->out;
    uint64_t piece = out->left < SEND_PIECE ? out->left : SEND_PIECE;
    ssize_t n = sendfile(c->fd, out->kept->fd, &out->offset, piece);
    if (n == 0) { /* the Replica has been cut: nothing true can follow */
        errno = EIO;
        return -1;
    }
    if (n > 0) {
        out->left -= (uint64_t)n;
        traffic_add(&traffic_of(s, c)->bytes, (uint64_t)n);
    }
    return n;
}

static void end_reply(struct connection *c)
{
    if (c->out.kept)
        kept_return(c->out.kept);
    c->out.kept = NULL;
    c->out.active = false;
}

/* send_on - sends a piece; the number of bytes, or -errno. */
static ssize_t send_on(struct server *s, struct connection *c, uint64_t now)
{
    bool head = c->out.head_sent < sizeof(c->out.head);
    ssize_t n = head ? send_head(c) : send_bytes(s, c);
    if (n < 0)
        return -errno;
    c->moved_ns = now;
    if (c->out.head_sent == sizeof(c->out.head) && !c->out.left)
        end_reply(c);
    return n;
}

/* answer_pump - answers what can be answered until the socket is full or the turn is
 * over; -errno: the connection is broken, or its peer takes nothing any more. */
int answer_pump(struct server *s, struct connection *c, uint64_t now)
{
    ssize_t turn = SEND_TURN;
    while (turn > 0 && (c->out.active || choose(s, c, now))) {
        ssize_t n = send_on(s, c, now);
        if (n == -EAGAIN) {
            c->more = false;
            uint64_t stall_ns = s->options.stall_ms * (SECOND_NS / 1000);
            return now > c->moved_ns + stall_ns ? -ETIMEDOUT : 0;
        }
        if (n < 0 && n != -EINTR)
            return (int)n;
        turn -= n > 0 ? n : 0;
    }
    c->more = turn <= 0;
    return 0;
}

/* answer_release - closes the connection and forgets what was asked on it. */
void answer_release(struct connection *c)
{
    end_reply(c);
    close(c->fd);
}
