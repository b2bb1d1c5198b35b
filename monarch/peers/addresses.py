"""What a node is given to take part in a job, and what its agent is told of it."""

import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from monarch.cluster import own_addresses
from monarch.peers.connection import Address
from monarch.peers.protocol import Identity, View


@dataclass(frozen=True, slots=True)
class Settings:
    """Who we are among which nodes, and how they are found.

    Args:
        nodes: the number of nodes.
        capacities: bytes that each of our Tiers may hold.
        seals: we can seal what we give, and check the seals of others.
        host: the address to listen on and to connect from; "" means any.
        port: where to listen; 0 means any, for use with a directory.
        addresses: where nodes listen that are known from the start.
        directory: where the first nodes leave their addresses for the others.
    """

    identity: Identity
    nodes: int
    capacities: tuple[int, ...]
    host: str = ""
    port: int = 0
    addresses: Mapping[int, Address] = field(default_factory=dict)
    directory: Path | None = None
    seals: bool = False

    def hosts(self) -> list[str]:
        """Return where others may reach us: our name may mean themselves there."""
        if self.host:
            return [self.host]
        return [socket.gethostname(), *own_addresses()]


@dataclass(frozen=True, slots=True)
class Hooks:
    """What the agent is told, in the loop's thread.

    Args:
        changed: the view is another.
        data: a node has connected for data; the descriptor is the agent's now.
        note: a node has said something to all.
        marks: files were written to on other nodes; the numbers are new here.
    """

    changed: Callable[[View], None]
    data: Callable[[int, int], None]
    note: Callable[[int, dict[str, Any]], None]
    marks: Callable[[list[int]], None]
