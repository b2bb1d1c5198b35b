"""Nodes that stage together as threads of one process, with Tiers of their own."""

import queue
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from monarch.agent.setup import make_setup
from monarch.catalog.block import Bytes
from monarch.config import RunOptions
from monarch.errors import MonarchError
from monarch.placement import Mode
from monarch.preload.account import Account
from monarch.preload.together import Standing, Task, stage_together

PATIENCE_S = 60
BROKEN = threading.BrokenBarrierError
HURRY = "fill.concurrency=8"


class Sent:
    """Bytes that were copied: they may change at once."""

    def done(self) -> bool:
        """Return that they have left."""
        return True


@dataclass
class Wire:
    """What the threads of one crew share.

    Args:
        spoil: what happens to bytes on their way.
        scanned: what happens after the scan, before anything is read.
        checked: what happens when leftovers are checked, before anything is sent.
    """

    count: int
    given: list[Any] = field(default_factory=list)
    spoil: Callable[[Bytes], None] = lambda memory: None
    scanned: Callable[[], None] = lambda: None
    checked: Callable[[], None] = lambda: None

    def __post_init__(self) -> None:
        self.given = [None] * self.count
        self.meeting = threading.Barrier(self.count, timeout=PATIENCE_S)
        self.letters: list[queue.Queue[Bytes]] = [queue.Queue() for _ in self.given]


class ThreadCrew:
    """One node of a crew of threads."""

    def __init__(self, wire: Wire, number: int) -> None:
        self.nodes = tuple(f"n{one}" for one in range(wire.count))
        self.number = number
        self._wire = wire

    def all_of(self, value: Any) -> list[Any]:
        """Return what every node gives."""
        self._wire.given[self.number] = value
        self._wire.meeting.wait()
        given = list(self._wire.given)
        self._wire.meeting.wait()
        return given

    def from_first(self, memory: Bytes | None) -> Bytes:
        """Return a copy of what the first node gives."""
        if self.number == 0:
            self._wire.scanned()
        given: Bytes = self.all_of(memory)[0]
        return given.copy()

    def exchange(self, parts: Sequence[Bytes]) -> list[Bytes]:
        """Return what each node has given us."""
        if self.number == 0:
            self._wire.checked()
        return [given[self.number].copy() for given in self.all_of(list(parts))]

    def send(self, node: int, memory: Bytes) -> Sent:
        """Put a copy into the other's queue."""
        letter = memory.copy()
        self._wire.spoil(letter)
        self._wire.letters[node].put(letter)
        return Sent()

    def receive(self) -> Bytes | None:
        """Take the next letter."""
        try:
            return self._wire.letters[self.number].get_nowait()
        except queue.Empty:
            return None


class Silent:
    """Tells nobody anything."""

    def warn(self, text: str) -> None:
        """Fail: nothing in these tests is worth a warning."""
        raise AssertionError(text)

    def scanning(self, path: str, entries: int) -> None:
        """Ignore how far a scan is."""

    def staging(self, done: Standing) -> None:
        """Ignore how far the staging is."""


@dataclass
class Site:
    """Nodes with their Tiers below one directory, which stage one dataset.

    Args:
        data: the dataset as each node is given it.
        capacities: the Tier of each node.
    """

    folder: Path
    data: Sequence[Path]
    capacities: Sequence[str]
    settings: tuple[str, ...] = ("retain=node", HURRY)
    kind: str = "ssd"
    wire: Wire | None = None

    def tier(self, number: int) -> Path:
        """Return the directory of a node's Tier, made if it is not there."""
        path = self.folder / f"tier{number}"
        path.mkdir(exist_ok=True)
        return path

    def retained(self, number: int) -> list[Path]:
        """Return the Replicas that a node has retained."""
        found = self.tier(number).glob("monarch-*/retained-*/*")
        return sorted(path for path in found if path.suffix != ".npz")

    def run(self, number: int) -> Path:
        """Return the directory of a node's run directories."""
        path = self.folder / f"run{number}"
        path.mkdir(mode=0o700, exist_ok=True)
        return path

    def leftovers(self) -> list[Path]:
        """Return what else staging has left."""
        tiers = [self.tier(number) for number in range(len(self.capacities))]
        found = [path for tier in tiers for path in tier.glob("monarch-*/*")]
        strangers = [path for path in found if not path.name.startswith("retained-")]
        return strangers + list(self.folder.glob("run*/*"))

    def stage(self, mode: str = "replicate") -> Account:
        """Stage on all nodes at once; all must say the same."""
        wire = self.wire or Wire(len(self.capacities))
        told: list[Account | BaseException | None] = [None] * wire.count

        def work(number: int) -> None:
            try:
                told[number] = self._stage(ThreadCrew(wire, number), Mode(mode))
            except BaseException as error:
                told[number] = error
                if not isinstance(error, MonarchError):
                    wire.meeting.abort()

        threads = [
            threading.Thread(target=work, args=(one,)) for one in range(wire.count)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE_S)
        failed = [one for one in told if isinstance(one, BaseException)]
        # Who waits for a node that has failed tells less than that one.
        for one in sorted(failed, key=lambda one: isinstance(one, BROKEN)):
            raise one
        accounts = [one for one in told if isinstance(one, Account)]
        assert [one.nodes for one in accounts] == [accounts[0].nodes] * wire.count
        return accounts[0]

    def _stage(self, crew: ThreadCrew, mode: Mode) -> Account:
        number = crew.number
        options = RunOptions(
            data=(str(self.data[number]),),
            tiers=(f"{self.kind}:{self.capacities[number]}:{self.tier(number)}",),
            settings=self.settings,
        )
        run = self.run(number) / f"stage.n{number}"
        setup = make_setup(options, [], run.name, {})
        return stage_together(Task(setup, run, mode), crew, Silent())


def flip(memory: Bytes, place: int = -1) -> None:
    """Flip one bit of some bytes."""
    memory[place] ^= np.uint8(1)
