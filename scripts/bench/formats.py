"""Formats of large files, read by their own programs: on one node and on four.

The origin is the tests' counting file system, throttled; its counts tell what has been
read of it. Each format is read straight from the origin, from a copy by hand on the
Tier's medium, and under Monarch with its defaults: three epochs, which begin together
on all nodes. Nodes share this machine, and each is a process of one reader. Datasets
lie on disk, Tiers and copies in /dev/shm; both go before the next format is made.

The kernel caches no bytes of the origin, but where a program that reads it directly
maps them. There all nodes have one page cache, which none have in truth: what four
nodes read directly then takes too little time, to our disadvantage.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
from format_files import FORMATS, SUM, Format
from table import Row, print_rows

from monarch.tiers.pool import TIER_PARTS

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

from support import countfs
from support.commands import Command
from support.nodes import Node
from support.processes import wait_until

MIB, GIB = 1 << 20, 1 << 30
SIZES = {"tfrecord": 2 * GIB, "hdf5-chunked": 4 * GIB, "hdf5-contiguous": 4 * GIB}
SIZE = GIB
QUICK = 16
"""How many times smaller datasets are where a figure is needed soon."""
BYTES_PER_S = 200_000_000
EPOCHS = 3
LIMIT_S = 600.0
NAMES = "abcd"
# How many nodes there are, and what each of them reads.
SETTINGS = {
    "1 node": (1, "everything"),
    "4 nodes, each a part": (4, "dealt"),
    "4 nodes, each everything": (4, "everything"),
}
ROOM = 1.1
"""What a Tier has room for, in datasets."""
SPARE_BYTES = 2 * GIB
"""Memory for all else that runs."""
PROGRAM = str(Path(__file__).with_name("format_files.py"))


@dataclass(frozen=True, slots=True)
class Epoch:
    """One pass of all nodes, and what they have read, in one sum."""

    seconds: float
    total: int


@dataclass(frozen=True, slots=True)
class Pass:
    """The epochs of one job.

    Attributes:
        early_bytes: what the origin had given when the readers began,
        origin_bytes: and in all.
    """

    epochs: list[Epoch]
    early_bytes: int
    origin_bytes: int


@dataclass(frozen=True, slots=True)
class Site:
    """The dataset of a format at an origin.

    Args:
        work: a directory in memory.
    """

    monarch: str
    name: str
    work: Path
    origin: countfs.CountFs

    @property
    def size(self) -> int:
        """The bytes of the dataset."""
        source = self.origin.source
        return sum(path.stat().st_size for path in source.rglob("*") if path.is_file())

    @property
    def format(self) -> Format:
        """The format."""
        return FORMATS[self.name]

    def directly(self, setting: str, root: Path, epochs: int) -> list[Epoch]:
        """Read without Monarch."""
        self.origin.set(cached=int(self.format.mapped))
        return self._read(setting, root, epochs, monarch=False).epochs

    def under_monarch(self, setting: str) -> Pass:
        """Read all epochs under Monarch."""
        # A mapped file that is waited for is never mapped at the origin.
        unseen = self.format.mapped and not self.format.recognised
        self.origin.set(cached=int(unseen), reset=1)
        return self._read(setting, self.origin.root, EPOCHS, monarch=True)

    def _read(self, setting: str, root: Path, epochs: int, *, monarch: bool) -> Pass:
        """Run a reader on each node, all in one directory that goes afterwards."""
        nodes, sharing = SETTINGS[setting]
        with tempfile.TemporaryDirectory(dir=self.work, prefix="job-") as base:
            folder, running = Path(base), []
            launcher = self._launcher(folder, nodes) if monarch else []
            (folder / "meetings").mkdir()
            for number in range(nodes):
                node = Node(number, NAMES[number], folder / NAMES[number])
                node.run_root.mkdir(mode=0o700, parents=True)
                words = [sys.executable, PROGRAM, "read", self.name, str(root)]
                words += [str(number), str(nodes), sharing, str(epochs)]
                line = [*launcher, *words, str(folder / "meetings")]
                running.append(Command.start(line, folder / str(number), node.environ))
            try:
                before = self._start_together(folder / "meetings", running)
                told = [one.end(LIMIT_S).well().stdout for one in running]
            finally:
                for one in running:
                    one.kill()
            return Pass(epochs_of(told), before, self.origin.counts().read_bytes)

    def _start_together(self, meetings: Path, running: Sequence[Command]) -> int:
        """Let the first epoch begin; return what had been read of the origin before."""

        def all_there() -> bool:
            ended = any(not one.is_running for one in running)
            return ended or len(list(meetings.glob("at-0/*"))) == len(running)

        wait_until(all_there, "start of all readers")
        before = self.origin.counts().read_bytes
        (meetings / "go").touch()
        return before

    def _launcher(self, folder: Path, nodes: int) -> list[str]:
        """`monarch run ... --`, the same on each node."""
        size = int(ROOM * self.size * TIER_PARTS / (TIER_PARTS - 1))  # and the Pool
        tier = f"ram:{size}B:{folder}"
        words = [self.monarch, "run", "-q", "--strict", "--tier", tier]
        words += ["--data", str(self.origin.root)]
        if nodes > 1:
            (folder / "meet").mkdir(mode=0o700)
            words += ["--hosts", ",".join(NAMES[:nodes])]
            words += ["--set", "peers.interface=127.0.0.1"]
            words += ["--set", f"peers.rendezvous={folder / 'meet'}"]
        return [*words, "--"]


def epochs_of(told: Sequence[str]) -> list[Epoch]:
    """The epochs that the programs of all nodes tell of."""
    lines = [[line.split() for line in text.splitlines()] for text in told]
    found = []
    for of_nodes in zip(*lines, strict=True):
        begins, ends, totals = zip(*of_nodes, strict=True)
        seconds = max(map(float, ends)) - min(map(float, begins))
        found.append(Epoch(seconds, sum(map(int, totals)) % SUM))
    return found


@contextmanager
def site(monarch: str, name: str, work: Path, size: int) -> Iterator[Site]:
    """A dataset on disk, at an origin, until the block ends."""
    with tempfile.TemporaryDirectory(prefix="monarch-bench-", dir="/var/tmp") as base:
        source, root = Path(base) / "source", work / "origin"
        source.mkdir()
        root.mkdir()
        make = [sys.executable, PROGRAM, "make", name, str(source), str(size)]
        subprocess.run(make, check=True)
        with countfs.mounted(countfs.build(), source, root, bw=BYTES_PER_S) as origin:
            yield Site(monarch, name, work, origin)
        root.rmdir()


def by_hand(place: Site) -> dict[str, list[Epoch]]:
    """All epochs of each setting on a copy."""
    copy = place.work / "copy"
    shutil.copytree(place.origin.source, copy)
    found = {one: place.directly(one, copy, EPOCHS) for one in SETTINGS}
    shutil.rmtree(copy)
    return found


def rows_of(place: Site, setting: str, copied: Sequence[Epoch]) -> list[Row]:
    """What a setting is judged by."""
    [direct] = place.directly(setting, place.origin.root, 1)
    job = place.under_monarch(setting)
    ours, what = job.epochs, f"{place.name}, {setting}"
    # What fill has read while programs started is not a gain of their first epoch.
    early_s = job.early_bytes / BYTES_PER_S
    right = sum(one.total == copied[0].total for one in (direct, *ours))
    last, by_hand_s = (min(e.seconds for e in one[1:]) for one in (ours, copied))
    taken = " + ".join(f"{one.seconds:.2f}" for one in ours)
    return [
        Row(
            f"{what}: the bytes of the dataset",
            f"{right - 1} of {len(ours)} epochs",
            "a copy by hand",
            right / (1 + len(ours)),
            1,
            at_least=True,
        ),
        Row(
            f"{what}: origin bytes of {EPOCHS} epochs",
            f"{job.origin_bytes:,}",
            f"{place.size:,} in the dataset",
            job.origin_bytes / place.size,
            1.02,
        ),
        Row(
            f"{what}: epoch 1",
            f"{ours[0].seconds:.2f} s, and {early_s:.2f} s of fill before it",
            f"{direct.seconds:.2f} s direct",
            (ours[0].seconds + early_s) / direct.seconds,
            1.05,
        ),
        Row(
            f"{what}: later",
            f"{last:.3f} s, of {taken}",
            f"{by_hand_s:.3f} s copied by hand",
            last / by_hand_s,
            1.05,
        ),
    ]


def hindrance(name: str, size: int) -> str | None:
    """Why a format cannot be measured here, or None."""
    if lacks := FORMATS[name].lacks():
        return f"needs {', '.join(lacks)}"
    most = max(nodes for nodes, _ in SETTINGS.values())
    wanted = int(most * ROOM * size) + SPARE_BYTES
    if psutil.virtual_memory().available < wanted:
        return f"needs {wanted / GIB:.0f} GiB of free memory"
    return None


def measure(
    monarch: str, work: Path, *, quick: bool, names: Sequence[str] = tuple(FORMATS)
) -> list[Row]:
    """Measure some formats, one after another; name those that cannot be.

    Args:
        quick: with smaller datasets.
    """
    rows = []
    for name in names:
        size = SIZES.get(name, SIZE) // (QUICK if quick else 1)
        if reason := hindrance(name, size):
            print(f"{name} is skipped: {reason}", file=sys.stderr, flush=True)
            continue
        with site(monarch, name, work, size) as place:
            copied = by_hand(place)
            for setting in SETTINGS:
                rows += rows_of(place, setting, copied[setting])
    return rows


def main() -> int:
    """Measure alone, without the other parts of the table."""
    names = [word for word in sys.argv[1:] if word != "--quick"]
    monarch = str(Path(sys.executable).with_name("monarch"))
    with tempfile.TemporaryDirectory(prefix="monarch-bench-", dir="/dev/shm") as base:
        quick = "--quick" in sys.argv
        rows = measure(monarch, Path(base), quick=quick, names=names or list(FORMATS))
    print_rows(rows)
    return 0 if all(row.kept for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
