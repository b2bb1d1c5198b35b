"""The bootstrap of agents that MPI has launched: MPI carries addresses and secret."""

from __future__ import annotations

import secrets
import socket
from typing import TYPE_CHECKING

import numpy as np

from monarch.agent.bootstrap import Address, Bootstrap
from monarch.cluster import NodeList, address_of
from monarch.cluster.rendezvous_directory import SECRET_BYTES
from monarch.errors import UsageError
from monarch.peers.membership import HUBS_MAX
from monarch.preload.crew import Crew, agreed

if TYPE_CHECKING:
    from monarch.config.schema import Peers


def bootstrap_by_mpi(crew: Crew, job: str, peers: Peers) -> Bootstrap:
    """Return the bootstrap of the agents of a crew; a collective call of all nodes.

    Raises:
        UsageError: on every node the same, if the options of one of them differ.
    """
    for node, name in zip(crew.nodes, crew.all_of(job), strict=True):
        if name != job:
            raise UsageError(f"--job: is {name} on {node}, but {job} here")
    host, address = agreed(crew, lambda: _own_address(peers))
    found: list[Address] = crew.all_of(address)
    if len({name for name, _ in found}) == 1 and not host:
        # All nodes are on one machine, whose name may not resolve.
        found = [("127.0.0.1", port) for _, port in found]
    secret = np.frombuffer(secrets.token_bytes(SECRET_BYTES), np.uint8)
    return Bootstrap(
        job=job,
        node_list=NodeList(crew.nodes, crew.number, "MPI", {}),
        secret=crew.from_first(secret if crew.number == 0 else None).tobytes(),
        addresses=dict(enumerate(found[:HUBS_MAX])),
        host=host,
    )


def _own_address(peers: Peers) -> tuple[str, Address]:
    """Return the address to listen on, and the address that other nodes connect to."""
    host = address_of(peers.interface) if peers.interface is not None else ""
    port = peers.port or _free_port(host)
    return host, (host or socket.gethostname(), port)


def _free_port(host: str) -> int:
    """Return a port that is free now.

    If another process takes it first, the agent listens on one of the next ports, and
    the others try those, too.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.bind((host, 0))
        port: int = probe.getsockname()[1]
    return port
