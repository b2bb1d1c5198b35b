"""Nodes as processes: killed, frozen, and cut off from each other."""

import json
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parents[1] / "support" / "mesh_node.py"
PATIENCE_S = 20.0
# A node that falls silent is given up after five beats of half a second.
KNOWN_WITHIN_S = 6.0


@dataclass
class Node:
    """A running node, and the lines that it has not been asked for yet."""

    process: "subprocess.Popen[bytes]"
    rest: bytes = b""

    def sees(self, *numbers: int, within_s: float = PATIENCE_S) -> None:
        """Waits until the node says, after now, that exactly these nodes are there."""
        began_s = time.monotonic()
        last = None
        while (left_s := began_s + within_s - time.monotonic()) > 0:
            line = self._line(left_s)
            if line is None:
                break
            said_s, last = line
            if said_s >= began_s and last == list(numbers):
                return
        pytest.fail(f"last saw {last}, not {list(numbers)}")

    def _line(self, timeout_s: float) -> tuple[float, list[int]] | None:
        stdout = self.process.stdout
        assert stdout is not None
        while b"\n" not in self.rest:
            if not select.select([stdout], [], [], timeout_s)[0]:
                return None
            piece = stdout.read1(65536)  # type: ignore[attr-defined]
            assert piece, "the node has ended"
            self.rest += piece
        line, _, self.rest = self.rest.partition(b"\n")
        said_s, numbers = json.loads(line)
        return said_s, numbers


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Node]]:
    """A function that starts a node; whatever happens to it, it is gone afterwards."""
    with ExitStack() as processes:

        def start_it(
            number: int,
            nodes: int,
            host: str = "127.0.0.1",
            prefix: tuple[str, ...] = (),
        ) -> Node:
            own = (sys.executable, str(PROGRAM), str(tmp_path), str(number), str(nodes))
            process = subprocess.Popen(
                (*prefix, *own, host),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
            )
            processes.enter_context(process)
            processes.callback(process.kill)
            return Node(process)

        yield start_it


@pytest.fixture
def four(start) -> list[Node]:
    """Four nodes that see each other."""
    nodes = [start(number, 4) for number in range(4)]
    for node in nodes:
        node.sees(0, 1, 2, 3)
    return nodes


def test_a_killed_node_is_noticed_within_seconds(four):
    four[2].process.kill()

    for node in (four[0], four[1], four[3]):
        node.sees(0, 1, 3, within_s=KNOWN_WITHIN_S)


def test_a_killed_hub_is_replaced_and_the_rest_stay_together(four, start):
    four[0].process.kill()
    for node in four[1:]:
        node.sees(1, 2, 3)

    again = start(0, 4)

    for node in (again, *four[1:]):
        node.sees(0, 1, 2, 3)


@pytest.mark.parametrize("number", [0, 3], ids=["the hub", "another"])
def test_a_frozen_node_is_given_up_and_rejoins_when_it_thaws(four, number):
    rest = [node for node in four if node is not four[number]]
    four[number].process.send_signal(signal.SIGSTOP)
    for node in rest:
        node.sees(*(n for n in range(4) if n != number), within_s=2 * KNOWN_WITHIN_S)

    four[number].process.send_signal(signal.SIGCONT)

    for node in four:
        node.sees(0, 1, 2, 3)


def test_a_node_whose_input_ends_leaves_in_order(four):
    four[3].process.communicate(timeout=PATIENCE_S)

    assert four[3].process.returncode == 0
    for node in four[:3]:
        node.sees(0, 1, 2, within_s=KNOWN_WITHIN_S)


@pytest.fixture
def spaces(tool) -> Iterator[list[str]]:
    """Two network namespaces with a link between them: 10.213.7.1 and 10.213.7.2."""
    ip, names = tool("ip"), [f"mn{end}-{time.monotonic_ns():x}" for end in "ab"]

    def do(*words: str) -> None:
        subprocess.run((ip, *words), check=True, capture_output=True, timeout=20)

    with ExitStack() as undo:
        for name in names:
            do("netns", "add", name)
            undo.callback(do, "netns", "delete", name)
        first, second = names
        link = ("link", "add", "veth0", "netns", first, "type", "veth")
        do(*link, "peer", "name", "veth0", "netns", second)
        for number, name in enumerate(names, 1):
            do("-n", name, "address", "add", f"10.213.7.{number}/24", "dev", "veth0")
            do("-n", name, "link", "set", "veth0", "up")
            do("-n", name, "link", "set", "lo", "up")
        yield names


@pytest.mark.root
def test_a_cut_link_is_noticed_on_both_sides_and_heals(spaces, start, tool):
    ip = tool("ip")
    nodes = [
        start(number, 2, f"10.213.7.{number + 1}", (ip, "netns", "exec", name))
        for number, name in enumerate(spaces)
    ]
    for node in nodes:
        node.sees(0, 1)

    set_link = (ip, "-n", spaces[0], "link", "set", "veth0")
    subprocess.run((*set_link, "down"), check=True, timeout=20)
    nodes[0].sees(0, within_s=KNOWN_WITHIN_S)
    nodes[1].sees(1, within_s=KNOWN_WITHIN_S)

    subprocess.run((*set_link, "up"), check=True, timeout=20)
    for node in nodes:
        node.sees(0, 1)
