/* peer_client_connection.c - a connection to one peer: its requests, replies and time-outs. */
#include "dataplane/peers/peer_client.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "shared/progress.h"

enum { LATER_MAX = 2 * HINTED_MAX };

static struct monarch_traffic *traffic_of(struct receiver *r,
                                          const struct client_connection *c)
{
    return &r->traffic[c->peer];
}

/* client_new - returns a connection without requests; NULL: no memory. */
struct client_connection *client_new(uint32_t peer, int fd)
{
    struct client_connection *c = calloc(1, sizeof(*c));
    if (!c)
        return NULL;
    c->fd = fd;
    c->peer = peer;
    if (!ring_init(&c->queue, sizeof(struct queued_fetch), FETCHES_MAX) &&
        !ring_init(&c->later, sizeof(struct queued_fetch), LATER_MAX))
        return c;
    ring_free(&c->queue);
    free(c);
    return NULL;
}

/* may_wait - the order is for Blocks of fill, and no program waits: others go first, so that Blocks
 * that the peer must read first do not take all places. */
static bool may_wait(const struct monarch_order *order, bool wanted)
{
    return order->kind & MONARCH_BACKGROUND && order->page_count && !wanted;
}

/* client_queue - queues an order until it may begin. */
void client_queue(struct client_connection *c, const struct queued_fetch *fetch)
{
    if (!may_wait(&fetch->order, fetch->wanted) || !ring_push(&c->later, fetch))
        ring_push(&c->queue, fetch);
}

/* close_request - frees a request after its reply. */
static void close_request(struct client_connection *c, struct sent_request *a)
{
    struct fetch *f = a->fetch;
    c->progress_ns = clock_ns();
    a->fetch = NULL;
    c->open--;
    c->open_later -= a->later;
    f->open--;
    if (f->ended && !f->open)
        f->used = false;
}

/* end_reply - ends the current reply after its last byte. */
static void end_reply(struct receiver *r, struct client_connection *c,
                      const uint8_t *last)
{
    struct fetch *f = c->in.of->fetch;
    if (!f->ended) {
        int rc = fetched_end(r, f, &c->in, last);
        if (rc)
            fetch_end(r, f, rc < 0 ? rc : 0);
    }
    close_request(c, c->in.of);
    c->in.of = NULL;
}

/* note_reported - stores the progress that the peer reports for a File. A peer that progresses is
 * not late with Blocks: it also serves others of the File. */
static void note_reported(struct receiver *r, struct fetch *f, uint64_t told)
{
    progress_store(r->demand->job->requests, f->transfer.order.file, (uint32_t)told);
    if (f->transfer.partial && told != f->told)
        f->progress_ns = clock_ns();
    f->told = told;
}

/* begin_reply - checks the header of a reply and prepares for its bytes. */
static int begin_reply(struct receiver *r, struct client_connection *c)
{
    struct monarch_traffic *traffic = traffic_of(r, c);
    const struct frame_reply *head = &c->in.head;
    struct sent_request *a = &c->requests[head->id % REQUESTS_MAX];
    struct fetch *f = a->fetch;
    if (!f || frame_check_reply(r->demand->job->catalog, &a->request, head))
        return -EPROTO;
    bool pending = head->status == -EINPROGRESS;
    if (!f->ended)
        fetch_set_pending(r, f, pending);
    if (pending && head->digest && !f->ended)
        note_reported(r, f, head->digest);
    if (pending)
        return 0;
    if (head->status) {
        traffic_add(&traffic->refused, 1);
        if (!f->ended)
            fetch_end(r, f, head->status);
        close_request(c, a);
        return 0;
    }
    c->in.of = a;
    c->in.left = head->size;
    int rc = f->ended ? 0 : fetched_begin(r, f, &c->in);
    if (rc == -EPROTO)
        return rc;
    if (rc)
        fetch_end(r, f, rc);
    traffic_add(&traffic->replies, 1);
    if (!c->in.left)
        end_reply(r, c, NULL);
    return 0;
}

