/* eviction.c - selects and evicts the least recently used Replicas, or segments of packed Tiers,
 * for Files that programs request.
 *
 * A scan of all Files (lru.c) finds the oldest ones, once for many evictions. A Replica stays if it
 * was used since then, or if a program waits for it or has it open. It is evicted as from the Pool:
 * its state word is changed first, and a reader of the old word reads it again after its open.
 *
 * A file without a name uses memory as long as a program has it open. So the file must be proved to
 * be unused before a Replica is evicted, and before its room is freed (leaving.c).
 */
#include "dataplane/extents/eviction.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "dataplane/base/ring.h"
#include "dataplane/base/syscalls.h"
#include "dataplane/extents/hint_claims.h"
#include "dataplane/extents/job.h"
#include "dataplane/extents/leaving.h"
#include "dataplane/base/lru.h"
#include "dataplane/extents/packs.h"
#include "dataplane/extents/replica_state.h"
#include "dataplane/extents/table.h"
#include "shared/catalog.h"
#include "shared/recency.h"

enum {
    OLDEST_MIN = 256, /* candidates of a scan; Files / OLDEST_PARTS if that is more */
    OLDEST_PARTS = 64,
    OLDEST_MAX = 1 << 16,
    LOOKED_AT_MAX = 4096, /* candidates for one File */
    BUSY_MAX = 1024,
    TRIES = 4, /* other Files may take the room made for one */
};

static const uint64_t IN_VAIN_NS = SECOND_NS / 20; /* pause after a scan in vain */

struct candidates { /* of one Tier, the oldest first */
    struct monarch_lru_file *files;
    uint32_t count, next;
    uint32_t tick;  /* of the scan */
    uint64_t at_ns; /* time of the scan */
    bool fruitless; /* none of them was evicted */
};

struct eviction {
    struct job *job;
    struct table *table;
    struct packs *packs;         /* NULL: no Tier is packed */
    const struct claims *claims; /* NULL: no hints */
    pthread_mutex_t lock;        /* guards the rest; before those of packs and table */
    uint32_t most;               /* candidates */
    struct candidates oldest[TIERS_MAX];
    struct segment_use *segments; /* SEGMENTS_MAX; NULL: no Tier is packed */
    struct leaving leaving;
    struct ring refused;
};

/* eviction_new - creates the state for an engine with a table, and Files whose uses are noted. The
 * caller calls eviction_free() even after a failure. */
int eviction_new(struct job *job, struct table *table, struct packs *packs,
                 const struct claims *claims, struct eviction **out)
{
    struct eviction *v = calloc(1, sizeof(*v));
    if (!v)
        return -ENOMEM;
    *out = v;
    v->job = job;
    v->table = table;
    v->packs = packs;
    v->claims = claims;
    pthread_mutex_init(&v->lock, NULL);
    uint64_t most = table->options.files / OLDEST_PARTS;
    most = most < OLDEST_MIN ? OLDEST_MIN : most;
    v->most = (uint32_t)(most < OLDEST_MAX ? most : OLDEST_MAX);
    if (packs && !(v->segments = calloc(SEGMENTS_MAX, sizeof(*v->segments))))
        return -ENOMEM;
    if (leaving_new(&v->leaving, job, table) ||
        ring_init(&v->refused, sizeof(struct refused), BUSY_MAX))
        return -ENOMEM;
    return 0;
}

/* eviction_free - closes all files and frees the state; no thread uses it any more. */
void eviction_free(struct eviction *v)
{
    if (!v)
        return;
    leaving_free(&v->leaving);
    for (uint32_t i = 0; i < TIERS_MAX; i++)
        free(v->oldest[i].files);
    ring_free(&v->refused);
    free(v->segments);
    free(v);
}

/* ---- one Replica; the callers hold the lock ------------------------------------------ */

/* settle - ends the eviction of a Replica: it is READY as before, or absent. */
static void settle(struct eviction *v, uint32_t file, uint32_t leaving, uint32_t fixed)
{
    _Atomic uint32_t *words = replica_word(v->job->catalog, 0);
    uint32_t seen = replica_load(v->job->catalog, file);
    while (((seen ^ leaving) & ~STATE_CONFIRMED) == 0)
        if (replica_state_change(words, file, &seen, (seen & ~STATE_FIXED) | fixed,
                                 true))
            return;
}

/* leave - evicts an open Replica whose state is `seen`, if no program has it open. Programs that
 * request a small File meanwhile wait: no Transfer may begin while its old name exists; large Files
 * are read from the origin. */
