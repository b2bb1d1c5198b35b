"""Lets the agents of an MPI launch meet: names, addresses and secret come by MPI."""

from __future__ import annotations

import secrets
import socket
from typing import TYPE_CHECKING

import numpy as np

from monarch.agent.bootstrap import KNOWN_MAX, Address, Meeting
from monarch.cluster import Membership, address_of
from monarch.cluster.secret import SECRET_BYTES
from monarch.errors import UsageError
from monarch.preload.crew import Crew, agreed

if TYPE_CHECKING:
    from monarch.config.schema import Peers


def meet_by_mpi(crew: Crew, job: str, peers: Peers) -> Meeting:
    """Return where the agents of a crew meet; all nodes must ask for it.

    Raises:
        UsageError: on every node the same, if one of them was told something else.
    """
    for node, told in zip(crew.nodes, crew.all_of(job), strict=True):
        if told != job:
            raise UsageError(f"--job: is {told} on {node}, but {job} here")
    host, address = agreed(crew, lambda: _own_address(peers))
    found: list[Address] = crew.all_of(address)
    if len({name for name, _ in found}) == 1 and not host:
        # All on one machine, whose name need not lead anywhere.
        found = [("127.0.0.1", port) for _, port in found]
    secret = np.frombuffer(secrets.token_bytes(SECRET_BYTES), np.uint8)
    return Meeting(
        job=job,
        membership=Membership(crew.nodes, crew.number, "MPI", {}),
        secret=crew.from_first(secret if crew.number == 0 else None).tobytes(),
        addresses=dict(enumerate(found[:KNOWN_MAX])),
        host=host,
    )


def _own_address(peers: Peers) -> tuple[str, Address]:
    """Return the address to listen on, and where others are to look for us."""
    host = address_of(peers.interface) if peers.interface is not None else ""
    port = peers.port or _free_port(host)
    return host, (host or socket.gethostname(), port)


def _free_port(host: str) -> int:
    """Return a port that is free now; if it is not later, those after it will do."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.bind((host, 0))
        port: int = probe.getsockname()[1]
    return port