/* wanted - returns how many bytes the next step needs. */
static size_t wanted(const struct client_connection *c)
{
    if (!c->in.of)
        return sizeof(c->in.head);
    return c->in.left < CHUNK_BYTES ? c->in.left : CHUNK_BYTES;
}

static void take_chunk(struct receiver *r, struct client_connection *c, size_t n)
{
    const uint8_t *bytes = c->buffer + c->first;
    struct fetch *f = c->in.of->fetch;
    int rc = f->ended ? 0 : fetched_add(r, f, bytes, n);
    if (rc)
        fetch_end(r, f, rc);
    c->in.left -= n;
    traffic_add(&traffic_of(r, c)->bytes, n);
    if (!c->in.left)
        end_reply(r, c, bytes);
}

/* consume - processes the complete headers and chunks in the buffer. */
static int consume(struct receiver *r, struct client_connection *c)
{
    for (size_t n; (n = wanted(c)) <= c->fill - c->first; c->first += n) {
        int rc = 0;
        if (c->in.of)
            take_chunk(r, c, n);
        else {
            memcpy(&c->in.head, c->buffer + c->first, sizeof(c->in.head));
            rc = begin_reply(r, c);
        }
        if (rc)
            return rc;
    }
    return 0;
}

/* take_buffer - lends a buffer to a connection with unread bytes: there may be thousands. */
static bool take_buffer(struct client_thread *t, struct client_connection *c)
{
    if (!c->buffer && t->spare_count)
        c->buffer = t->spares[--t->spare_count];
    else if (!c->buffer)
        c->buffer = malloc(RECEIVE_BUFFER_BYTES);
    return c->buffer;
}

static void return_buffer(struct client_thread *t, struct client_connection *c)
{
    if (c->first < c->fill)
        return;
    if (t->spare_count < SPARES_MAX)
        t->spares[t->spare_count++] = c->buffer;
    else
        free(c->buffer);
    c->buffer = NULL;
    c->first = c->fill = 0;
}

/* receive - reads the needed bytes and the next header, at least RECEIVE_PIECE bytes if available;
 * returns the number of bytes, or -errno. */
static ssize_t receive(struct client_connection *c)
{
    size_t unread = c->fill - c->first, more = wanted(c) - unread + sizeof(c->in.head);
    more = more < RECEIVE_PIECE ? RECEIVE_PIECE : more;
    if (!unread || c->first + unread + more > RECEIVE_BUFFER_BYTES) {
        memmove(c->buffer, c->buffer + c->first, unread);
        c->first = 0;
        c->fill = unread;
    }
    ssize_t n = recv(c->fd, c->buffer + c->fill, more, 0);
    if (n > 0)
        c->fill += (size_t)n;
    return n < 0 ? -errno : n;
}

/* note_progress - notes that bytes have arrived, perhaps for a File. */
static void note_progress(struct client_connection *c)
{
    c->heard_ns = clock_ns();
    if (c->in.of)
        c->in.of->fetch->progress_ns = c->progress_ns = c->heard_ns;
}

/* put - puts a frame into the send buffer. */
static void put(struct client_connection *c, const struct frame_request *request)
{
    memcpy(c->out + c->out_bytes, request, sizeof(*request));
    c->out_bytes += sizeof(*request);
}

static bool has_room(const struct client_connection *c)
{
    return c->out_bytes + sizeof(struct frame_request) <= sizeof(c->out);
}

/* request_next - puts the next request of a fetch into the send buffer. */
static void request_next(struct receiver *r, struct client_connection *c,
                         struct fetch *f, uint64_t now)
{
    uint32_t slot = 0;
    while (c->requests[slot].fetch)
        slot++;
    struct sent_request *a = &c->requests[slot];
    a->fetch = f;
    a->later = may_wait(&f->transfer.order, f->wanted);
    c->open_later += a->later;
    a->request = fetch_request(r, f, ++c->sequence * REQUESTS_MAX + slot);
    f->open++;
    if (!c->open++)
        c->heard_ns = now;
    put(c, &a->request);
    traffic_add(&traffic_of(r, c)->requests, 1);
}

