"""Ranks of one node that read a store, as processes of their own."""

import multiprocessing
import subprocess
from typing import Any

from monarch.loader import Loader
from monarch.records import Records


def read_as(stored: Records, rank: int, found: Any) -> None:
    """Reads an epoch as one of four ranks of a node."""
    with Loader(
        *(stored, 10), rank=rank, world_size=4, seed=1, window=32, remainder="uneven"
    ) as loader:
        ids = [number for batch in loader for number in batch.ids.tolist()]
        pid = loader.stats()["reader_pid"]
        clients = len(list_clients(stored))
    found.put((ids, pid, clients))


def read_by_four(stored: Records, start: str) -> tuple[list[int], set[int], int]:
    """The numbers that four processes have read, their readers, and the most clients.

    Args:
        start: how processes start, as of `multiprocessing`.
    """
    context: Any = multiprocessing.get_context(start)
    found: Any = context.Queue()
    ranks = [
        context.Process(target=read_as, args=(stored, rank, found)) for rank in range(4)
    ]
    for one in ranks:
        one.start()
    told = [found.get(timeout=60) for _ in ranks]
    for one in ranks:
        one.join(30)
    ids = sorted(number for part, _, _ in told for number in part)
    return ids, {pid for _, pid, _ in told}, max(clients for _, _, clients in told)


def list_clients(stored: Records) -> list[str]:
    """The connections of a server that have read something.

    Others are those of this question, which several ranks ask at once.
    """
    keys = stored.index.keys
    assert keys is not None
    port = keys.store.partition("?")[0].rpartition(":")[2].partition("/")[0]
    words = ["redis-cli", "-p", port, "client", "list"]
    lines = subprocess.run(words, capture_output=True, text=True).stdout.splitlines()
    return [line for line in lines if "cmd=get" in line]
