"""Batches of packed Records, read in large Groups by one process of each node."""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from monarch.loader.batch import Batch
    from monarch.loader.loader import Loader
    from monarch.loader.wire import LoaderError

__all__ = ["Batch", "Loader", "LoaderError"]

# Imported on first use: the reader of a node needs none of these, and starts faster.
_MODULES: Final = {"Batch": "batch", "Loader": "loader", "LoaderError": "wire"}


def __getattr__(name: str) -> Any:
    """Import a name on first use.

    Raises:
        AttributeError: unknown name.
    """
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{module}"), name)
