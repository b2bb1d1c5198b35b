/* mapping.c - maps the Replica of a large File instead of the origin's file.
 *
 * A mapping that reaches the end of the File waits until all of it is present. One that ends before
 * it shows the Replica only if the rest is present, too: mremap() may extend it over the rest,
 * which would be holes. A mapping stays unchanged when the Replica leaves, as an open file does.
 */
#include "shim/serving/mapping.h"

#include <pthread.h>
#include <sys/mman.h>

#include "shim/base/process.h"
#include "shim/base/sys.h"
#include "shim/names/wait.h"
#include "shim/serving/large_replica.h"

/* is_plain - the mapping is one of a file, which cannot be written through it. */
static bool is_plain(const struct mapping *m)
{
    int type = m->flags & MAP_TYPE;
    bool shared = type == MAP_SHARED || type == MAP_SHARED_VALIDATE;
    return !(m->flags & MAP_ANONYMOUS) && m->n && m->offset >= 0 &&
           (type == MAP_PRIVATE || (shared && !(m->prot & PROT_WRITE)));
}

/* await_whole - waits until the File is staged whole, as an open may. */
static void await_whole(const struct large *l)
{
    enum counter why;
    wait_enter(l->seg, l->file);
    wait_ready(l->seg, l->file, &why);
    wait_leave(l->seg, l->file);
}

/* await - waits for the Pages of a range that ends with the File. */
static void await(const struct large *l, const struct page_range *range)
{
    int before;
    if (l->size > l->seg->catalog->cold_wait_max_whole_bytes || process_borrowed())
        return;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE,
                           &before); /* mmap() is no cancellation point */
    if (range->first)
        wait_pages(l->seg, l->file, *range);
    else
        await_whole(l);
    pthread_setcancelstate(before, NULL);
}

/* find - finds the Replica with all Pages that the mapping may show, now or after mremap(). */
static bool find(const struct large *l, const struct mapping *m, struct replica *r)
{
    uint32_t first = (uint32_t)((uint64_t)m->offset / PAGE_BYTES);
    struct page_range range = {l->large, first, pages_of(l->size) - first};
    if (replica_there(l, &range, r))
        return true;
    if (l->size - (uint64_t)m->offset > m->n)
        return false;
    await(l, &range);
    return replica_there(l, &range, r);
}

/* mapping_make - maps a file with the arguments for another one; returns the address, or -errno. */
long mapping_make(const struct mapping *m, int fd)
{
    const struct sys_values v = {(long)m->at, (long)m->n, m->prot,
                                 m->flags,    fd,         (long)m->offset};
    return sys_call_all(SYS_mmap, v);
}

/* map - maps the file of a Tier; NULL: it cannot be mapped. */
static void *map(const struct large *l, const struct mapping *m, uint8_t place)
{
    int fd = replica_open(l, place, 0);
    if (fd < 0)
        return NULL;
    long got = mapping_make(m, fd);
    sys_close(fd);
    return mapping_failed(got) ? NULL : (void *)got;
}

/* note_origin - stores that the origin's file is mapped: bytes read of it for a Tier stay in the
 * page cache, and if it reaches the end, later opens wait for all of the Replica. */
static void note_origin(const struct large *l, const struct mapping *m)
{
    struct flags *f = l->seg->flags;
    uint64_t place = f->whole + l->file;
    bool to_end = l->size - (uint64_t)m->offset <= m->n;
    count(COUNTER_maps_origin, 1);
    if (to_end && f->whole && place >= l->file && place < f->seg.length)
        atomic_store_explicit((_Atomic uint8_t *)f + place, WHOLE_MAPPED,
                              memory_order_relaxed);
}

/* serve - maps the Replica; the origin's mapping replaces one that became wrong meanwhile. */
static bool serve(const struct mapping *m, const struct large *l, void **got)
{
    struct replica r;
    if (!find(l, m, &r) || r.place & PLACE_FILE)
        return false;
    *got = map(l, m, r.place);
    if (!*got)
        return false;
    if (replica_still(l, &r))
        return true;
    if (!(m->flags & MAP_FIXED) || m->flags & MAP_FIXED_NOREPLACE)
        sys_call(SYS_munmap, (long)*got, (long)m->n, 0, 0, 0);
    return false;
}

/* mapping_serve - maps a large File from its Replica; true: `got` is the mapping. */
bool mapping_serve(const struct mapping *m, void **got)
{
    struct large l;
    if (!is_plain(m) || !large_find(m->fd, &l) || (uint64_t)m->offset >= l.size)
        return false;
    large_mapped(m->fd);
    bool served = serve(m, &l, got);
    if (served)
        count(COUNTER_maps_local, 1);
    else
        note_origin(&l, m);
    return served;
}
