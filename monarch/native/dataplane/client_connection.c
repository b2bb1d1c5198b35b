/* client_connection.c - asks a peer for Files on one connection and takes in what it answers. */
#include "dataplane/peer_client.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "dataplane/clock.h"
#include "dataplane/flight.h"
#include "dataplane/traffic.h"

static struct monarch_traffic *traffic_of(struct receiver *r, const struct link *l)
{
    return &r->traffic[l->peer];
}

/* link_new - a connection on which nothing was asked yet; NULL: no memory. */
struct link *link_new(uint32_t peer, int fd)
{
    struct link *l = calloc(1, sizeof(*l));
    if (!l)
        return NULL;
    l->fd = fd;
    l->peer = peer;
    if (!ring_init(&l->queue, sizeof(struct waiting), FETCHES_MAX))
        return l;
    free(l);
    return NULL;
}

/* close_request - its reply is over. */
static void close_request(struct link *l, struct asked *a)
{
    struct flight *f = a->flight;
    l->moved_ns = clock_ns();
    a->flight = NULL;
    l->asked_count--;
    f->open--;
    if (f->ended && !f->open)
        f->used = false;
}

/* end_reply - all bytes of the current reply are there. */
static void end_reply(struct receiver *r, struct link *l)
{
    struct flight *f = l->current->flight;
    if (!f->ended) {
        int rc = flight_landed(r, f, &l->head);
        if (rc)
            flight_end(r, f, rc < 0 ? rc : 0);
    }
    close_request(l, l->current);
    l->current = NULL;
}

/* begin_reply - judges the header of a reply and makes ready for its bytes. */
static int begin_reply(struct receiver *r, struct link *l)
{
    struct monarch_traffic *traffic = traffic_of(r, l);
    struct asked *a = &l->asked[l->head.id % ASKED_PER_LINK];
    struct flight *f = a->flight;
    if (!f || frame_check_reply(r->engine->catalog, &a->request, &l->head))
        return -EPROTO;
    f->waits = l->head.status == -EINPROGRESS;
    if (f->waits)
        return 0;
    if (l->head.status) {
        traffic_add(&traffic->refused, 1);
        if (!f->ended)
            flight_end(r, f, l->head.status);
        close_request(l, a);
        return 0;
    }
    int rc = f->ended ? 0 : flight_extent(r, f, &l->head);
    if (rc == -EPROTO)
        return rc;
    if (rc)
        flight_end(r, f, rc);
    traffic_add(&traffic->replies, 1);
    l->current = a;
    l->left = l->head.size;
    if (!l->left)
        end_reply(r, l);
    return 0;
}

/* wanted - how many bytes are needed to go on. */
static size_t wanted(const struct link *l)
{
    if (!l->current)
        return sizeof(l->head);
    return l->left < CHUNK_BYTES ? l->left : CHUNK_BYTES;
}

static void take_chunk(struct receiver *r, struct link *l, size_t n)
{
    struct flight *f = l->current->flight;
    if (!f->ended) {
        int rc = flight_chunk(r, f, l->buffer + l->first, n);
        if (rc)
            flight_end(r, f, rc);
    }
    l->left -= n;
    traffic_add(&traffic_of(r, l)->bytes, n);
    if (!l->left)
        end_reply(r, l);
}

/* consume - takes in all that is whole of what has been received. */
static int consume(struct receiver *r, struct link *l)
{
    for (size_t n; (n = wanted(l)) <= l->fill - l->first; l->first += n) {
        int rc = 0;
        if (l->current)
            take_chunk(r, l, n);
        else {
            memcpy(&l->head, l->buffer + l->first, sizeof(l->head));
            rc = begin_reply(r, l);
        }
        if (rc)
            return rc;
    }
    return 0;
}

/* take_buffer - a link holds one only while it has bytes: it may be one of thousands. */
static bool take_buffer(struct lane *lane, struct link *l)
{
    if (!l->buffer && lane->spare_count)
        l->buffer = lane->spares[--lane->spare_count];
    else if (!l->buffer)
        l->buffer = malloc(LINK_BUFFER_BYTES);
    return l->buffer;
}

