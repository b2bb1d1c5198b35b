"""The circuit breaker of one peer: whether to ask it, decided by what came back.

A value that `after` turns into the next one; the table says how. Nothing here looks at
a clock: whoever asks says what time it is.
"""

from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

FAILURES_MAX: Final = 3
"""So many failures in a row open the breaker; one lost frame does not."""
PAUSE_FIRST_S: Final = 1.0
"""How long a peer is left alone at first; each failed trial doubles it."""
PAUSE_MAX_S: Final = 30.0
"""The longest pause: a peer that is back is found by then."""
TRIAL_MAX_S: Final = 10.0
"""A trial without an end counts as failed after this."""


class State(Enum):
    """Whether a peer is asked."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half-open"


class Event(Enum):
    """What happens to a breaker."""

    SUCCESS = "the peer answered in time"
    FAILURE = "it erred, or was late"
    LAST_FAILURE = "it did so once too often in a row"
    GONE = "its connection or its heartbeat ended"
    BACK = "there is a connection to it again"
    DUE = "the pause, or the trial, has taken its time"


class Step(Enum):
    """What a transition does to the counts of a breaker."""

    KEEP = "nothing"
    COUNT = "one more failure in a row"
    FORGET = "no failures any more, and the first pause again"
    PAUSE = "the pause begins"
    LENGTHEN = "a pause of twice the length begins"
    TRY = "one request goes out as a trial"
    RESUME = "it is asked again; until it has answered, the next pause is twice as long"


TRANSITIONS: Final = {
    (State.CLOSED, Event.SUCCESS): (State.CLOSED, Step.FORGET),
    (State.CLOSED, Event.FAILURE): (State.CLOSED, Step.COUNT),
    (State.CLOSED, Event.LAST_FAILURE): (State.OPEN, Step.PAUSE),
    (State.CLOSED, Event.GONE): (State.OPEN, Step.PAUSE),
    (State.CLOSED, Event.BACK): (State.CLOSED, Step.KEEP),
    (State.CLOSED, Event.DUE): (State.CLOSED, Step.KEEP),
    # Answers to what was asked before it opened come late and prove nothing.
    (State.OPEN, Event.SUCCESS): (State.OPEN, Step.KEEP),
    (State.OPEN, Event.FAILURE): (State.OPEN, Step.KEEP),
    (State.OPEN, Event.LAST_FAILURE): (State.OPEN, Step.KEEP),
    (State.OPEN, Event.GONE): (State.OPEN, Step.KEEP),
    (State.OPEN, Event.BACK): (State.CLOSED, Step.RESUME),
    (State.OPEN, Event.DUE): (State.HALF_OPEN, Step.TRY),
    (State.HALF_OPEN, Event.SUCCESS): (State.CLOSED, Step.FORGET),
    (State.HALF_OPEN, Event.FAILURE): (State.OPEN, Step.LENGTHEN),
    (State.HALF_OPEN, Event.LAST_FAILURE): (State.OPEN, Step.LENGTHEN),
    (State.HALF_OPEN, Event.GONE): (State.OPEN, Step.LENGTHEN),
    # Who greets may still be too slow for requests: only an answer forgets the pauses.
    (State.HALF_OPEN, Event.BACK): (State.CLOSED, Step.RESUME),
    (State.HALF_OPEN, Event.DUE): (State.OPEN, Step.LENGTHEN),
}


@dataclass(frozen=True, slots=True)
class Breaker:
    """What is known of one peer.

    Args:
        failures: how many came in a row while it was closed.
        pause_s: how long the present, or the next, pause is.
        since_s: when the pause or the trial began.
    """

    state: State = State.CLOSED
    failures: int = 0
    pause_s: float = PAUSE_FIRST_S
    since_s: float = 0.0


WELL: Final = Breaker()
"""What a peer that answers has: the same object each time."""


def ask(breaker: Breaker, now_s: float) -> tuple[bool, Breaker]:
    """Return whether a request may go to the peer now, and the breaker after it.

    Of an open breaker whose pause is over, one request is let through as a trial; the
    others go elsewhere until it has ended. The trial of a dead peer takes a time-out:
    best it is a request that no program waits for.
    """
    if breaker.state is State.CLOSED:
        return True, breaker
    wait_s = breaker.pause_s if breaker.state is State.OPEN else TRIAL_MAX_S
    if now_s - breaker.since_s < wait_s:
        return False, breaker
    changed = after(breaker, Event.DUE, now_s)
    return changed.state is State.HALF_OPEN, changed


def after(breaker: Breaker, event: Event, now_s: float) -> Breaker:
    """Return the breaker after an event."""
    if event is Event.FAILURE and breaker.failures + 1 >= FAILURES_MAX:
        event = Event.LAST_FAILURE
    state, step = TRANSITIONS[breaker.state, event]
    match step:
        case Step.KEEP:
            return breaker
        case Step.COUNT:
            return replace(breaker, failures=breaker.failures + 1)
        case Step.FORGET:
            return WELL
        case Step.PAUSE | Step.TRY:
            return replace(breaker, state=state, since_s=now_s)
        case Step.LENGTHEN | Step.RESUME:
            pause_s = min(PAUSE_MAX_S, 2 * breaker.pause_s)
            return Breaker(state, pause_s=pause_s, since_s=now_s)
