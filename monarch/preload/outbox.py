"""Sends the Files that this node has read to the nodes that keep them too."""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from monarch.native import CONSTANTS
from monarch.preload.crew import Crew, Sending
from monarch.preload.parcel import Parcel, Piece
from monarch.preload.stores import Stores

EXTENT_BYTES: Final = CONSTANTS["EXTENT_BYTES"]
SENDS_MAX: Final = 4
"""Parcels on their way at once: they bound the memory, whatever the number of nodes."""


@dataclass(slots=True)
class _Errand:
    """What one node wants of us, and how far we are with it."""

    node: int
    files: list[int]
    place: int = 0
    extent: int = 0

    @property
    def file(self) -> int | None:
        return self.files[self.place] if self.place < len(self.files) else None

    def step(self, extents: int) -> None:
        """Go on to the next Extent, which may be another File's."""
        self.extent += 1
        if self.extent >= extents:
            self.place, self.extent = self.place + 1, 0


@dataclass(slots=True)
class _Slot:
    parcel: Parcel
    sending: Sending | None = None


class Outbox:
    """Serves all nodes in turn, each in Catalog order, as far as Files are staged.

    Each node begins with the one after itself, so that not all send to the same one.

    Args:
        wanted: the Files that each other node wants of us, in Catalog order.
    """

    def __init__(
        self, crew: Crew, stores: Stores, wanted: Mapping[int, np.ndarray]
    ) -> None:
        self._crew = crew
        self._stores = stores
        count = len(crew.nodes)
        others = [(crew.number + step) % count for step in range(1, count)]
        self._errands = [
            _Errand(node, wanted[node].tolist())
            for node in others
            if len(wanted.get(node, ()))
        ]
        slots = min(SENDS_MAX, 2 * len(self._errands))
        self._slots = [_Slot(Parcel(EXTENT_BYTES)) for _ in range(slots)]

    def __repr__(self) -> str:
        return f"<Outbox with errands for {len(self._errands)} nodes>"

    @property
    def done(self) -> bool:
        """Whether everyone has been sent all that they want."""
        return not self._errands and all(slot.sending is None for slot in self._slots)

    def turn(self) -> bool:
        """Send what can be sent now; return whether there was anything."""
        moved = False
        for slot in self._slots:
            if slot.sending is not None and slot.sending.done():
                slot.sending = None
                moved = True
        for slot in self._slots:
            if slot.sending is not None:
                continue
            if not self._load(slot.parcel):
                break
            self._send(slot)
            moved = True
        return moved

    def _send(self, slot: _Slot) -> None:
        node = self._errands[-1].node
        slot.sending = self._crew.send(node, slot.parcel.packed())
        self._errands = [one for one in self._errands if one.file is not None]

    def _load(self, parcel: Parcel) -> bool:
        """Pack a parcel for the next node for which there is something to pack.

        Its errand is the last one then: the others come first the next time.
        """
        for _ in self._errands:
            errand = self._errands.pop(0)
            self._errands.append(errand)
            parcel.empty()
            self._pack(parcel, errand)
            if parcel.count:
                return True
        return False

    def _pack(self, parcel: Parcel, errand: _Errand) -> None:
        stores = self._stores
        while (file := errand.file) is not None and stores.asker.settled(file):
            size = stores.stager.replicas.size_of(file)
            start = errand.extent * EXTENT_BYTES
            length = min(EXTENT_BYTES, size - start)
            if length > parcel.room:
                return
            digests = stores.extents.of(file)
            rc = self._read(file, start, parcel.space(length))
            if rc:
                # There will be no more of it, however much there was.
                parcel.add(Piece(file, errand.extent, 0, rc, 0))
                errand.step(0)
                continue
            digest = int(digests[errand.extent])
            parcel.add(Piece(file, errand.extent, length, 0, digest))
            errand.step(len(digests))

    def _read(self, file: int, start: int, space: memoryview) -> int:
        """Read a part of a Replica; 0, or a negative errno."""
        stores = self._stores
        tier = stores.stager.replicas.ready_tier(file)
        if tier is None:
            return -errno.ENODATA
        path = stores.setup.tiers[tier].directory / stores.namespace.name_of(file)
        try:
            fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                got = os.preadv(fd, [space], start) if len(space) else 0
            finally:
                os.close(fd)
        except OSError as error:
            return -(error.errno or errno.EIO)
        return 0 if got == len(space) else -errno.EIO
