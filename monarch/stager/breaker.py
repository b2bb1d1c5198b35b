"""The circuit breaker of a peer: whether requests go to it.

It is a value that `after` turns into the next one by a table. It reads no clock: the
caller passes the time.
"""

from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

FAILURES_MAX: Final = 3
"""The number of failures in a row that opens the breaker; one lost frame does not."""
PAUSE_FIRST_S: Final = 1.0
"""The first pause without requests to a peer; each failed trial doubles it."""
PAUSE_MAX_S: Final = 30.0
"""The longest pause: the longest time until a recovered peer is noticed."""
TRIAL_MAX_S: Final = 10.0
"""A trial that has not ended after this time counts as failed."""


class State(Enum):
    """Whether requests are sent to a peer."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half-open"


class PeerEvent(Enum):
    """An event of the breaker of a peer."""

    SUCCESS = "the peer answered in time"
    FAILURE = "it failed, or was late"
    LAST_FAILURE = "it failed once too often in a row"
    GONE = "its connection or its heartbeat ended"
    BACK = "there is a connection to it again"
    DUE = "the pause, or the trial, is over"


class Step(Enum):
    """The effect of a transition on the counts of a breaker."""

    KEEP = "nothing"
    COUNT = "count one more failure in a row"
    RESET = "count no failures, and go back to the first pause"
    PAUSE = "begin the pause"
    LENGTHEN = "begin a pause of twice the length"
    TRY = "send one request as a trial"
    RESUME = "ask it again; the next pause is twice as long unless it answers"


TRANSITIONS: Final = {
    (State.CLOSED, PeerEvent.SUCCESS): (State.CLOSED, Step.RESET),
    (State.CLOSED, PeerEvent.FAILURE): (State.CLOSED, Step.COUNT),
    (State.CLOSED, PeerEvent.LAST_FAILURE): (State.OPEN, Step.PAUSE),
    (State.CLOSED, PeerEvent.GONE): (State.OPEN, Step.PAUSE),
    (State.CLOSED, PeerEvent.BACK): (State.CLOSED, Step.KEEP),
    (State.CLOSED, PeerEvent.DUE): (State.CLOSED, Step.KEEP),
    # Late answers to requests sent before it opened prove nothing.
    (State.OPEN, PeerEvent.SUCCESS): (State.OPEN, Step.KEEP),
    (State.OPEN, PeerEvent.FAILURE): (State.OPEN, Step.KEEP),
    (State.OPEN, PeerEvent.LAST_FAILURE): (State.OPEN, Step.KEEP),
    (State.OPEN, PeerEvent.GONE): (State.OPEN, Step.KEEP),
    (State.OPEN, PeerEvent.BACK): (State.CLOSED, Step.RESUME),
    (State.OPEN, PeerEvent.DUE): (State.HALF_OPEN, Step.TRY),
    (State.HALF_OPEN, PeerEvent.SUCCESS): (State.CLOSED, Step.RESET),
    (State.HALF_OPEN, PeerEvent.FAILURE): (State.OPEN, Step.LENGTHEN),
    (State.HALF_OPEN, PeerEvent.LAST_FAILURE): (State.OPEN, Step.LENGTHEN),
    (State.HALF_OPEN, PeerEvent.GONE): (State.OPEN, Step.LENGTHEN),
    # A peer that connects may still be too slow for requests: only an answer resets.
    (State.HALF_OPEN, PeerEvent.BACK): (State.CLOSED, Step.RESUME),
    (State.HALF_OPEN, PeerEvent.DUE): (State.OPEN, Step.LENGTHEN),
}


@dataclass(frozen=True, slots=True)
class Breaker:
    """The circuit breaker of one peer.

    Args:
        failures: the number of failures in a row while it was closed.
        pause_s: the length of the current or the next pause.
        since_s: when the pause or the trial began.
    """

    state: State = State.CLOSED
    failures: int = 0
    pause_s: float = PAUSE_FIRST_S
    since_s: float = 0.0


WELL: Final = Breaker()
"""The breaker of a peer that answers: the same object each time."""

NEVER_SEEN: Final = Breaker(State.OPEN, since_s=-float("inf"))
"""The breaker of a peer that has not been connected yet."""


def ask(breaker: Breaker, now_s: float) -> tuple[bool, Breaker]:
    """Return whether a request may go to the peer now, and the breaker after it.

    When the pause of an open breaker is over, it lets one request through as a trial;
    the others go elsewhere until the trial has ended. A trial of a dead peer lasts
    until the time-out, so no program should wait for it.
    """
    if breaker.state is State.CLOSED:
        return True, breaker
    wait_s = breaker.pause_s if breaker.state is State.OPEN else TRIAL_MAX_S
    if now_s - breaker.since_s < wait_s:
        return False, breaker
    changed = after(breaker, PeerEvent.DUE, now_s)
    return changed.state is State.HALF_OPEN, changed


def after(breaker: Breaker, event: PeerEvent, now_s: float) -> Breaker:
    """Return the breaker after an event."""
    if event is PeerEvent.FAILURE and breaker.failures + 1 >= FAILURES_MAX:
        event = PeerEvent.LAST_FAILURE
    state, step = TRANSITIONS[breaker.state, event]
    match step:
        case Step.KEEP:
            return breaker
        case Step.COUNT:
            return replace(breaker, failures=breaker.failures + 1)
        case Step.RESET:
            return WELL
        case Step.PAUSE | Step.TRY:
            return replace(breaker, state=state, since_s=now_s)
        case Step.LENGTHEN | Step.RESUME:
            pause_s = min(PAUSE_MAX_S, 2 * breaker.pause_s)
            return Breaker(state, pause_s=pause_s, since_s=now_s)
