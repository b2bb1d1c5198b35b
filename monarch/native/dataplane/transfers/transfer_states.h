/* transfer_states.h - the states of every Transfer, whatever its Source and its target. */
#ifndef MONARCH_TRANSFER_STATES_H
#define MONARCH_TRANSFER_STATES_H

/* A Transfer repeats BRING and WRITE for each piece. It may yield to others after a piece. */
enum transfer_state {
    TRANSFER_CHECK,  /* check the order against its File, and find the target */
    TRANSFER_OPEN,   /* open the Source and the target */
    TRANSFER_BRING,  /* read the next piece from the Source */
    TRANSFER_WRITE,  /* write it, with its checksum */
    TRANSFER_VERIFY, /* compare all with the Source; wait for copies of others */
    TRANSFER_COMMIT, /* make it visible to programs */
    TRANSFER_ENDED,
    TRANSFER_STATES,
};

enum transfer_outcome { /* of one state */
                        OUTCOME_DONE,
                        OUTCOME_MORE, /* the piece is written; read another one */
                        OUTCOME_ELSEWHERE, /* the Source does not have it: open the next Source */
                        OUTCOME_ENDED, /* failed, or nothing is left to do */
                        OUTCOMES,
};

enum transfer_state transfer_next(enum transfer_state state,
                                  enum transfer_outcome outcome);

#endif
