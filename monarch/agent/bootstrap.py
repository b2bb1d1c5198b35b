"""Finds the nodes of an agent's job, their addresses and the secret."""

from __future__ import annotations

import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from monarch.agent.control import Notifier
from monarch.cluster import (
    NodeList,
    RankRegistry,
    SingleNode,
    UnnamedNodes,
    address_of,
    find_nodes,
    given_secret,
    job_secret,
    node_name,
    open_rendezvous,
    own_addresses,
)
from monarch.cluster.nodes import HOST_LIST
from monarch.cluster.rendezvous_directory import remove_address, remove_secret
from monarch.errors import MonarchError, UsageError
from monarch.peers.membership import HUBS_MAX

if TYPE_CHECKING:
    from monarch.config import Config

POLL_S: Final = 0.2
FIRST_POLL_S: Final = 0.02
"""Short, as ranks register at the same time; each pause is doubled, up to POLL_S."""
PROGRESS_AFTER_S: Final = 1.0

Address = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Bootstrap:
    """The nodes of a job, and how their agents find and trust each other.

    Attributes:
        job: the same on each node.
        addresses: the addresses of agents that are known from the start.
        directory: where the first nodes publish their addresses.
        host: the address to listen on; "" means any.
        owns_secret: the directory has a secret of this job, to be removed at its end.
        ranks: the registry of nodes that the launch does not name.
    """

    job: str
    node_list: NodeList
    secret: bytes = field(repr=False)
    addresses: Mapping[int, Address] = field(default_factory=dict)
    directory: Path | None = None
    host: str = ""
    owns_secret: bool = False
    ranks: RankRegistry | None = None

    @property
    def number(self) -> int:
        """Return the number of this node."""
        return self.node_list.number

    @property
    def announces(self) -> bool:
        """Return whether this node prints messages that are the same on all nodes.

        The output of a launch is collected in one place; each node of a host list has
        its own terminal.
        """
        return self.number == 0 or self.node_list.source == HOST_LIST

    @property
    def nodes(self) -> tuple[str, ...]:
        """Return the names of all nodes."""
        return self.node_list.nodes

    def clean_up(self, *, job_ended: bool) -> None:
        """Remove the shared files of this node, and those of a job that has ended."""
        if self.ranks is not None:
            self.ranks.close()
        if self.directory is None or not job_ended:
            return
        if self.owns_secret:
            remove_secret(self.directory, self.job)
        for number in range(min(HUBS_MAX, len(self.nodes))):
            # Lost nodes have not removed their addresses.
            remove_address(self.directory, self.job, number)


def find_bootstrap(
    config: Config, job: str, environ: Mapping[str, str], notifier: Notifier
) -> Bootstrap | None:
    """Return how to find the other nodes of a job; None: this node works alone.

    It blocks until the secret is written and, if the launch does not name the nodes,
    until all ranks are counted.

    Raises:
        UsageError: the given hosts or interface are not valid.
    """
    if config.peers.mode == "off":
        return None
    found = find_nodes(
        environ,
        lambda path: path.read_text(errors="replace"),
        config.hosts,
        _own_names(environ),
    )
    try:
        if isinstance(found, UnnamedNodes):
            return _count_ranks(config, job, environ, found, notifier)
        if not isinstance(found, SingleNode):
            return _bootstrap(config, job, environ, found)
    except UsageError:
        raise
    except MonarchError as error:
        notifier.warn(f"this node works alone: {error}")
        return None
    if found.expected:
        notifier.warn(f"this node works alone: {found.reason}")
    return None


def _count_ranks(
    config: Config,
    job: str,
    environ: Mapping[str, str],
    launch: UnnamedNodes,
    notifier: Notifier,
) -> Bootstrap:
    """Wait until the nodes have registered all ranks of the launch.

    Raises:
        MonarchError: they have not registered in time.
    """
    directory = open_rendezvous(config.peers.rendezvous, environ)
    ranks = RankRegistry(directory, job, node_name(environ), launch)
    started_s, pause_s = time.monotonic(), FIRST_POLL_S
    try:
        while (node_list := ranks.poll()) is None:
            age_s = time.monotonic() - started_s
            if age_s > config.peers.join_timeout:
                raise MonarchError(ranks.reason)
            if age_s > PROGRESS_AFTER_S:
                notifier.progress(
                    f"waiting for nodes: {ranks.counted} of {launch.size} ranks"
                )
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, POLL_S)
        return replace(_bootstrap(config, job, environ, node_list), ranks=ranks)
    except MonarchError:
        ranks.close()
        raise


def _own_names(environ: Mapping[str, str]) -> list[str]:
    """Return the names that a host list may use for this node."""
    names = [node_name(environ)]
    if not environ.get("MONARCH_STAGING_NODE"):
        names += [socket.gethostname(), *own_addresses()]
    return list(dict.fromkeys(names))


def _bootstrap(
    config: Config, job: str, environ: Mapping[str, str], node_list: NodeList
) -> Bootstrap:
    peers, nodes = config.peers, node_list.nodes
    addresses = {
        number: (nodes[number], port) for number, port in node_list.ports.items()
    }
    if peers.port:
        for number, name in enumerate(nodes[:HUBS_MAX]):
            addresses.setdefault(number, (name, peers.port))
    host = address_of(peers.interface) if peers.interface is not None else ""
    if peers.secret_file is not None and addresses:
        secret = given_secret(peers.secret_file)
        return Bootstrap(job, node_list, secret, addresses, host=host)
    directory = open_rendezvous(peers.rendezvous, environ)
    if peers.secret_file is not None:
        secret = given_secret(peers.secret_file)
        return Bootstrap(job, node_list, secret, addresses, directory, host)
    secret = job_secret(directory, job)
    return Bootstrap(
        job, node_list, secret, addresses, directory, host, owns_secret=True
    )
