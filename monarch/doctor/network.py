"""Checks whether the agents of a job's nodes can find, reach and trust each other."""

from __future__ import annotations

import errno
import os
import socket
import stat
import tempfile
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Final

from monarch.cluster import (
    NodeList,
    SingleNode,
    address_of,
    find_nodes,
    node_name,
    open_rendezvous,
    own_addresses,
)
from monarch.doctor.findings import Finding, note, ok, prevents, warning
from monarch.doctor.storage import file_system
from monarch.errors import MonarchError, UsageError
from monarch.native import seal_library
from monarch.report.format import listed, many

if TYPE_CHECKING:
    from monarch.config import Config

REACH_S: Final = 2.0
REACHED_AT_ONCE: Final = 64
NAMES_MAX: Final = 8
NO_ADDRESS: Final = "no address is known for this name"
# Any port of those that systems assign: it only matters that the node answers.
SOME_PORT: Final = 49152
# With a switch or a bond in between, the name shows nothing.
_FAST: Final = ("ib", "hsn", "opa")
_SETTINGS: Final = Path("/proc/sys/net/ipv4")


def check_network(config: Config, environ: Mapping[str, str]) -> Iterator[Finding]:
    """Check the nodes of the job, and the connections between them."""
    if config.peers.mode == "off":
        yield note("nodes", "peers.mode is off: every node works alone")
        return
    nodes = _nodes(config, environ)
    if isinstance(nodes, NodeList):
        names = listed(nodes.nodes, NAMES_MAX)
        yield ok(
            "nodes", f"{many(len(nodes.nodes), 'nodes')}, by {nodes.source}: {names}"
        )
    elif nodes.expected:
        fix = "name the nodes (--hosts, MONARCH_STAGING_NODE) or a shared directory"
        yield warning("nodes", f"this node works alone: {nodes.reason}", fix)
    else:
        yield ok("nodes", f"one node: {nodes.reason}")
    has_others = isinstance(nodes, NodeList) and len(nodes.nodes) > 1
    host = ""
    try:
        host = address_of(config.peers.interface) if config.peers.interface else ""
        yield from _interfaces(host)
    except UsageError as error:
        text, _, fix = str(error).partition("; ")
        yield prevents("interface", text, fix)
    yield from _congestion()
    yield from _rendezvous(config, environ, has_others)
    if seal_library() is None:
        text = "libcrypto is missing: files from peers are verified by checksum only"
        yield note("integrity", text, "install OpenSSL 3")
    if isinstance(nodes, NodeList):
        yield from _reach(nodes, config.peers.port or SOME_PORT, host)


def _nodes(config: Config, environ: Mapping[str, str]) -> NodeList | SingleNode:
    names = [node_name(environ), socket.gethostname(), *own_addresses()]
    try:
        return find_nodes(
            environ,
            lambda path: path.read_text(errors="replace"),
            config.hosts,
            list(dict.fromkeys(names)),
        )
    except UsageError as error:
        return SingleNode(str(error), expected=True)


# -- the interface ------------------------------------------------------------------


def _interfaces(host: str) -> Iterator[Finding]:
    """Check whether agents use the fast one of several interfaces."""
    import psutil

    fast = [
        name
        for name, state in psutil.net_if_stats().items()
        if state.isup and name.startswith(_FAST)
    ]
    if host:
        yield ok("interface", f"agents listen at {host}")
    elif fast:
        yield warning(
            "interface",
            f"{fast[0]} is up, but agents use the addresses of the node names",
            f"peers: {{interface: {fast[0]}}}",
        )
    elif own := own_addresses():
        yield ok("interface", f"any; addresses of this node: {listed(own, NAMES_MAX)}")
    else:
        fix = "nothing for a job of one node; otherwise bring an interface up"
        yield note("interface", "this node has only a loopback address", fix)


