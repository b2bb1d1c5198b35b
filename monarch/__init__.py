"""Monarch stages the dataset of a job on its nodes' own RAM and SSD."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable
    from os import PathLike

__version__ = "0.2.0"


def hint(paths: Iterable[str | bytes | PathLike[str] | PathLike[bytes]]) -> int:
    """Announce the files that this program and its children will open next, in order.

    Monarch reads them ahead of the opens, into the Tiers or as far as its Pool has
    space. A call replaces the previous one: for several epochs, pass their orders as
    one. Nothing that a program reads depends on it; outside a job of Monarch, or if
    the agent does not answer, it does nothing.

    Args:
        paths: as they will be opened; each as often as it will be opened.

    Returns:
        How many of the paths are files of the job's datasets; 0 before these are
        indexed.

    Raises:
        TypeError: `paths` is a single path, or an item is not a path.
    """
    count: int = import_module("monarch.agent.control").hint(paths)
    return count
