/* peer_forger.c - an attacker on the wire without the secret changes no byte of a File.
 *
 * It changes bytes at will, and corrects the checksum, as anybody can. Run with
 * TEST_SEALED; that the same forgeries pass without seals shows that they are real.
 */
#include "peer.h"

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "dataplane/media/seal.h"
#include "shared/xxh3.h"

enum { FILES = 4, SIZE = 110 << 10, LARGE = 2 * EXTENT_BYTES, ANSWERS_MAX = 64 };

static const uint64_t sizes[FILES] = {LARGE, SIZE, SIZE, 0};
static struct pair pair;

struct answer {
    struct frame_reply head;
    uint8_t *bytes;
};

/* seen - earlier traffic, to be sent again. */
static struct answer seen[ANSWERS_MAX];
static int seen_count;

static uint64_t chained(const uint8_t *bytes, uint64_t n)
{
    uint64_t chain = 0;
    for (uint64_t at = 0; at < n || !at; at += CHUNK_BYTES)
        chain = xxh3(bytes + at, n - at < CHUNK_BYTES ? n - at : CHUNK_BYTES, chain);
    return chain;
}

static void begin(void)
{
    pair_new(&pair, FILES, sizes);
    for (uint32_t i = 0; i < FILES; i++)
        make_ready(pair.owner, i);
}

static void end(void)
{
    for (; seen_count; seen_count--)
        free(seen[seen_count - 1].bytes);
    pair_free(&pair);
}

/* true_answer - the owner's reply to a request. */
static struct answer true_answer(int serves, const struct frame_request *f)
{
    struct answer a;
    CHECK(send(serves, f, sizeof(*f), MSG_NOSIGNAL) == sizeof(*f));
    CHECK(recv(serves, &a.head, sizeof(a.head), MSG_WAITALL) == sizeof(a.head));
    CHECK(a.head.status == 0);
    a.bytes = malloc(a.head.size + 1);
    CHECK(a.bytes);
    if (a.head.size)
        CHECK(recv(serves, a.bytes, a.head.size, MSG_WAITALL) == (ssize_t)a.head.size);
    return a;
}

typedef void (*forge)(struct answer *a, const struct frame_request *asked);

/* fetch_forged - fetches a File whose replies are forged on their way. */
static struct monarch_completion fetch_forged(uint32_t file, forge change)
{
    struct ends near = ends_local(), far = ends_local();
    CHECK(monarch_receiver_connect(pair.receiver, OWNER, near.asks) == 0);
    CHECK(monarch_server_adopt(pair.server, 1, far.serves) == 0);
    pair_submit(&pair, file);
    uint64_t extents = extents_of(sizes[file]);
    for (uint64_t i = 0; i < extents; i++) {
        struct frame_request f = take_request(near.serves);
        struct answer a = true_answer(far.asks, &f);
        change(&a, &f);
        send(near.serves, &a.head, sizeof(a.head), MSG_NOSIGNAL);
        send(near.serves, a.bytes, a.head.size, MSG_NOSIGNAL);
        CHECK(seen_count < ANSWERS_MAX);
        seen[seen_count++] = a;
    }
    struct monarch_completion arrival = pair_wait(&pair);
    close(near.serves);
    close(far.asks);
    return arrival;
}

static void change_nothing(struct answer *a, const struct frame_request *asked)
{
    (void)a, (void)asked;
}

static void change_a_byte(struct answer *a, const struct frame_request *asked)
{
    (void)asked;
    a->bytes[a->head.size / 2] ^= 1;
    a->head.digest = chained(a->bytes, a->head.size);
}

static void change_a_byte_and_leave_no_seal(struct answer *a,
                                            const struct frame_request *asked)
{
    change_a_byte(a, asked);
    memset(&a->head.seal, 0, sizeof(a->head.seal));
}

/* seal_by_another_key - as a stranger would, with everything except the secret. */
static void seal_by_another_key(struct answer *a, const struct frame_request *asked)
{
    const struct range_name name = {asked->file, asked->first, a->head.size,
                                    asked->blocks};
    const uint8_t key[SEAL_KEY_BYTES] = {0};
    struct sealing *sealing;
    struct sealer *sealer;
    change_a_byte(a, asked);
    CHECK(sealer_new(key, asked->catalog_digest, &sealer) == 0);
    CHECK(seal_begin(sealer, &name, &a->head.seal, &sealing) == 0);
    CHECK(seal_add(sealing, a->bytes, a->head.size) == 0);
    CHECK(seal_end(&sealing, a->head.seal.tag) == 0);
    sealer_free(sealer);
}

/* give_another - another true reply, with its seal, in place of the requested one. */
static void give_another(struct answer *a, const struct frame_request *asked,
                         uint32_t file, uint32_t first)
{
    for (int i = 0; i < seen_count; i++) {
        if (seen[i].head.file != file || seen[i].head.first != first)
            continue;
        CHECK(a->head.size == seen[i].head.size);
        memcpy(a->bytes, seen[i].bytes, a->head.size);
        a->head = seen[i].head;
        a->head.id = asked->id;
        a->head.file = asked->file;
        a->head.first = asked->first;
        return;
    }
}

