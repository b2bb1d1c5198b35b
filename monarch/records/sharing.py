"""One index for all ranks: the first one makes it, and each node has it once.

The communicator is one as of mpi4py; nothing of it is needed but `Get_rank`, `bcast`
and `allgather`, which all ranks call together.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO, Final

from monarch.records.errors import RecordsError
from monarch.records.index import RecordIndex

PIECE_BYTES: Final = 64 << 20
"""So much is sent at once: MPI counts in 31 bits."""

Make = Callable[[], tuple[RecordIndex, bool]]


def share_index(comm: Any, make: Make) -> tuple[RecordIndex, bool]:
    """Return the index that rank 0 makes or loads, and whether it was made now.

    Args:
        comm: of all ranks that need the index.
        make: is called by rank 0 alone.

    Raises:
        RecordsError: rank 0 could not make it: all ranks raise this.
        OSError: it cannot be mapped here.
    """
    is_first = comm.Get_rank() == 0
    index, made, failure = None, False, None
    if is_first:
        try:
            index, made = make()
        except RecordsError as error:
            failure = str(error)
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
            comm.allgather(None)  # the files stay until all have mapped them


def _received(comm: Any, file: BinaryIO) -> Path:
    """Return where the index is on this node, after rank 0 has sent it."""
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
    """Return what is the same for processes that see each other in /proc."""
    return f"{platform.node()} {os.readlink('/proc/self/ns/pid')} {os.geteuid()}"