static bool leave(struct eviction *v, uint32_t file, uint32_t seen,
                  const struct left *h)
{
    char name[REPLICA_NAME_BYTES + 1];
    bool large = table_in_part(v->table, file);
    uint32_t leaving = STATE_NEXT(seen, large ? REPLICA_EVICTING : REPLICA_STAGING,
                                  h->tier, REASON_NONE);
    if (!replica_state_change(replica_word(v->job->catalog, 0), file, &seen, leaving,
                              false))
        return false;
    if (leaving_in_use(h->fd)) {
        settle(v, file, leaving, seen & STATE_FIXED);
        return false;
    }
    catalog_replica_name(v->job->catalog, file, name);
    unlinkat(v->job->tiers[h->tier], name, 0);
    settle(v, file, leaving, STATE_WORD(REPLICA_ABSENT, 0, REASON_NONE));
    table_count_evicted(v->table, h->tier, 1, h->room);
    return true;
}

static bool is_hinted(const struct eviction *v, uint32_t file)
{
    return v->claims && claims_due(v->claims, file) > 0;
}

/* may_leave - a Replica was not used since it was found to be old, and no program waits for it. */
static bool may_leave(const struct eviction *v, const struct monarch_lru_file *one,
                      uint32_t tick)
{
    uint32_t used = atomic_load_explicit(recency_of(v->job->flags, one->file),
                                         memory_order_relaxed);
    return tick - used == one->age && !job_awaits(v->job, one->file) &&
           !is_hinted(v, one->file);
}

/* evict - evicts a Replica that was used longest ago; false: it stays. */
static bool evict(struct eviction *v, uint32_t tier, const struct monarch_lru_file *one)
{
    struct stat st;
    char name[REPLICA_NAME_BYTES + 1];
    uint32_t seen = replica_load(v->job->catalog, one->file);
    if (STATE_OF(seen) != REPLICA_READY || STATE_TIER(seen) != tier ||
        !may_leave(v, one, v->oldest[tier].tick))
        return false;
    catalog_replica_name(v->job->catalog, one->file, name);
    struct left h = {.tier = tier,
                     .room = footprint(v->table->options.sizes[one->file])};
    h.fd = file_openat(v->job->tiers[tier], name, O_RDONLY | O_NONBLOCK, 0);
    if (h.fd < 0)
        return false; /* the next open finds out why */
    if (fstat(h.fd, &st) || !leave(v, one->file, seen, &h)) {
        close(h.fd);
        return false;
    }
    h.ino = st.st_ino;
    leaving_add(&v->leaving, &h);
    return true;
}

/* ---- a Tier; the callers hold the lock ----------------------------------------------- */

/* find_oldest - scans all Files for candidates, unless a scan was in vain a moment ago. */
static bool find_oldest(struct eviction *v, uint32_t tier)
{
    struct candidates *c = &v->oldest[tier];
    uint32_t now = recency_tick(v->job->flags);
    if (!c->files)
        c->files = calloc(v->most, sizeof(*c->files));
    uint64_t now_ns = clock_ns();
    if (!c->files || (c->fruitless && now_ns - c->at_ns < IN_VAIN_NS))
        return false;
    const struct monarch_lru_view view = {
        .words = (const uint32_t *)replica_word(v->job->catalog, 0),
        .used = (const uint32_t *)recency_of(v->job->flags, 0),
        .files = v->job->catalog->file_count,
        .tier = tier,
        .now = now};
    *c = (struct candidates){
        .files = c->files, .tick = now, .at_ns = now_ns, .fruitless = true};
    c->count = monarch_lru_oldest(&view, c->files, v->most);
    return c->count > 0;
}

static const struct monarch_lru_file *next_of(struct eviction *v, uint32_t tier)
{
    struct candidates *c = &v->oldest[tier];
    if (c->next == c->count && !find_oldest(v, tier))
        return NULL;
    return &c->files[c->next++];
}

/* oldest_segment - returns the segment of a Tier whose Files have the highest mean age. The growing
 * segment has the newest: it is chosen only if no other holds frames. -1: no segment does. */
static int64_t oldest_segment(struct eviction *v, uint32_t tier, uint64_t *age)
{
    int64_t found = -1;
    packs_uses(v->packs, v->segments);
    for (uint32_t i = 0; i < SEGMENTS_MAX; i++) {
        const struct segment_use *use = &v->segments[i];
        if (!use->frames || use->tier != tier)
            continue;
        uint64_t mean = use->grows ? 0 : use->ages / use->frames + 1;
        if (found >= 0 && mean <= *age)
            continue;
        found = i;
        *age = mean;
    }
    return found;
}

