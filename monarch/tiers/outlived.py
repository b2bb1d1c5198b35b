"""What an agent that has gone leaves to the programs of its job that live on.

They go on marking what they write in its flags segment. An agent that comes after it
in the same run directory reads other flags; so who removes the old ones tells these
programs first to look at the same path again.
"""

import os
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from monarch.native import CONSTANTS, DTYPES, ProcessState, SegmentKind

_WATCHED: Final = (ProcessState.LAUNCHED, ProcessState.ACTIVE, ProcessState.LAUNCHER)


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
    """Return whether a process that marks in this run directory's flags lives.

    Its slot in the counters names it. Since only an agent empties slots, another
    process may have its number by now: what it has mapped tells.
    """
    try:
        inode = os.stat(run / "counters", follow_symlinks=False).st_ino
        memory = np.fromfile(run / "counters", np.uint8)
    except OSError:
        return False
    if not _is_segment(memory.tobytes()[: DTYPES["segment"].itemsize], "counters"):
        return False
    return any(_maps(pid, inode, run.name) for pid in _pids(memory))


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


def _pids(memory: npt.NDArray[np.uint8]) -> list[int]:
    dtype = DTYPES["counters"]
    if len(memory) != dtype.itemsize:
        return []
    counters = memory.view(dtype)[0]
    slots = counters["process"][1 : int(counters["slots_used_max"])]
    found: list[int] = slots["pid"][np.isin(slots["state"], _WATCHED)].tolist()
    return found


def _maps(pid: int, inode: int, name: str) -> bool:
    """Return whether a process has this segment mapped, as far as we may know."""
    wanted = f"/{name}/counters"
    try:
        with open(f"/proc/{pid}/maps", errors="surrogateescape") as maps:
            lines = (line.rstrip("\n").split(None, 5) for line in maps)
            return any(
                len(words) == 6 and words[4] == str(inode) and wanted in words[5]
                for words in lines
            )
    except PermissionError:
        return True
    except OSError:
        return False
