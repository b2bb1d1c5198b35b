/* peer_server_connection.c - reads the requests of a peer and sends the replies by
 * sendfile(). */
#include "dataplane/peers/peer_server.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <unistd.h>

#include "dataplane/demand/demand.h"
#include "dataplane/extents/partial.h"
#include "dataplane/extents/table.h"
#include "dataplane/transfers/transfer.h"
#include "shared/catalog.h"
#include "shared/progress.h"

enum { PENDING = 1 };

static struct monarch_traffic *traffic_of(struct server *s,
                                          const struct server_connection *c)
{
    return &s->traffic[c->peer];
}

/* want - raises pending requests of the peer's fill, as its programs wait for these Blocks now. */
static void want(struct server *s, struct server_connection *c,
                 const struct frame_request *f)
{
    const struct pending_request all = {.asked = *f};
    for (uint32_t i = 0; i < c->pending_count; i++) {
        struct frame_request *asked = &c->pending[i].asked;
        if (asked->file == f->file && asked->first >= f->first &&
            asked->first < f->first + f->wanted)
            asked->flags &= (uint8_t)~FRAME_UNASKED;
    }
    reply_ask(s, &all);
}

/* take_frame - turns a frame into a pending request. */
static int take_frame(struct server *s, struct server_connection *c,
                      const struct frame_request *f, uint64_t now)
{
    struct job *job = s->demand->job;
    int rc = frame_check_request(job->catalog, f);
    if (rc == -EPROTO)
        return rc;
    if (f->flags & FRAME_WANTED) {
        if (!rc)
            want(s, c, f);
        return 0;
    }
    struct pending_request *p = &c->pending[c->pending_count++];
    *p = (struct pending_request){.asked = *f, .since_ns = now, .status = rc};
    if (!rc) {
        p->whole = f->flags & FRAME_WHOLE;
        p->ready = reply_is_ready(s, p);
        p->failures = p->whole ? 0 : partial_failures(job, f->file);
    }
    traffic_add(&traffic_of(s, c)->requests, 1);
    return 0;
}

/* take_frames - turns the complete frames in the buffer into pending requests. */
static int take_frames(struct server *s, struct server_connection *c)
{
    size_t at = 0;
    uint64_t now = clock_ns();
    for (; c->in_bytes - at >= sizeof(struct frame_request);
         at += sizeof(struct frame_request)) {
        struct frame_request f;
        memcpy(&f, c->in + at, sizeof(f));
        int rc = take_frame(s, c, &f, now);
        if (rc)
            return rc;
    }
    c->in_bytes -= at;
    memmove(c->in, c->in + at, c->in_bytes);
    return 0;
}

/* connection_read - reads as many requests as fit; -EPROTO: one of them is malformed; -ECONNRESET:
 * the peer has closed the connection. */
int connection_read(struct server *s, struct server_connection *c)
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

/* forward - requests the File or the Blocks, again with each tick, as programs do. */
static void forward(struct server *s, struct pending_request *p, uint64_t now)
{
    if (p->forwarded_ns && now - p->forwarded_ns < SERVER_TICK_MS * MS_NS)
        return;
    p->forwarded_ns = now;
    reply_ask(s, p);
}

/* note_progress - extends the wait of a request for Blocks while others of the File arrive. */
static void note_progress(struct demand *d, struct pending_request *p, uint64_t now)
{
    uint32_t progress = progress_load(d->job->requests, p->asked.file);
    if (progress != p->progress)
        p->since_ns = now;
    p->progress = progress;
}

/* reply_status - returns 0: the reply has bytes; -errno: it has none; or PENDING. */
static int reply_status(struct server *s, struct pending_request *p, uint64_t now)
{
    struct demand *d = s->demand;
    uint32_t root = 0, file = p->asked.file;
    if (p->status)
        return p->status;
    catalog_entry(d->job->catalog, file, &root);
    if (written_load(d->job->flags, root, file))
        return -ENOENT;
    uint32_t word = replica_load(d->job->catalog, file);
    if (reply_is_there(s, p, now))
        return 0;
    if (STATE_OF(word) == REPLICA_ABSENT && STATE_REASON(word) != REASON_NONE)
        return -ENOENT;
    if (!p->whole && partial_failures(d->job, file) != p->failures)
        return -ENOENT;
    if (!p->whole)
        note_progress(d, p, now);
    if (now - p->since_ns >= s->options.park_ms * MS_NS)
        return -EAGAIN;
    forward(s, p, now);
    return PENDING;
}

/* follows_pending - an earlier request for the same File is pending: replies for the Extents of one
 * File keep the order of the requests. */
static bool follows_pending(const struct server_connection *c, uint32_t number)
{
    const struct pending_request *p = &c->pending[number];
    for (const struct pending_request *q = c->pending; p->whole && q < p; q++)
        if (q->whole && q->asked.file == p->asked.file)
            return true;
    return false;
}

static void begin_head(struct server_connection *c, const struct pending_request *p,
                       int status)
{
    c->out = (struct reply){.active = true,
                            .head = {.magic = FRAME_REPLY_MAGIC,
                                     .status = status,
                                     .id = p->asked.id,
                                     .file = p->asked.file,
                                     .first = p->asked.first,
                                     .ready = p->ready ? FRAME_READY : 0}};
}