def _congestion() -> Iterator[Finding]:
    """Check for BBR, whose pacing slows local links; agents replace it if permitted."""
    with socket.socket() as tcp:
        try:
            got = tcp.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16)
        except OSError:
            return  # an old kernel, or a sandbox
    name = got.split(b"\0")[0].decode()
    try:
        allowed = (_SETTINGS / "tcp_allowed_congestion_control").read_text().split()
    except OSError:
        allowed = ["reno"]
    if not name.startswith("bbr"):
        yield ok("congestion", f"TCP congestion control is {name}")
    elif {"cubic", "reno"} & set(allowed):
        yield ok("congestion", f"TCP congestion control is {name}; agents use another")
    else:
        yield warning(
            "congestion",
            f"TCP congestion control is {name}, which is slow on local links",
            "sysctl net.ipv4.tcp_allowed_congestion_control='cubic reno bbr'",
        )


def _reach(nodes: NodeList, port: int, host: str) -> Iterator[Finding]:
    """Connect to each other node; a refusal is an answer, too."""
    others = [(n, name) for n, name in enumerate(nodes.nodes) if n != nodes.number]
    if not others:
        return
    with ThreadPoolExecutor(REACHED_AT_ONCE) as pool:
        reasons = pool.map(
            lambda one: why_unreachable(one[1], nodes.ports.get(one[0], port), host),
            others,
        )
        found = [(name, r) for (_, name), r in zip(others, reasons, strict=True) if r]
    if reached := len(others) - len(found):
        yield ok("peers", f"{many(reached, 'nodes')} can be reached")
    if unknown := [name for name, reason in found if reason == NO_ADDRESS]:
        yield note(
            "peers",
            f"{listed(unknown, NAMES_MAX)}: {NO_ADDRESS}; nodes of a job tell each "
            "other their addresses in the rendezvous directory",
            "nothing, unless a job reports that the node is missing",
        )
    lost = [(name, reason) for name, reason in found if reason != NO_ADDRESS]
    for name, reason in lost[:NAMES_MAX]:
        yield warning(
            "peers",
            f"{name} cannot be reached: {reason}; its files are read from the origin",
            "peers.interface, the name of the node, or the firewall between them",
        )
    if len(lost) > NAMES_MAX:
        rest = many(len(lost) - NAMES_MAX, "more nodes")
        yield warning("peers", f"{rest} cannot be reached", "see above")


def why_unreachable(name: str, port: int, host: str = "") -> str:
    """Return why a node cannot be reached; "" if it answers, even by a refusal.

    Args:
        host: the address of this node from which to connect; "": any.
    """
    source = (host, 0) if host else None
    try:
        socket.create_connection((name, port), REACH_S, source).close()
    except TimeoutError:
        return f"no answer at port {port} within {REACH_S:g} s"
    except socket.gaierror:
        return NO_ADDRESS
    except OSError as error:
        refused = error.errno == errno.ECONNREFUSED
        return "" if refused else str(error.strerror or error)
    return ""


# -- the rendezvous directory -------------------------------------------------------


def _rendezvous(
    config: Config, environ: Mapping[str, str], has_others: bool
) -> Iterator[Finding]:
    """Check whether the rendezvous directory is private, and shared by the nodes."""
    check, fix = "rendezvous", "peers.rendezvous: a directory of yours on a shared disk"
    try:
        path = open_rendezvous(config.peers.rendezvous, environ)
        with tempfile.TemporaryFile(dir=path):
            pass
        found = path.stat()
    except MonarchError as error:
        text = str(error).removeprefix("peers.rendezvous: ").partition("; ")[0]
        yield _grave(has_others)(check, text, fix)
        return
    except OSError as error:
        text = f"{config.peers.rendezvous or 'the default'}: {error.strerror}"
        yield _grave(has_others)(check, text, fix)
        return
    kind = file_system(path)
    mode = stat.S_IMODE(found.st_mode)
    text = f"{path}: {kind.kind}, owner {found.st_uid}, mode {mode:04o}"
    if has_others and not kind.is_shared:
        yield warning(check, f"{text}; other nodes may have another one", fix)
    else:
        yield ok(check, text)
    if mode & 0o077 and found.st_uid == os.geteuid():
        private = "others can see which jobs you run"
        yield note(check, f"{path} is not private: {private}", f"chmod 700 {path}")


def _grave(has_others: bool) -> Callable[[str, str, str], Finding]:
    return prevents if has_others else warning
