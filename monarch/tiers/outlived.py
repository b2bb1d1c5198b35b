"""What an agent that has gone leaves to the programs of its job that live on.

They go on marking what they write in its flags segment. An agent that comes after it
in the same run directory reads other flags; so who removes the old ones tells these
programs first to look at the same path again.
"""

import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from monarch.native import CONSTANTS, DTYPES, SegmentKind


def supersede(run: Path) -> None:
    """Let programs that live on mark for the next agent of a run directory, if any."""
    with suppress(OSError):
        fd = os.open(run / "flags", os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            if _is_segment(os.pread(fd, DTYPES["flags"].itemsize, 0), "flags"):
                os.pwrite(fd, np.uint32(1).tobytes(), _place_of("flags", "superseded"))
        finally:
            os.close(fd)


def has_programs(run: Path) -> bool:
    """Return whether a living process has loaded the Shim of a run directory.

    What it has mapped tells, removed or not: a slot in the counters may be missing, or
    name a process whose number is another's by now.
    """
    shim = run / "shim.so"
    wanted = f" {os.path.realpath(run)}/shim.so".encode()
    if shim.is_symlink():  # the run directory is on a file system without execution
        wanted = f" {os.path.realpath(shim)}".encode()
    processes = (name for name in os.listdir("/proc") if name.isdigit())
    return any(_maps(process, wanted) for process in processes)


def _place_of(segment: str, field: str) -> int:
    fields = DTYPES[segment].fields
    assert fields is not None
    return fields[field][1]


def _is_segment(head: bytes, name: str) -> bool:
    """Return whether a segment of this kind and of our version begins so."""
    dtype = DTYPES["segment"]
    if len(head) < dtype.itemsize:
        return False
    seg: Any = np.frombuffer(head[: dtype.itemsize], dtype)[0]
    told = (bytes(seg["magic"]), int(seg["version"]), int(seg["kind"]))
    ours = (CONSTANTS["LAYOUT_VERSION"], int(SegmentKind[name.upper()]))
    return told == (b"MONARCH", *ours)


def _maps(process: str, wanted: bytes) -> bool:
    """Return whether a process has mapped a file below a directory, if we may know."""
    try:
        return wanted in Path("/proc", process, "maps").read_bytes()
    except OSError:
        return False