static void give_another_file(struct answer *a, const struct frame_request *asked)
{
    give_another(a, asked, 2, 0);
}

static void give_another_extent(struct answer *a, const struct frame_request *asked)
{
    give_another(a, asked, asked->file, asked->first ? 0 : EXTENT_BLOCKS);
}

/* is_published - the File exists, right or wrong. */
static bool is_published(uint32_t file)
{
    return STATE_OF(board_state(pair.asker, file)) == REPLICA_READY;
}

static void a_forged_answer_is_refused(uint32_t file, forge change)
{
    begin();
    CHECK(fetch_forged(2, change_nothing).status == 0);
    CHECK(fetch_forged(file, change_nothing).status == 0);
    unpublish(pair.asker, file);
    uint64_t corrupt = pair_received(&pair).corrupt;
    struct monarch_completion a = fetch_forged(file, change);
    CHECK(a.status == -EBADMSG && a.step == MONARCH_STEP_VERIFY);
    CHECK(nothing_published(pair.asker, file));
    CHECK(pair_received(&pair).corrupt == corrupt + 1);
    CHECK(fetch_forged(file, change_nothing).status == 0);
    CHECK(board_replica_right(pair.asker, file));
    end();
}

/* an_answer_may_be_given_again - it has the same content, and is as right as before. */
static void an_answer_may_be_given_again(void)
{
    begin();
    CHECK(fetch_forged(1, change_nothing).status == 0);
    unpublish(pair.asker, 1);
    unpublish(pair.owner, 1);
    make_ready(pair.owner, 1); /* under a new seal */
    struct answer old = seen[0];
    CHECK(fetch_forged(1, change_nothing).status == 0);
    CHECK(memcmp(&old.head.seal, &seen[1].head.seal, sizeof(old.head.seal)) != 0);
    CHECK(old.head.digest == seen[1].head.digest);
    end();
}

/* a_peer_passes_on_what_it_has_fetched - with the seal that it received. */
static void a_peer_passes_on_what_it_has_fetched(void)
{
    struct pair next = {0};
    begin();
    for (uint32_t i = 0; i < FILES; i++)
        CHECK(fetch_forged(i, change_nothing).status == 0);
    uint64_t last = pair.owner->digest_first[FILES - 1];
    CHECK(memcmp(pair.asker->seals, pair.owner->seals,
                 (last + 1) * sizeof(struct monarch_seal)) == 0);
    pair_new(&next, FILES, sizes);
    struct ends ends = ends_local();
    struct server *server;
    CHECK(monarch_server_new(pair.asker->engine, &pair.serves, &server) == 0);
    CHECK(monarch_server_adopt(server, 1, ends.serves) == 0);
    CHECK(monarch_receiver_connect(next.receiver, OWNER, ends.asks) == 0);
    for (uint32_t i = 0; i < FILES; i++)
        CHECK(pair_fetch(&next, i).status == 0 && board_replica_right(next.asker, i));
    monarch_server_free(server);
    pair_free(&next);
    end();
}

/* a_checksum_alone_lets_forgeries_pass - as documented for checksums. */
static void a_checksum_alone_lets_forgeries_pass(void)
{
    begin();
    CHECK(fetch_forged(1, change_a_byte).status == 0);
    CHECK(is_published(1) && !board_replica_right(pair.asker, 1));
    end();
}

/* a_receiver_checks_no_seals_without_a_key - it reports this, and does not start. */
static void a_receiver_checks_no_seals_without_a_key(void)
{
    struct receiver *receiver;
    begin();
    pair.receives.sealed = 1;
    CHECK(monarch_receiver_new(pair.asker->engine, &pair.receives, &receiver) ==
          -EINVAL);
    end();
}

int main(void)
{
    const forge small[] = {change_a_byte, change_a_byte_and_leave_no_seal,
                           seal_by_another_key, give_another_file};
    const forge large[] = {change_a_byte, give_another_extent};
    unsigned before = descriptors_open();
    if (!monarch_seal_library())
        return SKIP;
    CHECK(getenv("TEST_SEALED"));
    for (size_t i = 0; i < sizeof(small) / sizeof(small[0]); i++)
        a_forged_answer_is_refused(1, small[i]);
    for (size_t i = 0; i < sizeof(large) / sizeof(large[0]); i++)
        a_forged_answer_is_refused(0, large[i]);
    an_answer_may_be_given_again();
    a_peer_passes_on_what_it_has_fetched();
    CHECK(unsetenv("TEST_SEALED") == 0);
    a_checksum_alone_lets_forgeries_pass();
    a_receiver_checks_no_seals_without_a_key();
    CHECK(descriptors_open() == before);
    return PASS;
}
