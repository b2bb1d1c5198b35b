/* cause.c - counts the opens below a root that the origin answers, by their cause.
 *
 * Only successful opens of regular files count, so this is called after the open. If the open was
 * not looked up, its path is routed once more: such opens are rare, and those that fail or are of
 * directories cost nothing. */
#include <errno.h>
#include <sys/stat.h>

#include "shim/names/mark.h"
#include "shim/base/object.h"
#include "shim/base/process.h"
#include "shim/serving/large_reads.h"
#include "shim/serving/redirects.h"

/* refused_link - returns the cause of an open whose path passes a link that is not followed;
 * CAUSE_NONE: it passes none. */
static int refused_link(const struct root *root, const struct route *r)
{
    for (size_t n = r->rel_bytes; n > 0; n--) {
        if (n < r->rel_bytes && r->rel[n] != '/')
            continue;
        int64_t found = index_find(r->ix, r->rel, n);
        if (found < 0)
            continue;
        const struct entry *e = index_entry(r->ix, (uint32_t)found);
        if (S_ISLNK(index_attr(r->ix, e)->mode) && e->target == NONE32)
            return root->inside ? COUNTER_origin_inside : COUNTER_origin_link;
    }
    return CAUSE_NONE;
}

/* unlisted - returns why a file below a root is not in its index. */
static int unlisted(const struct route *r, int fd)
{
    if (object_birth(fd, NULL, r->ix->scanned_ns) != BIRTH_BEFORE)
        return COUNTER_origin_new;
    return COUNTER_origin_unlisted;
}

/* of_route - returns the cause by the target of the path; `served`: opens of this process are
 * looked up. */
static int of_route(const struct segments *seg, const struct route *r, enum where where,
                    bool served, int fd)
{
    const struct root *root = &seg->catalog->roots[r->root];
    if (where != ROUTE_FOUND && root->chosen)
        return CAUSE_NONE; /* a list of some files of a directory means no others */
    if (!served)
        return COUNTER_origin_program;
    if (where == ROUTE_OUTSIDE)
        return (int)r->leads_out;
    int link = refused_link(root, r);
    if (link != CAUSE_NONE)
        return link;
    if (where == ROUTE_UNKNOWN)
        return unlisted(r, fd);
    const struct entry *e = route_entry(r);
    if (S_ISLNK(index_attr(r->ix, e)->mode))
        e = index_entry(r->ix, e->target);
    if (mark_seen(seg, r->root, r->ix, e))
        return COUNTER_origin_written;
    bool names = root->unstable && index_attr(r->ix, e)->nlink > 1;
    return names ? COUNTER_origin_names : COUNTER_origin_how;
}

/* seek - returns the cause of an open that was not looked up. */
static int seek(const struct redirect *s, int dirfd, const char *path, int fd)
{
    const struct segments *seg = s->seg;
    if (seg->changes && !attach_for_marking()) /* which assigns the process its slot */
        return CAUSE_NONE;
    ROUTE(r);
    enum where where = route_at(seg, dirfd, path, &r);
    if (!route_is_below(&r, where))
        return CAUSE_NONE;
    if (seg->changes)
        return seg->catalog->roots[r.root].chosen ? CAUSE_NONE : COUNTER_origin_early;
    return of_route(seg, &r, where, attach_for_serving() != NULL, fd);
}

/* redirect_count - counts an open that the origin has answered: `fd` is its result. */
void redirect_count(struct redirect *s, int dirfd, const char *path, int fd)
{
    struct stat st;
    int kept = errno;
    bool regular = object_of(fd, &st) && S_ISREG(st.st_mode);
    bool sought = s->cause == CAUSE_SOUGHT;
    if (sought)
        s->cause = regular ? seek(s, dirfd, path, fd) : CAUSE_NONE;
    errno = kept;
    if (s->cause == CAUSE_NONE)
        count(COUNTER_opens_outside, 1);
    if (!regular || s->cause == CAUSE_NONE)
        return;
    uint64_t bytes = sought ? (uint64_t)st.st_size : s->size;
    count(COUNTER_opens_origin, 1);
    count(COUNTER_bytes_origin, bytes);
    count((enum counter)s->cause, 1);
    if (s->cause == COUNTER_origin_large && s->large) {
        count(COUNTER_origin_blocks, 1);
        count(COUNTER_bytes_blocks, bytes);
        large_expect(fd);
    }
}
