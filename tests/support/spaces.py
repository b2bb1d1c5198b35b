"""Network namespaces as nodes: a switch, and a link to each that can be disturbed.

A node's link is a pair of Ethernet devices, `eth0` in its namespace and `portN` in the
switch's. Needs root. Nothing of the machine's own network is touched.
"""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from support.processes import wait_until

WIRE = Path(__file__).with_name("tap_wire.py")
MEDDLER = Path(__file__).with_name("meddler_between.py")
TOOL_LIMIT_S = 20
SUBNET = "10.213.9"
BURST_BYTES = 256 << 10


def address_of(number: int) -> str:
    """The address of a node on the switch."""
    return f"{SUBNET}.{number + 1}"


@dataclass(frozen=True, slots=True)
class Space:
    """The namespace of one node, and its end of the switch."""

    switch: str
    name: str
    number: int
    wire: "subprocess.Popen[bytes] | None" = None

    @property
    def address(self) -> str:
        """Its address on the switch."""
        return address_of(self.number)

    @property
    def port(self) -> str:
        """The switch's end of its link."""
        return f"port{self.number}"

    @property
    def prefix(self) -> tuple[str, ...]:
        """The words before a command that runs in it."""
        return ("nsenter", f"--net=/run/netns/{self.name}")

    def cut(self) -> None:
        """Let no frame pass any more; neither end sees that the link is cut."""
        ip(self.switch, "link", "set", self.port, "nomaster")

    def heal(self) -> None:
        """Let frames pass again."""
        ip(self.switch, "link", "set", self.port, "master", "bridge")

    def limit(self, bits_per_s: int) -> None:
        """Limit the link to this bandwidth in each direction."""
        for space, device in ((self.switch, self.port), (self.name, "eth0")):
            rate = ["rate", f"{bits_per_s}bit", "burst", str(BURST_BYTES)]
            words = ["qdisc", "replace", "dev", device, "root", "tbf", *rate]
            do("tc", "-n", space, *words, "latency", "5ms")

    def tell(self, order: str) -> None:
        """Send an order to the program that is this node's link; see tap_wire.py."""
        assert self.wire is not None
        assert self.wire.stdin is not None
        self.wire.stdin.write(order.encode() + b"\n")
        self.wire.stdin.flush()

    def flipped(self) -> int:
        """How many segments were changed by the program that is this node's link."""
        self.tell("count")
        assert self.wire is not None
        assert self.wire.stdout is not None
        return int(self.wire.stdout.readline())

    def carried(self) -> tuple[int, int]:
        """The bytes sent and received by the node."""
        place = Path("/sys/class/net", self.port, "statistics")
        names = [str(place / "rx_bytes"), str(place / "tx_bytes")]
        # ip netns exec mounts a /sys with the devices of the namespace.
        words = ["ip", "netns", "exec", self.switch, "cat", *names]
        out = subprocess.run(
            words, check=True, capture_output=True, timeout=TOOL_LIMIT_S
        )
        left, came = out.stdout.split()
        return int(left), int(came)


def do(*words: str) -> None:
    """Run one of the network's tools."""
    try:
        subprocess.run(words, check=True, capture_output=True, timeout=TOOL_LIMIT_S)
    except subprocess.CalledProcessError as error:
        raise AssertionError(f"{words}: {error.stderr.decode()}") from error


def ip(space: str, *words: str) -> None:
    """Run ip in a namespace."""
    do("ip", "-n", space, *words)


@contextmanager
def switched(count: int, wired: int | None = None) -> Iterator[list[Space]]:
    """Makes namespaces on a switch; the link of node `wired` is a program."""
    mark = f"mn{os.getpid():x}{time.monotonic_ns() & 0xFFFFFF:x}"
    switch = f"{mark}-sw"
    with ExitStack() as undo:
        _add_space(switch, undo)
        ip(switch, "link", "add", "bridge", "type", "bridge", "forward_delay", "0")
        ip(switch, "link", "set", "bridge", "up")
        spaces = []
        for number in range(count):
            name = f"{mark}-{number}"
            _add_space(name, undo)
            wire = undo.enter_context(_wire(name, switch)) if number == wired else None
            space = Space(switch, name, number, wire)
            _connect(space)
            spaces.append(space)
        yield spaces


