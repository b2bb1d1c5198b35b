"""Batches of packed Records, read in large Groups by one process of each node."""

from monarch.loader.batch import Batch
from monarch.loader.loader import Loader
from monarch.loader.wire import LoaderError

__all__ = ["Batch", "Loader", "LoaderError"]
