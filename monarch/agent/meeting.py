"""Where the agents of a job meet, and what proves that they belong to it."""

import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from monarch.agent.setup import Setup
from monarch.cluster import (
    Alone,
    Membership,
    address_of,
    find_members,
    job_secret,
    node_name,
    read_secret,
    rendezvous_directory,
)
from monarch.cluster.secret import remove_secret
from monarch.errors import MonarchError, UsageError

# As many nodes as may hold the others together are looked for at a known port.
KNOWN_MAX: Final = 3

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
    """

    job: str
    membership: Membership
    secret: bytes
    addresses: Mapping[int, Address] = field(default_factory=dict)
    directory: Path | None = None
    host: str = ""
    made: bool = False

    @property
    def number(self) -> int:
        """Return which of the nodes this is."""
        return self.membership.number

    @property
    def nodes(self) -> tuple[str, ...]:
        """Return the names of all nodes."""
        return self.membership.nodes

    def forget(self) -> None:
        """Remove the secret of a job that has ended."""
        if self.made and self.directory is not None:
            remove_secret(self.directory, self.job)


def find_meeting(
    setup: Setup, job: str, environ: Mapping[str, str], warn: Callable[[str], None]
) -> Meeting | None:
    """Find the other nodes of a job; None: this one works alone.

    It may wait for another node to write the secret, so call it beside the loop.

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
    if isinstance(members, Alone):
        if members.expected:
            warn(f"this node works alone: {members.why}")
        return None
    try:
        return _meeting(setup, job, environ, members)
    except UsageError:
        raise
    except MonarchError as error:
        warn(f"this node works alone: {error}")
        return None


def _names(environ: Mapping[str, str]) -> list[str]:
    named = [node_name(environ)]
    if not environ.get("MONARCH_STAGING_NODE"):
        named += [socket.gethostname(), socket.getfqdn()]
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
        secret = read_secret(Path(peers.secret_file))
        return Meeting(job, members, secret, addresses, host=host)
    directory = rendezvous_directory(peers.rendezvous, environ)
    if peers.secret_file is not None:
        secret = read_secret(Path(peers.secret_file))
        return Meeting(job, members, secret, addresses, directory, host)
    secret = job_secret(directory, job)
    return Meeting(job, members, secret, addresses, directory, host, made=True)
