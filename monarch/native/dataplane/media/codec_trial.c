/* codec_trial.c - tries a codec on pieces of files: how much each shrinks and how long it
 * takes, in the CPU time of this thread, so that other work on the node does not count. */
#include "dataplane/media/codec.h"

#include <errno.h>
#include <stdlib.h>
#include <time.h>

#include "dataplane/base/clock.h"

static uint64_t cpu_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * SECOND_NS + (uint64_t)t.tv_nsec;
}

/* try_piece - compresses a piece into a room that is smaller than it, and decompresses it
 * if it fits. */
static int try_piece(struct coder *c, const uint8_t *piece, uint8_t *packed,
                     uint8_t *plain, struct monarch_tried *t)
{
    uint64_t began = cpu_ns();
    int64_t got = monarch_coder_pack(c, piece, t->bytes, packed, t->room);
    t->pack_ns = cpu_ns() - began;
    t->packed = got < 0 ? 0 : (uint64_t)got;
    if (got < 0)
        return got == -ENOSPC ? 0 : (int)got;
    began = cpu_ns();
    int rc = monarch_coder_unpack(c, packed, t->packed, plain, t->bytes);
    t->unpack_ns = cpu_ns() - began;
    return rc;
}

static uint64_t largest(const struct monarch_tried *pieces, uint64_t n)
{
    uint64_t most = 1;
    for (uint64_t i = 0; i < n; i++)
        most = pieces[i].bytes > most ? pieces[i].bytes : most;
    return most;
}

/* monarch_coder_try - tries pieces that follow each other, until compressing has taken
 * `limit_ns`, but so many at least; returns how many, or -errno. */
int64_t monarch_coder_try(struct coder *c, const uint8_t *bytes,
                          struct monarch_tried *pieces, uint64_t n,
                          const struct monarch_trial *trial)
{
    uint64_t room = largest(pieces, n), spent = 0, done = 0;
    uint8_t *packed = malloc(room), *plain = malloc(room);
    int rc = packed && plain ? 0 : -ENOMEM;
    while (!rc && done < n && (done < trial->least || spent < trial->limit_ns)) {
        rc = try_piece(c, bytes, packed, plain, &pieces[done]);
        bytes += pieces[done].bytes;
        spent += pieces[done].pack_ns;
        done++;
    }
    free(packed);
    free(plain);
    return rc ? rc : (int64_t)done;
}
