"""Where the agents of a job meet, and what proves that they belong to it."""

import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from monarch.agent.control import Notifier
from monarch.agent.setup import Setup
from monarch.cluster import (
    Alone,
    Census,
    Membership,
    Scattered,
    address_of,
    find_members,
    given_secret,
    job_secret,
    node_name,
    own_addresses,
    rendezvous_directory,
)
from monarch.cluster.address_files import remove_address
from monarch.cluster.nodes import HOST_LIST
from monarch.cluster.rendezvous_directory import remove_secret
from monarch.errors import MonarchError, UsageError

# As many nodes as may hold the others together are looked for at a known port.
KNOWN_MAX: Final = 3
LOOK_S: Final = 0.2
TELL_AFTER_S: Final = 1.0

Address = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Meeting:
    """The nodes of a job, and how their agents find and trust each other.

    Attributes:
        job: the same on each node.
        addresses: where agents listen that are known from the start.
        directory: where the first nodes leave their addresses for the others.
        host: the address to listen on; "" means any.
        made: the directory holds a secret of this job, to be removed at its end.
        census: how the nodes were found that nothing had named.
    """

    job: str
    membership: Membership
    secret: bytes
    addresses: Mapping[int, Address] = field(default_factory=dict)
    directory: Path | None = None
    host: str = ""
    made: bool = False
    census: Census | None = None

    @property
    def number(self) -> int:
        """Return which of the nodes this is."""
        return self.membership.number

    @property
    def speaks(self) -> bool:
        """Return whether we say what all nodes would say alike.

        What a launch prints comes together in one place; hosts have a terminal each.
        """
        return self.number == 0 or self.membership.source == HOST_LIST

    @property
    def nodes(self) -> tuple[str, ...]:
        """Return the names of all nodes."""
        return self.membership.nodes

    def leave(self, *, ended: bool) -> None:
        """Remove what we have left for others, and all of it if the job has ended."""
        if self.census is not None:
            self.census.close()
        if self.directory is None or not ended:
            return
        if self.made:
            remove_secret(self.directory, self.job)
        for number in range(min(KNOWN_MAX, len(self.nodes))):
            remove_address(self.directory, self.job, number)  # of those that were lost


def find_meeting(
    setup: Setup, job: str, environ: Mapping[str, str], notifier: Notifier
) -> Meeting | None:
    """Find the other nodes of a job; None: this one works alone.

    It waits for other nodes to sign in where nothing names them, and for the secret.

    Raises:
        UsageError: the hosts or the interface that were given cannot be meant.
    """
    if setup.config.peers.mode == "off":
        return None
    members = find_members(
        environ,
        lambda path: path.read_text(errors="replace"),
        setup.config.hosts,
        _names(environ),
    )
    try:
        if isinstance(members, Scattered):
            return _counted(setup, job, environ, members, notifier)
        if not isinstance(members, Alone):
            return _meeting(setup, job, environ, members)
    except UsageError:
        raise
    except MonarchError as error:
        notifier.warn(f"this node works alone: {error}")
        return None
    if members.expected:
        notifier.warn(f"this node works alone: {members.why}")
    return None


def _counted(
    setup: Setup,
    job: str,
    environ: Mapping[str, str],
    scattered: Scattered,
    notifier: Notifier,
) -> Meeting:
    """Wait until the nodes have all ranks of the launch.

    Raises:
        MonarchError: they have not, in time.
    """
    directory = rendezvous_directory(setup.config.peers.rendezvous, environ)
    census = Census(directory, job, node_name(environ), scattered)
    started_s = time.monotonic()
    try:
        while (members := census.look()) is None:
            age_s = time.monotonic() - started_s
            if age_s > setup.config.peers.join_timeout:
                raise MonarchError(census.why)
            if age_s > TELL_AFTER_S:
                notifier.progress(
                    f"waiting for nodes: {census.counted} of {scattered.size} ranks"
                )
            time.sleep(LOOK_S)
        return replace(_meeting(setup, job, environ, members), census=census)
    except MonarchError:
        census.close()
        raise


def _names(environ: Mapping[str, str]) -> list[str]:
    named = [node_name(environ)]
    if not environ.get("MONARCH_STAGING_NODE"):
        named += [socket.gethostname(), *own_addresses()]
    return list(dict.fromkeys(named))


def _meeting(
    setup: Setup, job: str, environ: Mapping[str, str], members: Membership
) -> Meeting:
    peers = setup.config.peers
    addresses = {
        number: (members.nodes[number], port) for number, port in members.ports.items()
    }
    if peers.port:
        for number, name in enumerate(members.nodes[:KNOWN_MAX]):
            addresses.setdefault(number, (name, peers.port))
    host = address_of(peers.interface) if peers.interface is not None else ""
    if peers.secret_file is not None and addresses:
        secret = given_secret(peers.secret_file)
        return Meeting(job, members, secret, addresses, host=host)
    directory = rendezvous_directory(peers.rendezvous, environ)
    if peers.secret_file is not None:
        secret = given_secret(peers.secret_file)
        return Meeting(job, members, secret, addresses, directory, host)
    secret = job_secret(directory, job)
    return Meeting(job, members, secret, addresses, directory, host, made=True)