@dataclass(frozen=True, slots=True)
class Between:
    """Two nodes, and the program between them."""

    nodes: list[Space]
    program: "subprocess.Popen[str]"

    def tell(self, order: str) -> None:
        """Send an order to the program; see meddler_between.py."""
        assert self.program.stdin is not None
        self.program.stdin.write(order + "\n")
        self.program.stdin.flush()

    def count(self) -> tuple[int, int, int]:
        """How many replies were changed, frames meddled with, and sessions begun."""
        self.tell("count")
        assert self.program.stdout is not None
        changed, meddled, joins = self.program.stdout.readline().split()
        return int(changed), int(meddled), int(joins)


@contextmanager
def meddled(folder: Path) -> Iterator[Between]:
    """Makes two namespaces whose only way to each other is a program.

    Args:
        folder: by which the nodes will find each other.
    """
    mark = f"mn{os.getpid():x}{time.monotonic_ns() & 0xFFFFFF:x}"
    with ExitStack() as undo:
        nodes, sides = [], []
        for number in (0, 1):
            node = Space("", f"{mark}-{number}", number)
            side = Space("", f"{mark}-m{number}", 1 - number)
            for space in (node, side):
                _add_space(space.name, undo)
            link = ["link", "add", "eth0", "netns", node.name, "type", "veth"]
            ip(side.name, *link, "peer", "name", "eth0")
            for space in (node, side):
                _raise_link(space)
            nodes.append(node)
            sides.append(side.name)
        program = undo.enter_context(_program([str(MEDDLER), *sides, str(folder)]))
        yield Between(nodes, program)


def _raise_link(space: Space) -> None:
    ip(space.name, "address", "add", f"{space.address}/24", "dev", "eth0")
    ip(space.name, "link", "set", "eth0", "up")


@contextmanager
def _program(words: list[str]) -> Iterator["subprocess.Popen[str]"]:
    here = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    with subprocess.Popen(
        [sys.executable, *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=here,
        text=True,
    ) as program:
        try:
            assert program.stdout is not None
            assert program.stdout.readline() == "ready\n"
            yield program
        finally:
            program.kill()


def _add_space(name: str, undo: ExitStack) -> None:
    do("ip", "netns", "add", name)
    undo.callback(do, "ip", "netns", "delete", name)
    ip(name, "link", "set", "lo", "up")


@contextmanager
def _wire(name: str, switch: str) -> Iterator["subprocess.Popen[bytes]"]:
    """Starts the program that is a link; it makes the devices of both ends."""
    with subprocess.Popen(
        [sys.executable, str(WIRE), f"/run/netns/{name}", f"/run/netns/{switch}"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as wire:
        try:
            assert wire.stdout is not None
            assert wire.stdout.readline() == b"ready\n"
            yield wire
        finally:
            wire.kill()


def _connect(space: Space) -> None:
    if space.wire is None:
        link = ["link", "add", "eth0", "netns", space.name, "type", "veth"]
        ip(space.switch, *link, "peer", "name", space.port)
    else:
        ip(space.switch, "link", "set", "tap", "name", space.port)
    ip(space.switch, "link", "set", space.port, "master", "bridge", "up")
    ip(space.name, "address", "add", f"{space.address}/24", "dev", "eth0")
    ip(space.name, "link", "set", "eth0", "up")
    wait_until(lambda: _is_up(space), f"{space.name} to be up")


def _is_up(space: Space) -> bool:
    words = ["ip", "-n", space.name, "-br", "link", "show", "eth0"]
    shown = subprocess.run(words, check=True, capture_output=True, timeout=TOOL_LIMIT_S)
    return b"LOWER_UP" in shown.stdout
