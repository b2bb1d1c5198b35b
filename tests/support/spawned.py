"""The use of a loader in spawned processes."""

from typing import Any


def ids_of(loader: Any) -> list[list[int]]:
    """Return the Records of each batch of an epoch."""
    return [batch.ids.tolist() for batch in loader]


def tell_epoch(queue: Any, loader: Any) -> None:
    """Put the Records of an epoch, and the process that reads them, into a queue."""
    queue.put((ids_of(loader), loader.stats()["reader_pid"]))
    loader.close()
