"""Large Files that are probably mapped: an open waits until they are staged whole.

Reads by mmap are not seen. What is not local when such a File is opened would come from
the Origin for as long as the program keeps it open.
"""

import logging
import posixpath
from typing import Final

import numpy as np
from numpy.typing import NDArray

from monarch.agent.namespace import Namespace
from monarch.catalog.patterns import Selection
from monarch.native import CONSTANTS, ReplicaState

_STATES: Final = CONSTANTS["STATE_TIER_UNIT"] - 1
EXPECTED: Final = CONSTANTS["WHOLE_EXPECTED"]
MAPPED: Final = CONSTANTS["WHOLE_MAPPED"]

log = logging.getLogger("monarch.agent")


def extension(path: bytes) -> bytes:
    """Return the extension of a name, in lower case, or nothing if it has none."""
    return posixpath.splitext(path)[1].lower()


class WholeFiles:
    """Sets the flags by which the Shim knows these Files.

    Its methods may be called in a thread, by one at a time.

    Args:
        large_bytes: the size above which programs do not wait for any File.
    """

    def __init__(self, namespace: Namespace, large_bytes: int) -> None:
        inventory = namespace.inventory
        self.large_bytes = large_bytes
        self._namespace = namespace
        self._flags = namespace.segments.whole(len(inventory))
        self._words = namespace.segments.words(len(inventory))
        large = inventory.sizes > large_bytes
        self._large = np.flatnonzero(large & bool(len(self._flags)))
        self._same: dict[bytes, list[int]] = {}

    def __repr__(self) -> str:
        flagged = np.count_nonzero(self._flags[self._large])
        return f"<WholeFiles {flagged} of {len(self._large)} large files>"

    def flag_named(self, names: Selection) -> None:
        """Flag the large Files with these names, and note the extensions of all."""
        paths = self._namespace.inventory.relatives(self._large)
        for file, path in zip(self._large.tolist(), paths, strict=True):
            if names.includes(path):
                self._flags[file] = EXPECTED
            if ending := extension(path):
                self._same.setdefault(ending, []).append(file)

    def flag_mapped(self, file: int) -> None:
        """Flag a File that a program has mapped, and all with its extension."""
        ending = extension(self._namespace.inventory.relative(file))
        alike = [file, *self._same.get(ending, ())]
        self._flags[alike] = np.maximum(self._flags[alike], EXPECTED)
        path = self._namespace.path(file)
        log.info("mapped file=%s flagged=%d", path, len(alike))

    def flag_mapped_at_origin(self, file: int) -> None:
        """Note that a program has mapped a large File at the Origin.

        What is read of it for a Tier stays in the page cache, for the program.
        """
        if self._is_large(file):
            self._flags[file] = MAPPED

    def may_learn(self, file: int) -> bool:
        """Return whether a File is large and not flagged."""
        return self._is_large(file) and not self._flags[file]

    @property
    def lacking(self) -> bool:
        """Whether a large File that is not flagged is not ready either."""
        return self._any_unready(self._large[self._flags[self._large] == 0])

    @property
    def unready(self) -> bool:
        """Whether a large File is not ready."""
        return self._any_unready(self._large)

    def _is_large(self, file: int) -> bool:
        at = int(np.searchsorted(self._large, file))
        return at < len(self._large) and bool(self._large[at] == file)

    def _any_unready(self, files: NDArray[np.intp]) -> bool:
        states = self._words[files] & np.uint32(_STATES)
        return bool(np.any(states != ReplicaState.READY))
