/* engine.h - the parts of an engine; no other folder uses it. */
#ifndef MONARCH_ENGINE_H
#define MONARCH_ENGINE_H

#include "dataplane/api/api.h"
#include "dataplane/demand/demand.h"
#include "dataplane/extents/job.h"
#include "dataplane/transfers/transfers.h"

struct compaction;

struct engine {
    struct job job;
    struct table *table; /* NULL: Python orders every Transfer */
    struct packs *packs; /* NULL: no Tier is packed */
    struct partials *partials;
    struct pool *pool;         /* or NULL */
    struct eviction *eviction; /* NULL: no Tier evicts */
    struct transfers transfers;
    struct demand demand;
    struct compaction *compaction; /* of pack files; NULL: no Tier is packed */
};

#endif
