"""The figures of one moment of a job, from which every report is made."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

SCHEMA: Final = 1

Report = Mapping[str, Any]
"""A report is plain JSON: what is printed is what was written."""


@dataclass(frozen=True, slots=True)
class JobFigures:
    """Which job this is, and what it was given to stage."""

    job: str
    node: str
    command: tuple[str, ...]
    started_s: float
    seconds: float
    datasets: tuple[str, ...]
    files: int
    bytes: int
    complete: bool = True
    plain: str = ""


@dataclass(frozen=True, slots=True)
class TierFigures:
    """One Tier at the end."""

    name: str
    kind: str
    capacity_bytes: int
    used_bytes: int
    files: int
    in_service: bool


@dataclass(frozen=True, slots=True)
class ProcessFigures:
    """The processes of one program, and whether the Shim worked in them."""

    program: str
    active: bool
    count: int


@dataclass(frozen=True, slots=True)
class WaitBucket:
    """Cold-open waits from `from_ns` up to the next bucket."""

    from_ns: int
    to_ns: int
    count: int


@dataclass(frozen=True, slots=True)
class Unstaged:
    """Files that are not in any Tier, for one reason."""

    reason: str
    files: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything that is known about a job at one moment."""

    run: JobFigures
    counters: Mapping[str, int]
    tally: Mapping[str, int]
    tiers: tuple[TierFigures, ...]
    processes: tuple[ProcessFigures, ...]
    unslotted: int
    waits: tuple[WaitBucket, ...]
    wait_total_ns: int
    unstaged: tuple[Unstaged, ...]
    changed: tuple[str, ...] = ()
    passed_roots: tuple[str, ...] = ()
