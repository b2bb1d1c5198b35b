/* pack_room.c - frees the space of unreferenced frames: each page as soon as no live frame touches
 * it, and all of it when a segment is empty. */
#include "dataplane/media/pack_room.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "dataplane/media/pack_index.h"

enum { ROOM_PAGE = 4096, ROOM_PAGES = 2 * PACK_BYTES_MAX / ROOM_PAGE };

static uint64_t min(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* punch - frees whole pages and returns their bytes; 0 if the file system cannot. */
static uint64_t punch(const struct pack_segment *s, uint64_t first, uint64_t end)
{
    uint64_t n = (end - first) * ROOM_PAGE;
    if (!n || fallocate(s->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                        (off_t)(first * ROOM_PAGE), (off_t)n))
        return 0;
    return n;
}

/* pack_room_free_orphan - frees bytes of a segment that no File's frame uses; returns how much
 * of the reservation is released. */
uint64_t pack_room_free_orphan(struct pack_segment *s, uint64_t offset, uint64_t bytes)
{
    uint64_t end = offset + bytes, from = offset / ROOM_PAGE, freed = 0;
    uint64_t page = from;
    s->stuck = false;
    if (!s->dead)
        s->dead = calloc(ROOM_PAGES, sizeof(*s->dead));
    if (!s->dead || end > (uint64_t)ROOM_PAGES * ROOM_PAGE)
        return 0;
    for (uint64_t at = offset; at < end; page++) {
        uint64_t next = min(end, (page + 1) * ROOM_PAGE);
        s->dead[page] = (uint16_t)(s->dead[page] + (next - at));
        at = next;
        if (s->dead[page] >= ROOM_PAGE)
            continue;
        freed += punch(s, from, page);
        from = page + 1;
    }
    freed += punch(s, from, page);
    s->room -= min(s->room, freed);
    return freed;
}

/* pack_room_empty - drops all contents of a segment; returns the room that it used. */
uint64_t pack_room_empty(struct pack_segment *s)
{
    uint64_t freed = s->room;
    s->held = 0;
    s->dropped = true;
    if (ftruncate(s->fd, 0))
        return 0;
    s->room = s->bytes = 0;
    if (s->dead)
        memset(s->dead, 0, ROOM_PAGES * sizeof(*s->dead));
    return freed;
}
