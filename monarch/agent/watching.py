"""Figures that the nodes of a job exchange while a user watches.

A node whose agent gets a request informs all others that it watches. Each of them then
sends its figures to all, once a second in small jobs. A note reaches every node, so the
period grows with the square of their number; above NODES_MAX nodes nothing is sent.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from monarch.peers.mesh import Mesh

NODES_MAX: Final = 128
NOTES_PER_S: Final = 1024
"""The maximum number of notes that the hub sends, of all nodes to all nodes."""
LOOK_S: Final = 3.0
"""The interval in which a watching node repeats its request."""
LOOKING_S: Final = 10.0
"""How long the others send figures after a request."""

_WATCH: Final = "watch"
_SEEN: Final = "seen"


@dataclass(frozen=True, slots=True)
class NodeFigures:
    """The main figures of one node.

    Attributes:
        bytes: how many it has of the `kept_bytes` that it is to keep.
        opens: of catalogued files, `ready_opens` of them answered without waiting.
    """

    bytes: int = 0
    kept_bytes: int = 0
    bytes_per_s: int = 0
    opens: int = 0
    ready_opens: int = 0
    opens_per_s: int = 0
    origin_read_bytes: int = 0
    processes: int = 0

    def as_dict(self) -> dict[str, int]:
        """Return the numbers by name."""
        return {name: getattr(self, name) for name in self.__slots__}

    @classmethod
    def read(cls, told: object) -> NodeFigures | None:
        """Return the figures of another node; None if they are not valid."""
        if not isinstance(told, Mapping):
            return None
        numbers = [told.get(name) for name in cls.__slots__]
        valid = all(type(one) is int and 0 <= one < 1 << 63 for one in numbers)
        return cls(*numbers) if valid else None  # type: ignore[arg-type]


class Watching:
    """Sends the figures of this node while others watch, and receives theirs.

    Args:
        mesh: returns the connections to the other nodes; None: no other nodes.
        own: returns the figures of this node.
        clock: returns seconds.
    """

    def __init__(
        self,
        mesh: Callable[[], Mesh | None],
        own: Callable[[], NodeFigures],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._mesh = mesh
        self._own = own
        self._clock = clock
        self._looked_s = self._told_s = self._until_s = float("-inf")
        self._heard: dict[int, tuple[float, NodeFigures]] = {}

    def __repr__(self) -> str:
        return f"<Watching {len(self._heard)} nodes>"

    def heard(self) -> dict[int, tuple[float, NodeFigures]]:
        """Return the figures of other nodes, each with its age in seconds."""
        now_s = self._clock()
        return {n: (now_s - at_s, told) for n, (at_s, told) in self._heard.items()}

    def look(self) -> None:
        """Request the figures of the other nodes, because a user watches."""
        mesh, now_s = self._small_mesh(), self._clock()
        if mesh is not None and now_s - self._looked_s >= LOOK_S:
            self._looked_s = now_s
            mesh.send_note({_WATCH: 1})

    def tell(self) -> None:
        """Send figures if others watch and it is time; called several times a second.

        Nothing is sent without a recent request, as figures have a cost.
        """
        now_s = self._clock()
        if now_s >= self._until_s:
            return
        mesh = self._small_mesh()
        if mesh is not None and now_s - self._told_s >= period_s(
            len(mesh.view.members)
        ):
            self._told_s = now_s
            mesh.send_note({_SEEN: self._own().as_dict()})

    def hear(self, number: int, said: Mapping[str, Any]) -> None:
        """Handle the note of another node, if it is about figures."""
        if _WATCH in said:
            self._until_s = self._clock() + LOOKING_S
        told = NodeFigures.read(said.get(_SEEN))
        if told is not None:
            self._heard[number] = self._clock(), told

    def _small_mesh(self) -> Mesh | None:
        mesh = self._mesh()
        small = mesh is not None and 1 < len(mesh.view.members) <= NODES_MAX
        return mesh if small else None


def period_s(nodes: int) -> float:
    """Return the interval in which each of so many nodes sends its figures."""
    return max(1.0, nodes * nodes / NOTES_PER_S)
