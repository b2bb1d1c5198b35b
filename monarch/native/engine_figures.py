"""Figures of an engine: its pace, its health, its readers and its hints."""

from typing import NamedTuple


class Pace(NamedTuple):
    """The totals of reads from the origin, in the order of dataplane/api/api.h.

    Attributes:
        files: copies that have succeeded.
        reads: copies; background copies count by their chunks.
        ns: the sum of the durations of reads.
        fill_ns: the part of background copies in it.
        stale: reads that began under another limit of background copies.
    """

    files: int
    reads: int
    bytes: int
    ns: int
    fill_ns: int
    stale: int


class Health(NamedTuple):
    """The origins that do not answer, and the Transfers that hang in system calls.

    Attributes:
        stalled: a bit for each root in which no Transfer makes progress.
    """

    stalled: int
    stuck_demand: int
    stuck_background: int


class Readers(NamedTuple):
    """Tokens to read the origin, in the order of dataplane/api/api.h.

    Attributes:
        reading: the tokens in use now.
        demand: the most that programs wanted at once since the last call.
        background: the number that background Transfers used.
        lacking: whether more tokens would let background Transfers begin.
    """

    reading: int
    demand: int
    background: int
    lacking: int


class HintTally(NamedTuple):
    """Progress of hints, in the order of dataplane/api/api.h.

    Attributes:
        left: hints that were not processed.
        unopened: Files in the Pool that are still to be opened.
        given_up_files: Files that were read ahead and not opened in their turn.
    """

    left: int
    unopened: int
    unopened_bytes: int
    given_up_files: int