static bool may_request(const struct client_connection *c, const struct fetch *f)
{
    bool waits = may_wait(&f->transfer.order, f->wanted) &&
                 c->open_later >= REQUESTS_MAX / 2;
    return f->used && !f->ended && fetch_has_requests(f) && !waits &&
           f->open < REQUESTS_AHEAD && c->open < REQUESTS_MAX && has_room(c);
}

static bool is_fill(const struct monarch_order *order, const struct page_want *wanted)
{
    return order->kind & MONARCH_BACKGROUND && order_has_pages(order, wanted);
}

/* client_want - raises Blocks that fill has ordered, as programs wait for them, and notifies the
 * peer; true: some are not requested yet, or the peer was not notified. */
bool client_want(struct receiver *r, struct client_connection *c,
                 const struct page_want *wanted)
{
    bool tells = false;
    for (uint32_t i = 0; i < IN_FLIGHT_MAX; i++) {
        struct fetch *f = &c->fetches[i];
        if (!f->used || f->ended || f->wanted || !is_fill(&f->transfer.order, wanted))
            continue;
        f->wanted = tells = true;
        const struct frame_request told = fetch_want(r, f);
        if (f->next > f->all.first && has_room(c))
            put(c, &told);
    }
    for (uint32_t n = c->later.count; n; n--) {
        struct queued_fetch next;
        ring_pop(&c->later, &next);
        next.wanted = is_fill(&next.order, wanted);
        tells = tells || next.wanted;
        client_queue(c, &next);
    }
    return tells;
}

/* next_queued - takes the next order; those that may wait get at most half of the places. */
static bool next_queued(const struct receiver *r, struct client_connection *c,
                        struct queued_fetch *out)
{
    uint32_t waiting = 0;
    if (ring_pop(&c->queue, out))
        return true;
    for (uint32_t i = 0; c->later.count && i < r->options.in_flight; i++)
        waiting += c->fetches[i].used &&
                   may_wait(&c->fetches[i].transfer.order, c->fetches[i].wanted);
    return waiting < (r->options.in_flight + 1) / 2 && ring_pop(&c->later, out);
}

/* begin_queued - begins a queued order if the place is free. */
static void begin_queued(struct receiver *r, struct client_connection *c,
                         struct fetch *f, uint64_t now)
{
    struct queued_fetch next;
    while (!f->used && next_queued(r, c, &next)) {
        int rc = fetch_begin(r, f, &next.order, now);
        f->wanted = next.wanted;
        if (rc)
            fetch_end(r, f, rc);
    }
}

/* client_send - begins queued orders and sends requests, within the limits of both. */
int client_send(struct receiver *r, struct client_connection *c, uint64_t now)
{
    for (uint32_t i = 0; i < r->options.in_flight; i++) {
        struct fetch *f = &c->fetches[i];
        begin_queued(r, c, f, now);
        while (may_request(c, f))
            request_next(r, c, f, now);
    }
    if (!c->out_bytes)
        return 0;
    ssize_t n = send(c->fd, c->out, c->out_bytes, MSG_NOSIGNAL);
    if (n < 0)
        return errno == EAGAIN || errno == EINTR ? 0 : -ECONNRESET;
    c->out_bytes -= (size_t)n;
    memmove(c->out, c->out + n, c->out_bytes);
    return 0;
}

/* receive_piece - reads and processes one piece; returns the number of bytes, or -errno. */
static ssize_t receive_piece(struct receiver *r, struct client_connection *c)
{
    ssize_t n = receive(c);
    if (n == 0)
        return -ECONNRESET;
    if (n < 0)
        return n == -EAGAIN || n == -EINTR ? n : -ECONNRESET;
    int rc = consume(r, c);
    if (rc)
        return rc;
    note_progress(c);
    return n;
}

