"""The nodes that stage together, as each of them sees the others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

import numpy as np

from monarch.catalog.block import Bytes
from monarch.errors import MonarchError, UsageError

T = TypeVar("T")


class Sending(Protocol):
    """Bytes on their way to another node; they must not change until they are there."""

    def done(self) -> bool:
        """Return whether the bytes may change again."""


class Crew(Protocol):
    """What every node of a collective work can ask of the others.

    Attributes:
        nodes: their names, in the same order on each node.
        number: which of them this is.
    """

    nodes: tuple[str, ...]
    number: int

    def all_of(self, value: Any) -> list[Any]:
        """Return what every node gives, by number; waits for all of them."""

    def from_first(self, memory: Bytes | None) -> Bytes:
        """Return what the first node gives; waits for it."""

    def exchange(self, parts: Sequence[Bytes]) -> list[Bytes]:
        """Give each node its part, and return what each has given us."""

    def send(self, node: int, memory: Bytes) -> Sending:
        """Begin to send bytes to a node, in the order of the calls."""

    def receive(self) -> Bytes | None:
        """Return bytes that another node has sent; valid until the next call."""


class Solo:
    """A crew of one."""

    def __init__(self, node: str) -> None:
        self.nodes: tuple[str, ...] = (node,)
        self.number = 0

    def __repr__(self) -> str:
        return f"<Solo {self.nodes[0]}>"

    def all_of(self, value: Any) -> list[Any]:
        """Return our own value."""
        return [value]

    def from_first(self, memory: Bytes | None) -> Bytes:
        """Return our own bytes."""
        assert memory is not None
        return memory

    def exchange(self, parts: Sequence[Bytes]) -> list[Bytes]:
        """Return our own part."""
        return list(parts)

    def send(self, node: int, memory: Bytes) -> Sending:
        """Refuse: there is nobody to send to."""
        raise ValueError(f"no node {node} to send {np.size(memory)} bytes to")

    def receive(self) -> Bytes | None:
        """Return that nobody has sent anything."""
        return None


def agreed(crew: Crew, work: Callable[[], T]) -> T:
    """Do a node's own part of the work; where one node fails, all do.

    Raises:
        MonarchError: the same on every node, with the name of the first that failed.
    """
    result: T | None = None
    fault: tuple[str, bool] | None = None
    try:
        result = work()
    except MonarchError as error:
        fault = str(error), isinstance(error, UsageError)
    for node, found in zip(crew.nodes, crew.all_of(fault), strict=True):
        if found is not None:
            text, usage = found
            text = text if len(crew.nodes) == 1 else f"on {node}: {text}"
            raise UsageError(text) if usage else MonarchError(text)
    return result  # type: ignore[return-value]  # None only where work() returned it
