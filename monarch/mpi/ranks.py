"""Values that the nodes of an MPI launch exchange and agree on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from monarch.errors import MonarchError, UsageError
from monarch.mpi.launch import Launch

T = TypeVar("T")


class Ranks:
    """The processes of an MPI launch that act for their nodes.

    Attributes:
        nodes: the names of the nodes, in the same order on each of them.
        number: the number of this node.
    """

    def __init__(self, launch: Launch) -> None:
        self.nodes = launch.nodes
        self.number = launch.number
        self._launch = launch

    def __repr__(self) -> str:
        return f"<Ranks of {len(self.nodes)} nodes, this is {self.number}>"

    def all_of(self, value: Any) -> list[Any]:
        """Return the values of all nodes, by number; waits for all nodes."""
        self._launch.meet()
        values: list[Any] = self._launch.acting.allgather(value)
        return values

    def agreed(
        self, work: Callable[[], T], undo: Callable[[T], None] = lambda _: None
    ) -> T:
        """Do this node's part of the work; if one node fails, all fail.

        Args:
            undo: undoes the work of this node if another one has failed.

        Raises:
            MonarchError: the same on every node, with the name of the first that
                failed.
        """
        done: list[T] = []
        fault: tuple[str, bool] | None = None
        try:
            done.append(work())
        except MonarchError as error:
            fault = str(error), isinstance(error, UsageError)
        faults = dict(zip(self.nodes, self.all_of(fault), strict=True))
        for node, found in faults.items():
            if found is None:
                continue
            for result in done:
                undo(result)
            text, usage = found
            text = text if len(self.nodes) == 1 else f"on {node}: {text}"
            raise UsageError(text) if usage else MonarchError(text)
        return done[0]
