"""Ranks of one node that read a store, as processes of their own."""

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
