/* marks.c - a mark ends what is under way of its File, and a fetch is of one Replica. */
#include "peer.h"

#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fault.h"

enum { LARGE, SMALL, FILES };

static const uint64_t sizes[FILES] = {3ull * EXTENT_BYTES, 5000};
static struct pair pair;
static int reads;

/* mark - as a program does, or an agent that another node has told. */
static void mark(uint8_t *byte)
{
    __atomic_store_n(byte, 1, __ATOMIC_RELEASE);
}

static void begin(void)
{
    pair_new(&pair, FILES, sizes);
}

/* ---- one who fetches, played by the test ------------------------------------------ */

static void ask(int fd, uint32_t extent)
{
    struct frame_request f = frame_request_make(pair.owner->catalog, extent, LARGE,
                                                extent);
    CHECK(send(fd, &f, sizeof(f), 0) == sizeof(f));
}

/* answered - asks for an Extent; the status of the answer, whose bytes go to `bytes`. */
static int answered(int fd, uint32_t extent, uint8_t *bytes)
{
    struct frame_reply head = {.status = -EINPROGRESS};
    ask(fd, extent);
    while (head.status == -EINPROGRESS)
        CHECK(recv(fd, &head, sizeof(head), MSG_WAITALL) == sizeof(head));
    CHECK(head.extent == extent);
    if (head.size)
        CHECK(recv(fd, bytes, head.size, MSG_WAITALL) == (ssize_t)head.size);
    return head.status;
}

/* replace - the owner evicts a Replica and copies the File again, which is another one
 * by then, although nothing shows it: a store through a mapping shows late. */
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

static void a_fetch_is_of_one_replica(void)
{
    uint8_t *bytes = malloc(EXTENT_BYTES);
    struct ends ends = ends_local();
    begin();
    replace('1');
    CHECK(monarch_server_adopt(pair.server, 1, ends.serves) == 0);
    CHECK(answered(ends.asks, 0, bytes) == 0 && bytes[0] == '1');
    CHECK(answered(ends.asks, 1, bytes) == 0 && bytes[0] == '1');
    replace('2');
    CHECK(answered(ends.asks, 2, bytes) == -EAGAIN);
    CHECK(answered(ends.asks, 1, bytes) == -EAGAIN);
    for (uint32_t extent = 0; extent < 3; extent++)
        CHECK(answered(ends.asks, extent, bytes) == 0 && bytes[0] == '2');
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

/* ---- one who gives, played by the test -------------------------------------------- */

static void a_fetch_ends_at_the_mark(void)
{
    uint8_t *bytes = calloc(1, EXTENT_BYTES);
    struct ends ends = ends_local();
    begin();
    make_ready(pair.owner, LARGE); /* for its checksums */
    CHECK(monarch_receiver_connect(pair.receiver, OWNER, ends.asks) == 0);
    pair_submit(&pair, LARGE);
    struct frame_request first = take_request(ends.serves);
    struct frame_request second = take_request(ends.serves);
    struct frame_reply head = reply_to(&first);
    head.size = EXTENT_BYTES;
    head.digest = pair.owner->digests[pair.owner->digest_first[LARGE]];
    char path[512];
    board_replica_path(pair.owner, LARGE, path);
    FILE *replica = fopen(path, "rb");
    CHECK(replica && fread(bytes, 1, EXTENT_BYTES, replica) == EXTENT_BYTES);
    fclose(replica);
    put_reply(ends.serves, &head, bytes);
    mark(&pair.asker->flags->written[LARGE]);
    head = reply_to(&second);
    head.size = EXTENT_BYTES;
    CHECK(send(ends.serves, &head, sizeof(head), 0) == sizeof(head));
    struct monarch_completion a = pair_wait(&pair); /* before its bytes come */
    CHECK(a.status == -ESTALE && a.step == MONARCH_STEP_ORDER);
    CHECK(nothing_published(pair.asker, LARGE));
    close(ends.serves);
    free(bytes);
    pair_free(&pair);
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
    a_fetch_is_of_one_replica();
    nothing_more_is_given_of_a_marked_file(false);
    nothing_more_is_given_of_a_marked_file(true);
    a_fetch_ends_at_the_mark();
    a_copy_ends_at_the_mark(MONARCH_DEMAND);
    a_copy_ends_at_the_mark(MONARCH_BACKGROUND);
    CHECK(descriptors_open() == before);
    return PASS;
}
