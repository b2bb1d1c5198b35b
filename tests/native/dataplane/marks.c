/* marks.c - a mark ends the Transfers of its File, and a fetch is of one Replica. */
#include "peer.h"

#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fault.h"

enum { LARGE, SMALL, FILES };

static const uint64_t sizes[FILES] = {3ull * EXTENT_BYTES, 5000};
static struct pair pair;
static int reads;

/* mark - as a program does, or an agent after a message from another node. */
static void mark(uint8_t *byte)
{
    __atomic_store_n(byte, 1, __ATOMIC_RELEASE);
}

static void begin(void)
{
    pair_new(&pair, FILES, sizes);
}

/* ---- a fetching node, played by the test ----------------------------------------- */

static void ask(int fd, uint32_t extent)
{
    struct frame_request f = ask_extent(pair.owner, extent, LARGE, extent);
    CHECK(send(fd, &f, sizeof(f), 0) == sizeof(f));
}

static uint64_t replica; /* named by the last answer */

/* answered - requests an Extent; returns the status of the answer, stores its bytes. */
static int answered(int fd, uint32_t extent, uint8_t *bytes)
{
    struct frame_reply head = {.status = -EINPROGRESS};
    ask(fd, extent);
    while (head.status == -EINPROGRESS)
        CHECK(recv(fd, &head, sizeof(head), MSG_WAITALL) == sizeof(head));
    CHECK(head.first == extent * EXTENT_BLOCKS);
    replica = head.replica;
    if (head.size)
        CHECK(recv(fd, bytes, head.size, MSG_WAITALL) == (ssize_t)head.size);
    return head.status;
}

/* replace - the owner evicts a Replica and copies the File again; the new one differs,
 * although nothing shows it: a store through a mapping shows late. */
static void replace(uint8_t fill)
{
    char path[512];
    struct stat st;
    unpublish(pair.owner, LARGE);
    board_origin_path(pair.owner, LARGE, path);
    CHECK(stat(path, &st) == 0);
    FILE *origin = fopen(path, "r+b");
    CHECK(origin);
    for (uint64_t at = 0; at < sizes[LARGE]; at += 4096)
        CHECK(fseek(origin, (long)at, SEEK_SET) == 0 && fputc(fill, origin) == fill);
    CHECK(fclose(origin) == 0);
    board_recatalog(pair.owner, LARGE);
    make_ready(pair.owner, LARGE);
}

static void an_answer_names_its_replica(void)
{
    uint8_t *bytes = malloc(EXTENT_BYTES);
    struct ends ends = ends_local();
    begin();
    replace('1');
    CHECK(monarch_server_adopt(pair.server, 1, ends.serves) == 0);
    CHECK(answered(ends.asks, 0, bytes) == 0 && bytes[0] == '1');
    uint64_t first = replica;
    CHECK(answered(ends.asks, 1, bytes) == 0 && bytes[0] == '1');
    CHECK(first && replica == first);
    replace('2');
    for (uint32_t extent = 0; extent < 3; extent++) {
        CHECK(answered(ends.asks, extent, bytes) == 0 && bytes[0] == '2');
        CHECK(replica && replica != first);
    }
    close(ends.asks);
    free(bytes);
    pair_free(&pair);
}

static void nothing_more_is_given_of_a_marked_file(bool whole_root)
{
    uint8_t *bytes = malloc(EXTENT_BYTES);
    struct ends ends = ends_local();
    begin();
    make_ready(pair.owner, LARGE);
    CHECK(monarch_server_adopt(pair.server, 1, ends.serves) == 0);
    CHECK(answered(ends.asks, 0, bytes) == 0);
    if (whole_root)
        mark(&pair.owner->flags->roots[0]);
    else
        mark(&pair.owner->flags->written[LARGE]);
    CHECK(answered(ends.asks, 1, bytes) == -ENOENT);
    CHECK(answered(ends.asks, 0, bytes) == -ENOENT);
    close(ends.asks);
    free(bytes);
    pair_free(&pair);
}

/* ---- a sending node, played by the test ------------------------------------------ */

struct fetching { /* of LARGE, from a peer that has sent its first Extent */
    struct ends ends;
    struct frame_reply next; /* the head of the second one */
};

static struct fetching begin_fetch(void)
{
    uint8_t *bytes = calloc(1, EXTENT_BYTES);
    struct fetching f = {.ends = ends_local()};
    char path[512];
    begin();
    make_ready(pair.owner, LARGE); /* for its checksums */
    CHECK(monarch_receiver_connect(pair.receiver, OWNER, f.ends.asks) == 0);
    pair_submit(&pair, LARGE);
    struct frame_request first = take_request(f.ends.serves);
    struct frame_request second = take_request(f.ends.serves);
    struct frame_reply head = reply_to(&first);
    head.size = EXTENT_BYTES;
    head.digest = pair.owner->digests[pair.owner->digest_first[LARGE]];
    head.replica = 1;
    board_replica_path(pair.owner, LARGE, path);
    FILE *file = fopen(path, "rb");
    CHECK(file && fread(bytes, 1, EXTENT_BYTES, file) == EXTENT_BYTES);
    fclose(file);
    put_reply(f.ends.serves, &head, bytes);
    free(bytes);
    f.next = reply_to(&second);
    f.next.size = EXTENT_BYTES;
    return f;
}

/* end_fetch - it ends after the head of the second Extent, before its bytes arrive. */
static void end_fetch(struct fetching *f, int status, uint8_t step)
{
    CHECK(send(f->ends.serves, &f->next, sizeof(f->next), 0) == sizeof(f->next));
    struct monarch_completion a = pair_wait(&pair);
    CHECK(a.status == status && a.step == step);
    CHECK(nothing_published(pair.asker, LARGE));
    close(f->ends.serves);
    pair_free(&pair);
}

static void a_fetch_ends_at_the_mark(void)
{
    struct fetching f = begin_fetch();
    mark(&pair.asker->flags->written[LARGE]);
    end_fetch(&f, -ESTALE, MONARCH_STEP_ORDER);
}

static void a_fetch_is_of_one_replica(void)
{
    struct fetching f = begin_fetch();
    f.next.replica = 2;
    end_fetch(&f, -EAGAIN, MONARCH_STEP_READ);
}

/* ---- a copy of the origin ---------------------------------------------------------- */

static struct board *board;

static ssize_t mark_at_second_read(int fd, void *buffer, size_t n)
{
    if (n >= CHUNK_BYTES && ++reads == 2)
        mark(&board->flags->written[LARGE]);
    return __real_read(fd, buffer, n);
}

static void a_copy_ends_at_the_mark(uint8_t kind)
{
    board = board_new(FILES, sizes);
    board_start(board, 1, 1);
    reads = 0;
    fault_read = mark_at_second_read;
    struct monarch_completion done = board_run(board, LARGE, kind);
    fault_read = NULL;
    CHECK(done.status == -ESTALE && reads == 2);
    CHECK(board_names(board, "") == 0);
    board_free(board);
}

int main(void)
{
    unsigned before = descriptors_open();
    an_answer_names_its_replica();
    a_fetch_is_of_one_replica();
    nothing_more_is_given_of_a_marked_file(false);
    nothing_more_is_given_of_a_marked_file(true);
    a_fetch_ends_at_the_mark();
    a_copy_ends_at_the_mark(MONARCH_DEMAND);
    a_copy_ends_at_the_mark(MONARCH_BACKGROUND);
    CHECK(descriptors_open() == before);
    return PASS;
}