static void return_buffer(struct lane *lane, struct link *l)
{
    if (l->first < l->fill)
        return;
    if (lane->spare_count < SPARES_MAX)
        lane->spares[lane->spare_count++] = l->buffer;
    else
        free(l->buffer);
    l->buffer = NULL;
    l->first = l->fill = 0;
}

/* receive - asks the socket for what is needed and the header behind it, or for more if
 * that is little; the number of bytes or -errno. */
static ssize_t receive(struct link *l)
{
    size_t held = l->fill - l->first, more = wanted(l) - held + sizeof(l->head);
    more = more < RECEIVE_PIECE ? RECEIVE_PIECE : more;
    if (!held || l->first + held + more > LINK_BUFFER_BYTES) {
        memmove(l->buffer, l->buffer + l->first, held);
        l->first = 0;
        l->fill = held;
    }
    ssize_t n = recv(l->fd, l->buffer + l->fill, more, 0);
    if (n > 0)
        l->fill += (size_t)n;
    return n < 0 ? -errno : n;
}

/* progress - bytes have come, and perhaps for a File. */
static void progress(struct link *l)
{
    l->heard_ns = clock_ns();
    if (l->current)
        l->current->flight->moved_ns = l->moved_ns = l->heard_ns;
}

/* ask_extent - puts the request for the next Extent of a File into the send buffer. */
static void ask_extent(struct receiver *r, struct link *l, struct flight *f,
                       uint64_t now)
{
    uint32_t slot = 0;
    while (l->asked[slot].flight)
        slot++;
    struct asked *a = &l->asked[slot];
    a->flight = f;
    a->request = frame_ask(r->engine->catalog, ++l->sequence * ASKED_PER_LINK + slot,
                           f->order.file, f->asked++);
    f->open++;
    if (!l->asked_count++)
        l->heard_ns = now;
    memcpy(l->out + l->out_bytes, &a->request, sizeof(a->request));
    l->out_bytes += sizeof(a->request);
    traffic_add(&traffic_of(r, l)->requests, 1);
}

static bool may_ask(const struct link *l, const struct flight *f)
{
    return f->used && !f->ended && f->asked < f->extents && f->open < EXTENTS_AHEAD &&
           l->asked_count < ASKED_PER_LINK &&
           l->out_bytes + sizeof(struct frame_request) <= sizeof(l->out);
}

/* begin_waiting - begins an order in a free place. */
static void begin_waiting(struct receiver *r, struct link *l, struct flight *f,
                          uint64_t now)
{
    struct waiting next;
    while (!f->used && ring_pop(&l->queue, &next)) {
        int rc = flight_begin(r, f, &next.order, now);
        if (rc)
            flight_end(r, f, rc);
    }
}

/* link_pump - begins what may begin, asks for what may be asked for, and sends. */
int link_pump(struct receiver *r, struct link *l, uint64_t now)
{
    for (uint32_t i = 0; i < r->options.in_flight; i++) {
        struct flight *f = &l->flights[i];
        begin_waiting(r, l, f, now);
        while (may_ask(l, f))
            ask_extent(r, l, f, now);
    }
    if (!l->out_bytes)
        return 0;
    ssize_t n = send(l->fd, l->out, l->out_bytes, MSG_NOSIGNAL);
    if (n < 0)
        return errno == EAGAIN || errno == EINTR ? 0 : -ECONNRESET;
    l->out_bytes -= (size_t)n;
    memmove(l->out, l->out + n, l->out_bytes);
    return 0;
}

/* read_on - takes in one piece of what has come; its bytes or -errno. */
static ssize_t read_on(struct receiver *r, struct link *l)
{
    ssize_t n = receive(l);
    if (n == 0)
        return -ECONNRESET;
    if (n < 0)
        return n == -EAGAIN || n == -EINTR ? n : -ECONNRESET;
    int rc = consume(r, l);
    if (rc)
        return rc;
    progress(l);
    return n;
}

static int read_turn(struct receiver *r, struct link *l)
{
    for (ssize_t turn = RECEIVE_TURN; turn > 0;) {
        uint32_t asked = l->asked_count;
        ssize_t n = read_on(r, l);
        if (n == -EAGAIN)
            return 0;
        if (n < 0 && n != -EINTR)
            return (int)n;
        int rc = l->asked_count < asked ? link_pump(r, l, l->heard_ns) : 0;
        if (rc)
            return rc;
        turn -= n > 0 ? n : 0;
    }
    return 0;
}

