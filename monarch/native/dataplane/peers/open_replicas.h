/* open_replicas.h - descriptors of Replicas that peers request, kept open for reuse. */
#ifndef MONARCH_OPEN_REPLICAS_H
#define MONARCH_OPEN_REPLICAS_H

#include "dataplane/demand/demand.h"

enum { OPEN_REPLICAS_MAX = 256 };

struct open_replica {
    uint32_t file;
    uint32_t users; /* replies that are being sent from it */
    uint32_t word;  /* the state under which it was opened */
    uint64_t stamp; /* differs between a Replica and a later one of the same File */
    int fd;         /* -1: none */
    bool single;    /* its slot was in use: closed after one use */
    bool spans;     /* several Extents, which are requested one after the other */
};

void open_replicas_init(struct open_replica all[OPEN_REPLICAS_MAX]);
int open_replicas_get(struct job *job, struct open_replica all[OPEN_REPLICAS_MAX],
                      uint32_t file, struct open_replica *single,
                      struct open_replica **out);
void open_replicas_put(struct open_replica *o);
void open_replicas_sweep(struct job *job, struct open_replica all[OPEN_REPLICAS_MAX]);
void open_replicas_close(struct open_replica all[OPEN_REPLICAS_MAX]);

#endif
