"""The bootstrap of agents that MPI has launched: MPI carries addresses and secret."""

from __future__ import annotations

import secrets
import socket
from typing import TYPE_CHECKING

from monarch.agent.bootstrap import Address, Bootstrap
from monarch.cluster import NodeList, address_of
from monarch.cluster.rendezvous_directory import SECRET_BYTES
from monarch.errors import UsageError
from monarch.mpi.ranks import Ranks
from monarch.peers.membership import HUBS_MAX

if TYPE_CHECKING:
    from monarch.config.schema import Peers


def bootstrap_by_mpi(ranks: Ranks, job: str, peers: Peers) -> Bootstrap:
    """Return the bootstrap of the nodes' agents; called on all nodes.

    Raises:
        UsageError: the same on every node, if the options of one node differ.
    """
    for node, name in zip(ranks.nodes, ranks.all_of(job), strict=True):
        if name != job:
            raise UsageError(f"--job: is {name} on {node}, but {job} here")
    host, address = ranks.agreed(lambda: _own_address(peers))
    found: list[Address] = ranks.all_of(address)
    if len({name for name, _ in found}) == 1 and not host:
        # All nodes are on one machine, whose name may not resolve.
        found = [("127.0.0.1", port) for _, port in found]
    secret = secrets.token_bytes(SECRET_BYTES) if ranks.number == 0 else b""
    return Bootstrap(
        job=job,
        node_list=NodeList(ranks.nodes, ranks.number, "MPI", {}),
        secret=ranks.all_of(secret)[0],
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
