/* open_replicas.h - descriptors of Replicas that peers ask for, kept open for the next one. */
#ifndef MONARCH_KEPT_H
#define MONARCH_KEPT_H

#include "dataplane/engine.h"

enum { KEPT_MAX = 256 };

struct kept {
    uint32_t file;
    uint32_t users; /* replies that are being sent from it */
    uint32_t word;  /* the state under which it was opened */
    uint64_t stamp; /* tells the Replica from one that takes its place */
    int fd;         /* -1: none */
    bool single;    /* its place was taken: closed after its one use */
    bool spans;     /* several Extents, which are asked for one after the other */
};

void kept_init(struct kept all[KEPT_MAX]);
int kept_take(struct engine *e, struct kept all[KEPT_MAX], uint32_t file,
              struct kept *single, struct kept **out);
void kept_return(struct kept *k);
void kept_sweep(struct engine *e, struct kept all[KEPT_MAX]);
void kept_free(struct kept all[KEPT_MAX]);

#endif
