"""The life of a Replica: its states, what may happen to it, and what follows."""

from enum import Enum
from typing import Final


class State(Enum):
    """Where a Replica is in its life; named as in the shared layout."""

    ABSENT = "REPLICA_ABSENT"
    STAGING = "REPLICA_STAGING"
    READY = "REPLICA_READY"
    EVICTING = "REPLICA_EVICTING"


class Reason(Enum):
    """Why a File is absent; NONE means that asking for it is worth while."""

    NONE = "REASON_NONE"
    NO_ROOM = "REASON_NO_ROOM"
    CHANGED = "REASON_CHANGED"
    ERROR = "REASON_ERROR"
    MEMORY = "REASON_MEMORY"
    STOPPING = "REASON_STOPPING"
    BUSY = "REASON_BUSY"


class Event(Enum):
    """What may happen to a Replica."""

    ORDERED = "a Transfer was given to the engine"
    PUBLISHED = "the engine has renamed and published the copy"
    FAILED = "the Transfer has failed"
    EVICTED = "its room is wanted, or its bytes must not be served any more"
    REMOVED = "its name is gone from the Tier"


# The engine itself carries out PUBLISHED; everything else is the agent's to store.
TRANSITIONS: Final = {
    (State.ABSENT, Event.ORDERED): State.STAGING,
    (State.STAGING, Event.PUBLISHED): State.READY,
    (State.STAGING, Event.FAILED): State.ABSENT,
    (State.READY, Event.EVICTED): State.EVICTING,
    (State.READY, Event.REMOVED): State.ABSENT,
    (State.EVICTING, Event.REMOVED): State.ABSENT,
}


class IllegalTransition(AssertionError):
    """An event came to a Replica that cannot have it: a fault of the program."""


def advance(state: State, event: Event) -> State:
    """Return the state that follows `event`."""
    try:
        return TRANSITIONS[state, event]
    except KeyError:
        raise IllegalTransition(f"{event.name} of a Replica {state.name}") from None
