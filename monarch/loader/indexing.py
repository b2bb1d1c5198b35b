"""Lines on stderr about an index that takes long."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Sequence
from typing import Final

from monarch.records.index import Progress, no_progress

Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]

QUIET_S: Final = 2.0
LINE_S: Final = 10.0


class IndexProgress:
    """Says how far an index is: after two seconds, and then each ten.

    Args:
        name: of the records.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._next_s = time.monotonic() + QUIET_S
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"<IndexProgress of {self._name}>"

    def __call__(self, step: str, done: int, count: int) -> None:
        """Take how many are done, and how many there are; 0: that is not known."""
        with self._lock:
            now_s = time.monotonic()
            if now_s < self._next_s:
                return
            self._next_s = now_s + LINE_S
        of = f" of {count:,}" if count else ""
        text = f"monarch: records of {self._name}: {done:,}{of} {step}"
        print(text, file=sys.stderr, flush=True)


def index_progress(rank: int, paths: Paths) -> Progress:
    """Return what tells how far the index of some paths is, on the first rank alone."""
    if rank:
        return no_progress
    names = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    return IndexProgress(f"{os.fspath(names[0])}{more}" if names else "no path")
