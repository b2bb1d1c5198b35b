"""Asks the Stager for Files as programs would: this node's share of the Origin."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import Final

import numpy as np

from monarch.native import (
    CONSTANTS,
    Completion,
    Engine,
    Health,
    Order,
    ReplicaState,
)

FAULTS_MAX: Final = 10
AHEAD: Final = 16
"""Files under way per copy at once: small ones are done before we look again."""

_STATE_UNIT: Final = CONSTANTS["STATE_TIER_UNIT"]
_STAGING: Final = int(ReplicaState.STAGING)
_ABSENT: Final = int(ReplicaState.ABSENT)


class Asker:
    """The engine as the Stager sees it, with requests of our own instead of programs'.

    Files are asked for in the order of their numbers, which is that of the Catalog,
    with a bounded number under way; what failed is asked for again until the Stager
    says why it will not come.

    Attributes:
        faults: what went wrong with the first Files that failed, by number.
    """

    def __init__(self, engine: Engine, words: np.ndarray, concurrency: int) -> None:
        self.faults: dict[int, str] = {}
        self._engine = engine
        self._words = words
        self._most = AHEAD * concurrency
        self._files: Iterator[int] = iter(())
        self._left = 0
        self._asked: list[int] = []

    def __repr__(self) -> str:
        return f"<Asker {len(self._asked)} asked for, {self._left} to ask for>"

    @property
    def done(self) -> bool:
        """Whether each File is there or will not come."""
        return not self._left and all(map(self.settled, self._asked))

    def ask_for(self, files: np.ndarray) -> None:
        """Ask for these Files from now on."""
        self._files, self._left = iter(files.tolist()), len(files)

    def settled(self, file: int) -> bool:
        """Return whether a File is staged, or absent for a reason."""
        word = int(self._words[file])
        return word != _ABSENT and word % _STATE_UNIT != _STAGING

    def requests(self) -> list[int]:
        """Return the Files that the Stager is to order now."""
        self._asked = [file for file in self._asked if not self.settled(file)]
        again = [file for file in self._asked if self._words[file] == _ABSENT]
        new: list[int] = []
        while len(self._asked) + len(new) < self._most and self._left:
            file = next(self._files)
            self._left -= 1
            if not self.settled(file):
                new.append(file)
        self._asked += new
        return again + new

    def submit(self, orders: Iterable[Order]) -> int:
        """Pass orders on."""
        return self._engine.submit(orders)

    def completions(self) -> list[Completion]:
        """Pass ends of Transfers on, and note what went wrong."""
        ended = self._engine.completions()
        for one in ended:
            if one.status and len(self.faults) < FAULTS_MAX:
                self.faults.setdefault(one.file, os.strerror(-one.status))
        return ended

    def health(self) -> Health:
        """Tell which roots do not answer."""
        return self._engine.health()

    def forget(self, tier: int, ino: int) -> None:
        """Recognise an inode no more."""
        self._engine.forget(tier, ino)

    def keep(self, tier: int, ino: int) -> None:
        """Recognise an inode as long as there is room."""
        self._engine.keep(tier, ino)
