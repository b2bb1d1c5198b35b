/* throttle.h - a token bucket over bytes, kept as the time at which it is not in debt. */
#ifndef MONARCH_THROTTLE_H
#define MONARCH_THROTTLE_H

#include "dataplane/clock.h"

#define THROTTLE_BURST_NS (SECOND_NS / 10) /* what may be saved up while nothing runs */

struct throttle {
    uint64_t bytes_per_s; /* 0 = unlimited */
    uint64_t open_at_ns;  /* nothing may start before */
};

/* throttle_charge - books bytes that are about to be read at time `now`. */
static inline void throttle_charge(struct throttle *t, uint64_t bytes, uint64_t now)
{
    if (!t->bytes_per_s)
        return;
    uint64_t saved = now > THROTTLE_BURST_NS ? now - THROTTLE_BURST_NS : 0;
    if (t->open_at_ns < saved)
        t->open_at_ns = saved;
    double seconds = (double)bytes / (double)t->bytes_per_s;
    t->open_at_ns += (uint64_t)(seconds * (double)SECOND_NS);
}

#endif