/* drop_segment - empties the oldest segment, unless the Replica that is evicted next is older. */
static bool drop_segment(struct eviction *v, uint32_t tier,
                         const struct monarch_lru_file *next)
{
    uint64_t age = 0, files = 0;
    int64_t segment = v->segments && v->table->ratios[tier]
                          ? oldest_segment(v, tier, &age)
                          : -1;
    if (segment < 0 || (next && next->age + 1 > age))
        return false;
    uint64_t freed = packs_drop(v->packs, (uint32_t)segment, &files);
    table_count_evicted(v->table, tier, files, freed);
    return freed > 0;
}

/* make_room_in - evicts Replicas and segments from a Tier until `need` bytes are free. */
static bool make_room_in(struct eviction *v, uint32_t tier, uint64_t need)
{
    struct candidates *c = &v->oldest[tier];
    for (int n = 0; n < LOOKED_AT_MAX; n++) {
        if (table_has_free(v->table, tier, need))
            return true;
        if (leaving_is_full(&v->leaving))
            return false;
        const struct monarch_lru_file *next = next_of(v, tier);
        if (drop_segment(v, tier, next))
            c->next -= next != NULL;
        else if (!next)
            return false;
        else if (evict(v, tier, next))
            c->fruitless = false;
    }
    return table_has_free(v->table, tier, need);
}

/* advance_tick - advances the clock that orders uses. */
static void advance_tick(struct eviction *v)
{
    _Atomic uint32_t *tick = (_Atomic uint32_t *)&v->job->flags->tick;
    atomic_fetch_add_explicit(tick, 1, memory_order_relaxed);
}

/* make_room - makes room in the fastest Tier that can have room for a File. */
static bool make_room(struct eviction *v, uint32_t file)
{
    struct table *t = v->table;
    bool made = false;
    uint64_t need;
    pthread_mutex_lock(&v->lock);
    advance_tick(v);
    for (uint32_t i = 0; !made && i < t->options.tiers; i++)
        made = table_evicts_in(t, i, file, &need) && make_room_in(v, i, need);
    pthread_mutex_unlock(&v->lock);
    return made;
}

/* refuse - refuses a File for a while: all that could be evicted is in use. */
static void refuse(struct eviction *v, uint32_t file)
{
    pthread_mutex_lock(&v->lock);
    table_refuse_busy(v->table, &v->refused, file);
    pthread_mutex_unlock(&v->lock);
}

/* ---- for others ---------------------------------------------------------------------- */

/* eviction_begin - calls monarch_table_begin(), and evicts others if the File needs room; never
 * returns VERDICT_EVICT. */
int eviction_begin(struct eviction *v, struct table *t, uint32_t file, uint32_t kind,
                   struct monarch_order *out)
{
    int verdict = monarch_table_begin(t, file, kind, out);
    for (int n = 0; v && verdict == VERDICT_EVICT && n < TRIES; n++) {
        if (!make_room(v, file))
            break;
        verdict = monarch_table_begin(t, file, kind, out);
    }
    if (verdict != VERDICT_EVICT)
        return verdict;
    if (v && !(kind & MONARCH_HINT))
        refuse(v, file);
    return VERDICT_PASSED;
}

/* eviction_begin_partly - does the same with table_begin_partly(). */
int eviction_begin_partly(struct eviction *v, struct table *t, uint32_t file,
                          struct monarch_order *out)
{
    int verdict = table_begin_partly(t, file, out);
    if (verdict == VERDICT_EVICT && v && make_room(v, file))
        verdict = table_begin_partly(t, file, out);
    if (verdict == VERDICT_EVICT && v)
        refuse(v, file);
    return verdict == VERDICT_EVICT ? VERDICT_NOTHING : verdict;
}

/* eviction_resume_packing - evicts for a File that waits to be packed without space; false: no
 * such File. If nothing can be evicted, packing waits for the next beat. */
bool eviction_resume_packing(struct eviction *v)
{
    uint32_t file;
    if (!v->packs || !packs_blocked(v->packs, &file) ||
        !table_can_evict_for(v->table, file))
        return false;
    table_set_full(v->table, !make_room(v, file));
    packs_unblock(v->packs);
    return true;
}

/* eviction_beat - advances the clock of uses, frees the room of Replicas that programs have closed
 * since, and lets programs request Files again that had no room. */
void eviction_beat(struct eviction *v)
{
    table_set_full(v->table, false);
    pthread_mutex_lock(&v->lock);
    advance_tick(v);
    leaving_poll(&v->leaving);
    table_end_busy(v->table, &v->refused);
    pthread_mutex_unlock(&v->lock);
}