static void begin_reply(struct server *s, struct server_connection *c, uint32_t number,
                        int status)
{
    const struct pending_request p = c->pending[number];
    struct monarch_traffic *traffic = traffic_of(s, c);
    c->pending_count--;
    memmove(&c->pending[number], &c->pending[number + 1],
            (c->pending_count - number) * sizeof(p));
    begin_head(c, &p, status);
    if (!status)
        c->out.head.status = reply_attach(s, &p, &c->out);
    traffic_add(c->out.head.status ? &traffic->refused : &traffic->replies, 1);
    traffic_add(&traffic->ranges, !c->out.head.status && !p.whole);
    traffic_add(&traffic->late, c->out.head.status == -EAGAIN);
}

/* acknowledge_due - a pending request must be acknowledged: at once, and again after a while
 * without a frame. For a large File the frame carries the progress. */
static bool acknowledge_due(const struct demand *d, const struct server_connection *c,
                            const struct pending_request *p, uint64_t now)
{
    const uint64_t tick_ns = SERVER_TICK_MS * MS_NS;
    if (!p->acknowledged_ns || now - c->progress_ns >= tick_ns)
        return true;
    return (!p->whole || !p->asked.first) && now - p->acknowledged_ns >= tick_ns &&
           catalog_entry(d->job->catalog, p->asked.file, NULL)->size > EXTENT_BYTES;
}

/* acknowledge - begins a reply of -EINPROGRESS; false: none is due. */
static bool acknowledge(const struct demand *d, struct server_connection *c,
                        struct pending_request *p, uint64_t now)
{
    if (!acknowledge_due(d, c, p, now))
        return false;
    p->acknowledged_ns = now;
    begin_head(c, p, -EINPROGRESS);
    c->out.head.digest = progress_load(d->job->requests, p->asked.file);
    return true;
}

/* begin_next - begins the reply to the oldest request that can be answered, or the acknowledgement
 * of one before it; false: nothing is to be sent. */
static bool begin_next(struct server *s, struct server_connection *c, uint64_t now)
{
    bool begun = false;
    c->waits = false;
    for (uint32_t i = 0; i < c->pending_count && !begun; i++) {
        int status = follows_pending(c, i) ? PENDING
                                           : reply_status(s, &c->pending[i], now);
        c->waits = c->waits || status == PENDING;
        begun = status != PENDING || acknowledge(s->demand, c, &c->pending[i], now);
        if (status != PENDING)
            begin_reply(s, c, i, status);
    }
    if (begun)
        c->progress_ns = now;
    return begun;
}

static ssize_t send_head(struct server_connection *c)
{
    struct reply *out = &c->out;
    const int flags = MSG_NOSIGNAL | (out->left ? MSG_MORE : 0);
    ssize_t n = send(c->fd, (const char *)&out->head + out->head_sent,
                     sizeof(out->head) - out->head_sent, flags);
    if (n > 0)
        out->head_sent += (uint32_t)n;
    return n;
}

static ssize_t send_bytes(struct server *s, struct server_connection *c)
{
    struct reply *out = &c->out;
    uint64_t piece = out->left < SEND_PIECE ? out->left : SEND_PIECE;
    ssize_t n = out->bytes ? send(c->fd, out->bytes + out->offset, piece, MSG_NOSIGNAL)
                           : sendfile(c->fd, out->replica->fd, &out->offset, piece);
    if (n > 0 && out->bytes)
        out->offset += n;
    if (n == 0) { /* the Replica was truncated: its bytes are not correct */
        errno = EIO;
        return -1;
    }
    if (n > 0) {
        out->left -= (uint64_t)n;
        traffic_add(&traffic_of(s, c)->bytes, (uint64_t)n);
    }
    return n;
}

static void end_reply(struct server *s, struct server_connection *c)
{
    reply_release(s, &c->out);
    c->out.active = false;
}

/* send_piece - sends the next piece of a reply; returns the number of bytes, or -errno. */
static ssize_t send_piece(struct server *s, struct server_connection *c, uint64_t now)
{
    bool head = c->out.head_sent < sizeof(c->out.head);
    ssize_t n = head ? send_head(c) : send_bytes(s, c);
    if (n < 0)
        return -errno;
    c->progress_ns = now;
    if (c->out.head_sent == sizeof(c->out.head) && !c->out.left)
        end_reply(s, c);
    return n;
}

/* connection_send - sends replies until the socket is full, the turn is over or all is sent;
 * -errno: the connection is broken; -ETIMEDOUT: the peer reads nothing. */
int connection_send(struct server *s, struct server_connection *c, uint64_t now)
{
    ssize_t turn = SEND_TURN;
    while (turn > 0 && (c->out.active || begin_next(s, c, now))) {
        ssize_t n = send_piece(s, c, now);
        if (n == -EAGAIN) {
            c->turn_over = false;
            uint64_t stall_ns = s->options.stall_ms * MS_NS;
            return now > c->progress_ns + stall_ns ? -ETIMEDOUT : 0;
        }
        if (n < 0 && n != -EINTR)
            return (int)n;
        turn -= n > 0 ? n : 0;
    }
    c->turn_over = turn <= 0;
    return 0;
}

/* connection_close - closes the socket and the Replica of the current reply. */
void connection_close(struct server *s, struct server_connection *c)
{
    end_reply(s, c);
    close(c->fd);
}
