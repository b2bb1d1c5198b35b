"""Takes Files that other nodes have read into the Tiers of this one."""

from __future__ import annotations

import contextlib
import logging
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from monarch.preload.crew import Crew
from monarch.preload.parcel import Piece, unpacked
from monarch.preload.stores import Stores

TURN_MAX: Final = 4

log = logging.getLogger("monarch.preload")


@dataclass(slots=True)
class _Landing:
    """A File of which more Extents are to come."""

    tier: int
    part: Path
    fd: int


class Inbox:
    """Writes what comes; the Stager then checks it as it checks any adopted Replica.

    Args:
        awaited: marks the Files that others send us; each is unmarked when it is there
            or will not come.
    """

    def __init__(self, crew: Crew, stores: Stores, awaited: np.ndarray) -> None:
        self.received_bytes = 0
        self._crew = crew
        self._stores = stores
        self._awaited = awaited
        self._left = int(np.count_nonzero(awaited))
        self._landings: dict[int, _Landing] = {}

    def __repr__(self) -> str:
        return f"<Inbox waits for {self._left} files>"

    @property
    def done(self) -> bool:
        """Whether each awaited File is there or will not come."""
        return self._left == 0

    def turn(self) -> bool:
        """Take what has come; return whether there was anything."""
        for turn in range(TURN_MAX):
            memory = self._crew.receive()
            if memory is None:
                return turn > 0
            for piece, content in unpacked(memory):
                self._take(piece, content)
        return True

    def close(self) -> None:
        """Give up what has come in part only."""
        for file in list(self._landings):
            self._drop(file)

    def _take(self, piece: Piece, content: memoryview) -> None:
        file = piece.file
        if file >= len(self._awaited) or not self._awaited[file]:
            return
        if piece.status:
            self._refuse(file, os.strerror(-piece.status))
            return
        self.received_bytes += piece.bytes
        try:
            self._land(piece, content)
        except OSError as error:
            self._refuse(file, error.strerror or str(error))

    def _land(self, piece: Piece, content: memoryview) -> None:
        file, extents = piece.file, self._stores.extents.of(piece.file)
        landing = self._landings.get(file)
        if landing is None:
            landing = self._begin(file)
        if landing is None or piece.extent >= len(extents):
            self._refuse(file, "no room")
            return
        _write(landing.fd, content)
        extents[piece.extent] = piece.digest
        if piece.extent + 1 == len(extents):
            self._end(file, landing)

    def _begin(self, file: int) -> _Landing | None:
        """Reserve room and open a file for a File; None if there is no room."""
        stager = self._stores.stager
        tier = stager.storage.ledger.reserve(stager.replicas.size_of(file))
        if tier is None:
            return None
        directory = stager.storage.tiers[tier].directory
        part = directory / f".{stager.replicas.name_of(file)}.part"
        landing = _Landing(tier, part, -1)
        self._landings[file] = landing
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        landing.fd = os.open(landing.part, flags, 0o400)
        return landing

    def _end(self, file: int, landing: _Landing) -> None:
        """Give a File its name, and let the Stager compare its checksums."""
        stores = self._stores
        times = stores.mtime_ns(file)
        os.utime(landing.fd, ns=(times, times))
        os.rename(landing.part, landing.part.with_name(stores.namespace.name_of(file)))
        os.close(landing.fd)
        del self._landings[file]
        stores.stager.adoption.tiers[file] = landing.tier
        self._forget(file)

    def _refuse(self, file: int, why: str) -> None:
        log.warning("file not received file=%d error=%s", file, why)
        self._stores.asker.faults.setdefault(file, why)
        self._drop(file)
        self._stores.refuse(file)
        self._forget(file)

    def _drop(self, file: int) -> None:
        landing = self._landings.pop(file, None)
        if landing is None:
            return
        size = self._stores.stager.replicas.size_of(file)
        self._stores.stager.storage.ledger.release(landing.tier, size)
        if landing.fd >= 0:
            os.close(landing.fd)
            with contextlib.suppress(OSError):
                landing.part.unlink()

    def _forget(self, file: int) -> None:
        self._awaited[file] = False
        self._left -= 1


def _write(fd: int, content: memoryview) -> None:
    while content:
        content = content[os.write(fd, content) :]
