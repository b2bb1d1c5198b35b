/* relay.h - what a waiting launcher does about a signal. */
#ifndef MONARCH_RELAY_H
#define MONARCH_RELAY_H

#include <stdbool.h>
#include <sys/types.h>

enum relay_duty {
    RELAY_NOTHING,  /* the program has got it too, or it is not for the program */
    RELAY_FORWARD,  /* the program must get it from us */
    RELAY_ASK,      /* the same, unless it was sent to the program too */
    RELAY_CONTINUE, /* the program goes on if it is stopped */
    RELAY_CHILD,    /* the program has stopped or ended */
};

struct relay_scene {
    pid_t self, program;
    bool leads_session; /* else a hang-up comes to the program too */
};

enum relay_duty relay_duty(const struct relay_scene *scene, int signo, int code,
                           pid_t sender);

#endif
