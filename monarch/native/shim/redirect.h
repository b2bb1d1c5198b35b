/* redirect.h - what one open gets: a Replica, the origin, or the origin by another path. */
#ifndef MONARCH_REDIRECT_H
#define MONARCH_REDIRECT_H

#include <stdio.h>

#include "route.h"

enum { STAGED_BYTES = TIER_PATH_MAX + 1 + REPLICA_NAME_BYTES + 1 };

struct serving {
    const struct board *b;
    const char *path; /* open this instead of what the program named */
    int flags;        /* in this way */
    int named;        /* and what the program named in this one */
    bool final;       /* and give its result, whatever it is */
    bool writes;      /* then find out by the descriptor what was opened */
    bool cuts;        /* and truncate it then */
    int held;         /* the origin's file behind a Replica, else negative */
    bool waited;
    bool sampled; /* then see whether an outside path has led to a File */
    bool doubted; /* or to a Replica whose File was written to since */
    uint32_t tier;
    uint32_t source; /* enum source */
    uint64_t file;   /* number in the job */
    uint64_t size;
    int kept_errno;
    char staged[STAGED_BYTES];
};

void serve_begin(struct serving *s, int flags);
bool serve_write(struct serving *s, int dirfd, const char *path, bool splits_allowed);
bool serve_open(struct serving *s, int dirfd, const char *path, int flags);
bool serve_whole(struct serving *s, int dirfd, const char *path, int flags);
bool serve_stream(struct serving *s, const char *path, const char *mode);
bool serve_reopened(struct serving *s, const char *path, const char *mode, int fd);
bool serve_eases(struct serving *s);
bool serve_opened(struct serving *s, bool opened);
bool serve_diverts(struct serving *s, int dirfd, const char *path, int fd);
bool serve_cut(struct serving *s, int fd);
void serve_handle(struct serving *s, int flags);
bool serve_found(struct serving *s, int fd);
void serve_written(struct serving *s, int fd);
bool serve_entry(struct serving *s, const struct route *r, const struct entry *e);

#endif
