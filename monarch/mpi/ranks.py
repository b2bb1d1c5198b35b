"""A crew of nodes that are MPI processes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from monarch.catalog.block import Bytes
from monarch.mpi.launch import Launch

BROADCAST_BYTES: Final = 64 << 20
"""What one message of a broadcast carries: lengths in MPI may be of 31 bits."""
_TAG: Final = 1


class _Request:
    """Bytes on their way."""

    def __init__(self, request: Any) -> None:
        self._request = request

    def done(self) -> bool:
        """Return whether they have left."""
        return bool(self._request.Test())


class Ranks:
    """Carries out by MPI what a crew does together.

    Args:
        receive_bytes_max: the largest message that receive() is to expect.
    """

    def __init__(self, mpi: Any, launch: Launch, receive_bytes_max: int) -> None:
        self.nodes = launch.nodes
        self.number = launch.number
        self._mpi = mpi
        self._launch = launch
        self._comm = launch.acting
        self._buffer = np.empty(receive_bytes_max, np.uint8)
        self._receiving: Any = None
        self._status = mpi.Status()

    def __repr__(self) -> str:
        return f"<Ranks of {len(self.nodes)} nodes, this is {self.number}>"

    def all_of(self, value: Any) -> list[Any]:
        """Return what every node gives, by number."""
        self._launch.meet()
        values: list[Any] = self._comm.allgather(value)
        return values

    def from_first(self, memory: Bytes | None) -> Bytes:
        """Return what the first node gives, sent in pieces."""
        self._launch.meet()
        size = self._comm.bcast(None if memory is None else len(memory))
        if memory is None:
            memory = np.empty(size, np.uint8)
        for start in range(0, size, BROADCAST_BYTES):
            self._comm.Bcast([memory[start : start + BROADCAST_BYTES], self._mpi.BYTE])
        return memory

    def exchange(self, parts: Sequence[Bytes]) -> list[Bytes]:
        """Give each node its part, and return what each has given us."""
        self._launch.meet()
        given: list[Bytes] = self._comm.alltoall(list(parts))
        return given

    def send(self, node: int, memory: Bytes) -> _Request:
        """Begin to send bytes to a node."""
        message = [memory, self._mpi.BYTE]
        return _Request(self._comm.Isend(message, dest=node, tag=_TAG))

    def receive(self) -> Bytes | None:
        """Return a message that has come whole; one at a time is taken in."""
        if self._receiving is None:
            message = self._comm.Improbe(tag=_TAG, status=self._status)
            if message is None:
                return None
            size = self._status.Get_count(self._mpi.BYTE)
            part = self._buffer[:size]
            self._receiving = part, message.Irecv([part, self._mpi.BYTE])
        part, request = self._receiving
        if not request.Test():
            return None
        self._receiving = None
        received: Bytes = part
        return received