static int receive_turn(struct receiver *r, struct client_connection *c)
{
    for (ssize_t turn = RECEIVE_TURN; turn > 0;) {
        uint32_t open = c->open;
        ssize_t n = receive_piece(r, c);
        if (n == -EAGAIN)
            return 0;
        if (n < 0 && n != -EINTR)
            return (int)n;
        int rc = c->open < open ? client_send(r, c, c->heard_ns) : 0;
        if (rc)
            return rc;
        turn -= n > 0 ? n : 0;
    }
    return 0;
}

/* client_receive - reads replies, and sends the next requests as soon as one is
 * complete, so that the peer sends while this node writes. -EPROTO: a reply is
 * malformed or does not match its request; -ECONNRESET: the connection is closed. */
int client_receive(struct receiver *r, struct client_connection *c)
{
    struct client_thread *t = client_thread_of(r, c->peer);
    if (!take_buffer(t, c))
        return -ENOMEM;
    int rc = receive_turn(r, c);
    if (!rc)
        return_buffer(t, c);
    return rc;
}

/* silence_ns - returns how long a peer may send nothing while requests are acknowledged. */
static uint64_t silence_ns(const struct receiver *r)
{
    return clock_later(r->options.react_ms, SILENT_MS) * MS_NS;
}

/* client_silent - a reply or acknowledgement is overdue. */
bool client_silent(const struct receiver *r, const struct client_connection *c,
                   uint64_t now)
{
    return c->open && now >= c->heard_ns + r->options.react_ms * MS_NS;
}

/* is_late - no byte of the File has arrived in time, or nothing at all from the peer. */
static bool is_late(const struct receiver *r, const struct client_connection *c,
                    const struct fetch *f, uint64_t now)
{
    if (!f->used || f->ended)
        return false;
    uint64_t react = f->pending ? silence_ns(r) : r->options.react_ms * MS_NS;
    return now >= f->progress_ns + r->options.timeout_ms * MS_NS ||
           (f->open && now >= clock_later(f->progress_ns, c->heard_ns) + react);
}

/* is_stuck - a queued order waits for a connection that makes no progress. */
static bool is_stuck(const struct receiver *r, const struct client_connection *c,
                     const struct queued_fetch *w, uint64_t now)
{
    return now >= clock_later(w->since_ns, c->progress_ns) +
                      r->options.timeout_ms * MS_NS ||
           now >= clock_later(w->since_ns, c->heard_ns) + silence_ns(r);
}

static void expire_queue(struct receiver *r, struct client_connection *c,
                         struct ring *queue, uint64_t now)
{
    const struct queued_fetch *w;
    while ((w = ring_peek(queue)) && is_stuck(r, c, w, now)) {
        struct queued_fetch late;
        ring_pop(queue, &late);
        traffic_add(&traffic_of(r, c)->late, 1);
        fetch_refuse(r, &late.order, -ETIMEDOUT);
    }
}

/* client_expire - ends the fetches that are late; queued orders wait as long as bytes arrive for
 * others. */
void client_expire(struct receiver *r, struct client_connection *c, uint64_t now)
{
    for (uint32_t i = 0; i < r->options.in_flight; i++) {
        struct fetch *f = &c->fetches[i];
        if (!is_late(r, c, f, now))
            continue;
        traffic_add(&traffic_of(r, c)->late, 1);
        f->transfer.step = MONARCH_STEP_READ;
        fetch_end(r, f, -ETIMEDOUT);
    }
    expire_queue(r, c, &c->queue, now);
    expire_queue(r, c, &c->later, now);
}

/* client_end - closes and frees the connection; all its orders end with this status. */
void client_end(struct receiver *r, struct client_connection *c, int status)
{
    struct queued_fetch next;
    for (uint32_t i = 0; i < r->options.in_flight; i++) {
        struct fetch *f = &c->fetches[i];
        if (!f->used || f->ended)
            continue;
        f->transfer.step = MONARCH_STEP_READ;
        fetch_end(r, f, status);
    }
    while (ring_pop(&c->queue, &next) || ring_pop(&c->later, &next))
        fetch_refuse(r, &next.order, status);
    close(c->fd);
    ring_free(&c->queue);
    ring_free(&c->later);
    free(c->buffer);
    free(c);
}
