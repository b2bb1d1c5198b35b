/* order_api.h - the order of one Transfer, as Python passes it. */
#ifndef MONARCH_ORDER_API_H
#define MONARCH_ORDER_API_H

#include <stdint.h>

/* Bits of an order. */
enum monarch_kind {
    MONARCH_DEMAND = 0,
    MONARCH_BACKGROUND = 1, /* yields to others */
    MONARCH_ADOPT = 2,      /* verify an existing Replica instead of copying */
    MONARCH_ADOPT_BACKGROUND = 3,
    MONARCH_ASKED = 4,    /* requested by a program or a peer, not by fill */
    MONARCH_REPORT = 8,   /* Python collects its success too */
    MONARCH_HINT = 16,    /* requested by a hint: it may go into the Pool */
    MONARCH_PARTLY = 32,  /* begun because Pages were requested */
    MONARCH_AWAITED = 64, /* a program waits for it, though it is large */
    MONARCH_LOCAL = 128,  /* between a packed Tier and the Pool */
};

struct monarch_order { /* one Transfer */
    uint32_t file;
    uint16_t tier;
    uint8_t kind;  /* enum monarch_kind */
    uint8_t tried; /* for Pages: number of failed sources */
    uint32_t peer; /* NO_PEER: the origin, or the Tier itself */
    uint32_t word; /* the state word with which it began: its generation */
    uint32_t first_page, page_count; /* of a large File; count 0: all missing */
};

#define NO_PEER 0xffffffffu

/* The step in which a Transfer ended. */
enum monarch_step {
    MONARCH_STEP_ORDER = 0, /* checking the order itself */
    MONARCH_STEP_OPEN,      /* opening the origin, or the Replica to adopt */
    MONARCH_STEP_STAT,      /* comparing the origin with the Catalog, before or after */
    MONARCH_STEP_READ,
    MONARCH_STEP_CREATE,  /* creating the temporary file in the Tier */
    MONARCH_STEP_WRITE,   /* writing it */
    MONARCH_STEP_VERIFY,  /* comparing the copy with what was read */
    MONARCH_STEP_PUBLISH, /* inode table, name, state */
};

#endif
