/* compaction.h - the thread that frees the space of dead frames in packed Tiers. */
#ifndef MONARCH_COMPACTION_H
#define MONARCH_COMPACTION_H

struct compaction;
struct transfers;

int compaction_start(struct transfers *ts, struct compaction **out);
void compaction_wake(struct compaction *c);
void compaction_free(struct compaction *c);

#endif
