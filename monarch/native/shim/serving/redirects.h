/* redirects.h - the result of one open: a Replica, the origin, or the origin by another path. */
#ifndef MONARCH_REDIRECT_H
#define MONARCH_REDIRECT_H

#include <fcntl.h>
#include <stdio.h>

#include "shim/names/identity.h"
#include "shim/names/route.h"

enum { STAGED_BYTES = TIER_PATH_MAX + 1 + REPLICA_NAME_BYTES + 1 };

enum {
    CAUSE_NONE = COUNTER_COUNT, /* it is not an open of a root's file, or is served */
    CAUSE_SOUGHT,               /* it may be one: determined when it is open */
};

struct redirect {
    const struct segments *seg;
    const char *path; /* open this instead of the program's path */
    int flags;        /* with these flags */
    int named;        /* and the program's path with these */
    bool final;       /* and return its result, whatever it is */
    bool writes;      /* then check by the descriptor what was opened */
    bool cuts;        /* and then truncate it */
    int held;         /* the origin's file behind a Replica, else negative */
    bool waited;
    bool streamed; /* by fopen() or freopen(): its reads are not seen */
    bool whole;    /* has waited until the large File was staged whole */
    bool sampled;  /* then check whether an outside path led to a File */
    int asked_at;  /* and by what path: the program's own */
    const char *asked;
    uint64_t parent; /* the directory in it, for splits.c; 0: none */
    bool doubted;    /* or to a Replica whose File was written since */
    bool counted;    /* among those that wait for the File, until it is opened */
    bool kept;       /* the same, until redirect_release() */
    bool large;      /* its reads may be served, though the origin is opened */
    uint32_t tier;
    uint32_t source; /* enum source */
    uint32_t word;   /* the state word that showed the Replica */
    uint32_t moves;  /* how often the Replica has left before it was opened */
    uint32_t root;
    uint64_t file; /* number in the job */
    uint64_t size;
    int kept_errno;
    int cause; /* why the origin answers: a counter, or CAUSE_... */
    char staged[STAGED_BYTES];
};

bool redirect_write(struct redirect *s, int dirfd, const char *path,
                    bool splits_allowed);
bool redirect_open(struct redirect *s, int dirfd, const char *path, int flags);
bool redirect_whole(struct redirect *s, int dirfd, const char *path, int flags);
bool redirect_stream(struct redirect *s, const char *path, const char *mode);
int redirect_stream_flags(const char *mode);
bool redirect_reopened(struct redirect *s, const char *path, const char *mode, int fd);
bool redirect_eases(struct redirect *s);
bool redirect_opened(struct redirect *s, bool opened);
bool redirect_moved(struct redirect *s);
void redirect_keep(struct redirect *s);
void redirect_release(struct redirect *s);
bool redirect_diverts(struct redirect *s, int dirfd, const char *path, int fd);
bool redirect_cut(struct redirect *s, int dirfd, const char *path, int *fd);
void redirect_handle(struct redirect *s, int flags);
bool redirect_found(struct redirect *s, int fd);
void redirect_written(struct redirect *s, int fd);
void redirect_count(struct redirect *s, int dirfd, const char *path, int fd);
bool redirect_entry(struct redirect *s, const struct route *r, const struct entry *e);

/* redirect_may_lack - the Catalog may show that the name does not exist. Most opens are of paths
 * outside the Namespace, which are not routed once more for this check. */
static inline bool redirect_may_lack(const struct redirect *s)
{
    return s->cause == CAUSE_SOUGHT || (s->named & O_DIRECTORY);
}

/* redirect_begin - initialises the state of an open with these flags. */
static inline void redirect_begin(struct redirect *s, int flags)
{
    s->writes = s->final = s->sampled = s->doubted = s->cuts = false;
    s->counted = s->kept = s->large = s->streamed = s->whole = false;
    s->held = IDENTITY_OTHER;
    s->parent = 0;
    s->cause = CAUSE_NONE;
    s->flags = s->named = flags;
}

#endif
