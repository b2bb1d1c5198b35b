/* peer_garbage.c - random, damaged, truncated and oversized frames hurt neither side.
 *
 *   peer_garbage INPUTS SEED
 */
#include "peer.h"

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { FILES = 4, SIZE = 300, INPUT_MAX = 400, BETWEEN = 500 };

static struct pair pair;
static uint64_t seed;

static uint64_t next_random(void)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return seed;
}

/* damage - changes some of the bytes. */
static void damage(uint8_t *bytes, size_t n)
{
    for (uint64_t times = next_random() % 4; times && n; times--)
        bytes[next_random() % n] = (uint8_t)next_random();
}

static size_t noise(uint8_t *out)
{
    size_t n = next_random() % INPUT_MAX;
    for (size_t i = 0; i < n; i++)
        out[i] = (uint8_t)next_random();
    return n;
}

/* name_blocks - makes it a request for Blocks, or marks some as wanted. */
static void name_blocks(struct frame_request *f)
{
    f->blocks = 1 + next_random() % 2;
    f->wanted = f->blocks + next_random() % 2;
    f->flags = next_random() % 4 == 0 ? FRAME_UNASKED : 0;
    f->flags |= next_random() % 2 ? FRAME_WANTED : 0;
    f->flags |= next_random() % 2 ? FRAME_WHOLE : 0;
}

/* some_requests - valid and damaged ones, the last one maybe truncated. */
static size_t some_requests(uint8_t *out)
{
    size_t n = 0;
    for (uint64_t times = 1 + next_random() % 8; times; times--) {
        uint32_t file = (uint32_t)(next_random() % (FILES + 1));
        uint32_t extent = next_random() % 8 == 0;
        struct frame_request f = ask_extent(pair.owner, next_random(), file, extent);
        if (next_random() % 4 == 0)
            name_blocks(&f);
        memcpy(out + n, &f, sizeof(f));
        if (next_random() % 2)
            damage(out + n, sizeof(f));
        n += sizeof(f);
    }
    return n - next_random() % sizeof(struct frame_request);
}

/* some_reply - to a request, usually damaged. */
static size_t some_reply(uint8_t *out, const struct frame_request *f)
{
    struct frame_reply head = reply_to(f);
    head.status = next_random() % 4 ? 0 : -(int)(next_random() % 5000);
    head.size = head.status ? 0 : SIZE + (next_random() % 8 == 0);
    memcpy(out, &head, sizeof(head));
    for (size_t i = 0; i < SIZE; i++)
        out[sizeof(head) + i] = (uint8_t)next_random();
    damage(out, sizeof(head));
    return next_random() % (sizeof(head) + SIZE + 1);
}

static void swallow(int fd)
{
    uint8_t bytes[4096];
    while (recv(fd, bytes, sizeof(bytes), MSG_DONTWAIT) > 0)
        continue;
}

static void feed_server(void)
{
    uint8_t input[INPUT_MAX];
    struct ends ends = ends_local();
    int rc;
    while ((rc = monarch_server_adopt(pair.server, 0, ends.serves)) == -EMFILE)
        poll(NULL, 0, 1); /* those before are being closed */
    CHECK(rc == 0 || rc == -EAGAIN);
    if (rc)
        close(ends.serves);
    size_t n = next_random() % 2 ? noise(input) : some_requests(input);
    if (n)
        send(ends.asks, input, n, MSG_NOSIGNAL);
    if (next_random() % 2)
        swallow(ends.asks);
    close(ends.asks);
}

static void feed_receiver(void)
{
    uint8_t input[INPUT_MAX];
    struct ends ends = ends_local();
    int rc;
    while ((rc = monarch_receiver_connect(pair.receiver, OWNER, ends.asks)) == -EAGAIN)
        poll(NULL, 0, 1);
    CHECK(rc == 0);
    pair_submit(&pair, 1);
    struct frame_request f = take_request(ends.serves);
    size_t n = next_random() % 3 ? some_reply(input, &f) : noise(input);
    if (n)
        send(ends.serves, input, n, MSG_NOSIGNAL);
    close(ends.serves);
    CHECK(pair_wait(&pair).status != 0 && nothing_published(pair.asker, 1));
}

/* still_works - both sides, for a peer that follows the protocol. */
static void still_works(void)
{
    pair_connect(&pair, ends_local());
    CHECK(pair_fetch(&pair, 0).status == 0 && board_replica_right(pair.asker, 0));
    unpublish(pair.asker, 0);
    CHECK(monarch_receiver_disconnect(pair.receiver, OWNER) == 0);
}

int main(int argc, char **argv)
{
    static const uint64_t sizes[FILES] = {SIZE, SIZE, SIZE, SIZE};
    unsigned before = descriptors_open();
    long inputs = argc > 1 ? atol(argv[1]) : 1000;
    seed = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
    CHECK(inputs > 0 && seed);
    pair_new(&pair, FILES, sizes);
    for (uint32_t i = 0; i < FILES - 1; i++)
        make_ready(pair.owner, i);
    for (long i = 0; i < inputs; i++) {
        if (i % 2)
            feed_receiver();
        else
            feed_server();
        if (i % BETWEEN == 0)
            still_works();
    }
    still_works();
    pair_until_closed(&pair);
    pair_free(&pair);
    CHECK(descriptors_open() == before);
    return PASS;
}