/* link_read - takes in what has come, and asks for more as soon as something is there, so
 * that the peer sends while this node writes. -EPROTO: it is no answer to what was asked;
 * -ECONNRESET: nothing more will come. */
int link_read(struct receiver *r, struct link *l)
{
    struct lane *lane = lane_of(r, l->peer);
    if (!take_buffer(lane, l))
        return -ENOMEM;
    int rc = read_turn(r, l);
    if (!rc)
        return_buffer(lane, l);
    return rc;
}

static void refuse(struct receiver *r, const struct waiting *w, int status)
{
    receive_done(r, &(struct monarch_arrival){.file = w->order.file,
                                              .tier = w->order.tier,
                                              .step = MONARCH_STEP_READ,
                                              .peer = w->order.peer,
                                              .status = status});
}

static uint64_t later(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static uint64_t in_ns(uint32_t ms)
{
    return ms * (SECOND_NS / 1000);
}

/* silence_ns - how long a peer may say nothing at all while it keeps orders waiting. */
static uint64_t silence_ns(const struct receiver *r)
{
    return later(in_ns(r->options.react_ms), in_ns(SILENT_MS));
}

/* link_idle - nothing was asked for on it. */
bool link_idle(const struct link *l)
{
    return !l->asked_count && !l->queue.count;
}

/* link_quiet - the peer has something to say, and has not for longer than it may. */
bool link_quiet(const struct receiver *r, const struct link *l, uint64_t now)
{
    return l->asked_count && now >= l->heard_ns + in_ns(r->options.react_ms);
}

/* is_late - no byte of it has come for too long; or the peer is silent, and did not even
 * say that it knows of it. */
static bool is_late(const struct receiver *r, const struct link *l,
                    const struct flight *f, uint64_t now)
{
    if (!f->used || f->ended)
        return false;
    uint64_t react = f->waits ? silence_ns(r) : in_ns(r->options.react_ms);
    return now >= f->moved_ns + in_ns(r->options.timeout_ms) ||
           (f->open && now >= later(f->moved_ns, l->heard_ns) + react);
}

/* is_stuck - nothing goes on at the link that an order waits for to begin. */
static bool is_stuck(const struct receiver *r, const struct link *l,
                     const struct waiting *w, uint64_t now)
{
    return now >= later(w->since_ns, l->moved_ns) + in_ns(r->options.timeout_ms) ||
           now >= later(w->since_ns, l->heard_ns) + silence_ns(r);
}

/* link_expire - ends the orders for which no byte has come for too long; those that have
 * not begun wait as long as bytes come for others. */
void link_expire(struct receiver *r, struct link *l, uint64_t now)
{
    const struct waiting *w;
    for (uint32_t i = 0; i < r->options.in_flight; i++) {
        struct flight *f = &l->flights[i];
        if (!is_late(r, l, f, now))
            continue;
        traffic_add(&traffic_of(r, l)->late, 1);
        f->transfer.step = MONARCH_STEP_READ;
        flight_end(r, f, -ETIMEDOUT);
    }
    while ((w = ring_peek(&l->queue)) && is_stuck(r, l, w, now)) {
        struct waiting late;
        ring_pop(&l->queue, &late);
        traffic_add(&traffic_of(r, l)->late, 1);
        refuse(r, &late, -ETIMEDOUT);
    }
}

/* link_end - closes the connection; all its orders end with this status. */
void link_end(struct receiver *r, struct link *l, int status)
{
    struct waiting next;
    for (uint32_t i = 0; i < r->options.in_flight; i++) {
        struct flight *f = &l->flights[i];
        if (!f->used || f->ended)
            continue;
        f->transfer.step = MONARCH_STEP_READ;
        flight_end(r, f, status);
    }
    while (ring_pop(&l->queue, &next))
        refuse(r, &next, status);
    close(l->fd);
    ring_free(&l->queue);
    free(l->buffer);
    free(l);
}
