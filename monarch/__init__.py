"""Monarch stages the dataset of a job on its nodes' own RAM and SSD."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable
    from os import PathLike

__version__ = "0.2.0"


def hint(paths: Iterable[str | bytes | PathLike[str] | PathLike[bytes]]) -> int:
    """Say which files this program and its children will open next, in this order.

    Monarch reads them ahead of the opens, into the Tiers or as far as its Pool has
    room. What was said before is replaced: for several epochs, give their orders as
    one. Nothing that a program reads depends on it; outside a job of Monarch, or if
    the agent does not answer, it does nothing.

    Args:
        paths: as they will be opened; each as often as it will be.

    Returns:
        How many of the paths are files of the job's datasets, as far as that is known:
        0 before they are indexed.

    Raises:
        TypeError: it is one path and not several, or something is no path.
    """
    count: int = import_module("monarch.agent.control").hint(paths)
    return count
