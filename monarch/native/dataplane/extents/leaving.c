/* leaving.c - Replicas that were evicted, from Tiers and the Pool: their room counts until no program has
 * them open.
 *
 * The kernel proves that by granting a write lease (fcntl(2), F_SETLEASE). A file system without leases
 * proves nothing: there the room is free with the name.
 */
#include "dataplane/extents/leaving.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include "dataplane/base/clock.h"
#include "dataplane/extents/job.h"
#include "dataplane/extents/table.h"

enum { HELD_MAX = 1024 }; /* Replicas that are in use: a descriptor each */

static const uint64_t HELD_NS = SECOND_NS / 10; /* how often one is looked at */

enum proof { UNUSED, IN_USE, UNPROVEN };

/* leaving_new - nothing is leaving; leaving_free() is due even after a failure. */
int leaving_new(struct leaving *l, struct job *job, struct table *table)
{
    l->job = job;
    l->table = table;
    return ring_init(&l->held, sizeof(struct left), HELD_MAX);
}

/* leaving_free - closes the files; no thread uses it any more. */
void leaving_free(struct leaving *l)
{
    struct left one;
    while (l->held.items && ring_pop(&l->held, &one))
        close(one.fd);
    ring_free(&l->held);
}

/* leaving_is_full - no Replica may leave that is in use. */
bool leaving_is_full(const struct leaving *l)
{
    return l->held.count == l->held.capacity;
}

/* prove - whether another descriptor or mapping of a file exists. An open of a leased file
 * sends its holder a signal, which must be one that is ignored. */
static enum proof prove(int fd)
{
    if (fcntl(fd, F_SETSIG, SIGURG))
        return UNPROVEN;
    if (fcntl(fd, F_SETLEASE, F_WRLCK))
        return errno == EAGAIN ? IN_USE : UNPROVEN;
    fcntl(fd, F_SETLEASE, F_UNLCK);
    return UNUSED;
}

/* leaving_in_use - a program has the open file, too. */
bool leaving_in_use(int fd)
{
    return prove(fd) == IN_USE;
}

/* end - frees the room of a Replica; false: it is in use. */
static bool end(struct leaving *l, const struct left *one)
{
    enum proof proof = prove(one->fd);
    if (proof == IN_USE)
        return false;
    if (proof ==
        UNUSED) /* before close(): the inode may be that of another file then */
        job_forget_inode(l->job, one->tier, one->ino);
    else
        job_keep_inode(l->job, one->tier, one->ino);
    close(one->fd);
    table_give_room(l->table, one->tier, one->room);
    return true;
}

/* leaving_add - takes over the open file of a Replica that has lost its name. */
void leaving_add(struct leaving *l, const struct left *one)
{
    struct left held = *one;
    held.look_at_ns = clock_ns() + HELD_NS;
    if (!end(l, &held))
        ring_push(&l->held, &held);
}

/* leaving_poll - frees the space of evicted Replicas that no program has open. */
void leaving_poll(struct leaving *l)
{
    struct left one;
    uint64_t now = clock_ns();
    for (uint32_t n = l->held.count; n; n--) {
        ring_pop(&l->held, &one);
        bool due = one.look_at_ns <= now;
        one.look_at_ns = due ? now + HELD_NS : one.look_at_ns;
        if (!due || !end(l, &one))
            ring_push(&l->held, &one);
    }
}
