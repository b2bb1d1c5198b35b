/* engine_api.c - the functions of an engine for Python: each calls one of a part, where it is
 * described. */
#include "dataplane/sources/siblings.h"
#include "dataplane/api/engine.h"

#include "dataplane/demand/hints.h"
#include "dataplane/extents/packs.h"
#include "dataplane/extents/partial.h"
#include "dataplane/peers/peer_client.h"
#include "dataplane/peers/peer_server.h"

/* ---- Files ------------------------------------------------------------------------- */

/* monarch_engine_requests - see reports_take_files(). */
uint32_t monarch_engine_requests(struct engine *e, uint32_t *files, uint32_t max)
{
    return reports_take_files(&e->transfers, files, max);
}

/* monarch_engine_submit - see orders_submit(). */
uint32_t monarch_engine_submit(struct engine *e, const struct monarch_order *orders,
                               uint32_t n)
{
    return orders_submit(&e->demand, orders, n);
}

/* monarch_engine_completions - see reports_take_completions(). */
uint32_t monarch_engine_completions(struct engine *e, struct monarch_completion *out,
                                    uint32_t max)
{
    return reports_take_completions(&e->transfers, out, max);
}

/* monarch_engine_demand - see demand_begin(). */
void monarch_engine_demand(struct engine *e, uint32_t file, uint32_t kind)
{
    demand_begin(&e->demand, file, kind);
}

/* monarch_engine_add_sibling - see siblings_add(). */
int monarch_engine_add_sibling(struct engine *e, const char *run)
{
    return siblings_add(e->transfers.siblings, run);
}

/* ---- fill and hints ----------------------------------------------------------------- */

/* monarch_engine_fill - see fill_set(). */
void monarch_engine_fill(struct engine *e, const struct monarch_fill *fill)
{
    fill_set(&e->demand, fill);
}

/* monarch_engine_fill_pause - see fill_set_paused(). */
void monarch_engine_fill_pause(struct engine *e, int paused)
{
    fill_set_paused(&e->demand, paused);
}

/* monarch_engine_fill_left - see fill_count_left(). */
void monarch_engine_fill_left(struct engine *e, uint64_t out[2])
{
    fill_count_left(&e->demand, out);
}

/* monarch_engine_hint - see hints_set(). */
int monarch_engine_hint(struct engine *e, uint64_t program, const uint32_t *files,
                        uint64_t n)
{
    return hints_set(&e->demand, program, files, n);
}

/* monarch_engine_hints - see hints_report(). */
void monarch_engine_hints(struct engine *e, struct monarch_hint_tally *out)
{
    hints_report(&e->demand, out);
}

/* ---- the origin --------------------------------------------------------------------- */

/* monarch_engine_set_readers - see readers_set(). */
void monarch_engine_set_readers(struct engine *e, uint32_t n)
{
    readers_set(&e->transfers, n);
}

/* monarch_engine_readers - see readers_report(). */
void monarch_engine_readers(struct engine *e, struct monarch_readers *out)
{
    readers_report(&e->transfers, out);
}

/* monarch_engine_demands - see pace_take_demands(). */
uint32_t monarch_engine_demands(struct engine *e, uint64_t *pairs, uint32_t max)
{
    return pace_take_demands(&e->transfers, pairs, max);
}

/* monarch_engine_slowest - see pace_report_slowest(). */
uint32_t monarch_engine_slowest(struct engine *e, uint64_t *rows)
{
    return pace_report_slowest(&e->transfers, rows);
}

/* monarch_engine_pace - see pace_report(). */
void monarch_engine_pace(struct engine *e, uint64_t out[PACE_COUNT])
{
    pace_report(&e->transfers, out);
}

/* monarch_engine_health - see health_report(). */
void monarch_engine_health(struct engine *e, struct monarch_health *out)
{
    health_report(&e->transfers, out);
}

/* ---- drops, and files of earlier jobs ----------------------------------------------- */

/* monarch_engine_forget - see job_forget_inode(). */
void monarch_engine_forget(struct engine *e, uint32_t tier, uint64_t ino)
{
    job_forget_inode(&e->job, tier, ino);
}

/* monarch_engine_keep - see job_keep_inode(). */
void monarch_engine_keep(struct engine *e, uint32_t tier, uint64_t ino)
{
    job_keep_inode(&e->job, tier, ino);
}

/* monarch_engine_drop_partial - see partials_drop(). */
uint64_t monarch_engine_drop_partial(struct engine *e, uint32_t tier, uint64_t bytes,
                                     uint32_t reason)
{
    return partials_drop(e->partials, tier, bytes, reason);
}

/* monarch_engine_drop_packed - see packs_drop_newest(). */
uint64_t monarch_engine_drop_packed(struct engine *e, uint32_t tier, uint64_t bytes,
                                    uint32_t reason)
{
    return e->packs ? packs_drop_newest(e->packs, tier, bytes, reason) : 0;
}

/* monarch_engine_adopt_pack - see pack_adoption_take(). */
int64_t monarch_engine_adopt_pack(struct engine *e, const struct monarch_pack *pack)
{
    return pack_adoption_take(e->partials, pack);
}

/* ---- peers -------------------------------------------------------------------------- */

/* monarch_server_new - see server_new(). */
int monarch_server_new(struct engine *e, const struct monarch_server_options *options,
                       struct server **out)
{
    return server_new(&e->demand, options, out);
}

/* monarch_receiver_new - see receiver_new(). */
int monarch_receiver_new(struct engine *e,
                         const struct monarch_receiver_options *options,
                         struct receiver **out)
{
    return receiver_new(&e->demand, options, out);
}
