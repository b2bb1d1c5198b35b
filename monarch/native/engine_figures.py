"""Figures of an engine: its pace, its health, its readers and its hints."""

from typing import NamedTuple


class Pace(NamedTuple):
    """What the origin has given, in the order of dataplane/api/api.h.

    Attributes:
        files: copies that have ended well.
        reads: copies; of background copies the chunks.
        ns: the sum of the durations of reads.
        fill_ns: that of background copies among them.
        stale: reads that began under another limit of background copies.
    """

    files: int
    reads: int
    bytes: int
    ns: int
    fill_ns: int
    stale: int


class Health(NamedTuple):
    """Which origins do not answer, and how many Transfers hang in system calls.

    Attributes:
        stalled: a bit for each root in which no Transfer makes progress.
    """

    stalled: int
    stuck_demand: int
    stuck_background: int


class Readers(NamedTuple):
    """Tokens to read the origin, in the order of dataplane/api/api.h.

    Attributes:
        reading: how many are used now.
        demand: how many programs wanted at once since the last call.
        background: how many background Transfers used.
        lacking: background Transfers would begin with more tokens.
    """

    reading: int
    demand: int
    background: int
    lacking: int


class HintTally(NamedTuple):
    """Progress of hints, in the order of dataplane/api/api.h.

    Attributes:
        left: hints that were not processed.
        unopened: Files in the Pool whose opens are to come.
        given_up_files: those that were read ahead and not opened in their turn.
    """

    left: int
    unopened: int
    unopened_bytes: int
    given_up_files: int
