"""One index for all ranks, which share the work; each node holds it once.

The communicator is one as of mpi4py; only `Get_rank`, `bcast` and `allgather` are used,
which all ranks call together.
"""

from __future__ import annotations

import os
import pickle
import platform
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO, Final, TypeVar

from monarch.records.errors import RecordsError
from monarch.records.index import RecordIndex

PIECE_BYTES: Final = 64 << 20
"""Bytes of one message: MPI counts in 31 bits."""

T = TypeVar("T")
Make = Callable[[], tuple[RecordIndex, bool]]


def told_by_first(comm: Any, find: Callable[[], T]) -> T:
    """Return the result of rank 0 on all ranks.

    Raises:
        RecordsError: rank 0 failed; all ranks raise this.
    """
    found, failure = _tried(find) if comm.Get_rank() == 0 else (None, None)
    found, failure = comm.bcast((found, failure), root=0)
    if failure is not None:
        raise RecordsError(failure)
    answer: T = found
    return answer


def gathered(comm: Any, make: Callable[[], T]) -> list[T]:
    """Return the results of all ranks in their order, on rank 0; elsewhere nothing.

    Raises:
        RecordsError: a rank failed; all ranks raise this.
    """
    own, failure = _tried(make)
    failures = [one for one in comm.allgather(failure) if one is not None]
    if failures:
        raise RecordsError(failures[0])
    text, found = pickle.dumps(own), []
    rank = comm.Get_rank()
    for root, size in enumerate(comm.allgather(len(text))):
        pieces = []
        for at in range(0, size, PIECE_BYTES):
            piece = text[at : at + PIECE_BYTES] if rank == root else None
            piece = comm.bcast(piece, root=root)
            if rank == 0:
                pieces.append(piece)
        if rank == 0:
            found.append(pickle.loads(b"".join(pieces)))
    return found


def _tried(make: Callable[[], T]) -> tuple[T | None, str | None]:
    """Return the result, or the reason of the failure."""
    try:
        return make(), None
    except Exception as error:  # any exception: the other ranks wait for a result
        return None, str(error) or type(error).__name__


def share_index(comm: Any, make: Make) -> tuple[RecordIndex, bool]:
    """Return the index that rank 0 makes or loads, and whether it was made now.

    Args:
        comm: communicator of all ranks that need the index.
        make: called by rank 0 alone.

    Raises:
        RecordsError: rank 0 could not make it; all ranks raise this.
        OSError: it cannot be mapped here.
    """
    index, made, failure = None, False, None
    if comm.Get_rank() == 0:
        found, failure = _tried(make)
        index, made = found or (None, False)
    failure, made = comm.bcast((failure, made), root=0)
    if failure is not None:
        raise RecordsError(failure)
    with os.fdopen(os.memfd_create("monarch-records"), "w+b") as file:
        if index is not None:
            index.write(file)
            file.flush()
        path = _received(comm, file)
        try:
            return index if index is not None else RecordIndex.load(path), made
        finally:
            comm.allgather(None)  # the files stay until all ranks have mapped them


def _received(comm: Any, file: BinaryIO) -> Path:
    """Receive the index from rank 0, and return its path on this node."""
    nodes = comm.allgather(node_name())
    holder = nodes.index(node_name())
    rank = comm.Get_rank()
    size = comm.bcast(file.tell() if rank == 0 else None, root=0)
    for at in range(0, size, PIECE_BYTES):
        piece = None
        if rank == 0:
            piece = os.pread(file.fileno(), min(PIECE_BYTES, size - at), at)
        piece = comm.bcast(piece, root=0)
        if rank == holder != 0:
            file.write(piece)
    file.flush()
    paths = comm.allgather(f"/proc/{os.getpid()}/fd/{file.fileno()}")
    return Path(paths[holder])


def node_name() -> str:
    """Return a name shared by the processes that see each other in /proc."""
    return f"{platform.node()} {os.readlink('/proc/self/ns/pid')} {os.geteuid()}"
