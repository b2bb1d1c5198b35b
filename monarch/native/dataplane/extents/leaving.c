/* leaving.c - evicted Replicas of Tiers and the Pool: their room counts as used until no program
 * has them open.
 *
 * The kernel proves that by granting a write lease (fcntl(2), F_SETLEASE). A file system without
 * leases proves nothing: there the room is freed with the name.
 */
#include "dataplane/extents/leaving.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include "dataplane/base/clock.h"
#include "dataplane/extents/job.h"
#include "dataplane/extents/table.h"

enum { HELD_MAX = 1024 }; /* Replicas in use, with a descriptor each */

static const uint64_t HELD_NS = SECOND_NS / 10; /* how often each one is checked */

enum proof { UNUSED, IN_USE, UNPROVEN };

/* leaving_new - initializes an empty list; the caller calls leaving_free() even after a failure. */
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

/* leaving_is_full - no Replica in use can be evicted now. */
bool leaving_is_full(const struct leaving *l)
{
    return l->held.count == l->held.capacity;
}

/* prove - finds out whether a file has another descriptor or mapping. An open of a leased file
 * sends its holder a signal, which must be an ignored one. */
static enum proof prove(int fd)
{
    if (fcntl(fd, F_SETSIG, SIGURG))
        return UNPROVEN;
    if (fcntl(fd, F_SETLEASE, F_WRLCK))
        return errno == EAGAIN ? IN_USE : UNPROVEN;
    fcntl(fd, F_SETLEASE, F_UNLCK);
    return UNUSED;
}

/* leaving_in_use - a program also has the file open. */
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
    if (proof == UNUSED) /* before close(): another file may get the inode then */
        job_forget_inode(l->job, one->tier, one->ino);
    else
        job_keep_inode(l->job, one->tier, one->ino);
    close(one->fd);
    table_give_room(l->table, one->tier, one->room);
    return true;
}

/* leaving_add - takes over the open file of a Replica whose name was removed. */
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
