"""Which codec `auto` chooses, and what packing costs the first epoch.

The origin is the tests' counting file system at 100 MB/s with its page cache off; two
processes read all files in random order, and the tier holds a part of them. For four
datasets, later epochs with the codec that `auto` chooses are compared with those of
each codec by brute force, and what was expected to fit with what did. The choice must
be that of `monarch codecs`. In the last rows as many processes as there are processors
compute all the time, and the first epoch is compared with one straight from the origin.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from table import Row, print_rows

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

from support import countfs

BYTES_PER_S = 100_000_000
READERS, EPOCHS, TURNS = 2, 4, 3
SETTLED_S = 6.0
"""After the first epoch, in which packing ends: later epochs show the codec alone."""
BLOCK = 1 << 20
CODECS = (
    "plain",
    "none",
    "lz4",
    "lz4hc:4",
    "lz4hc:9",
    "zstd:-5",
    "zstd:1",
    "zstd:3",
    "zstd:9",
)
CODECS_QUICK = ("plain", "none", "lz4", "zstd:1", "zstd:9")
SHUFFLES = ("lz4+shuffle4", "zstd:1+shuffle4")


# -- the datasets ----------------------------------------------------------------------


def text_of(rng: np.random.Generator, size: int) -> bytes:
    """Return records of a log, as lines of JSON."""
    count = size // 60
    rows = zip(
        rng.integers(5_000, size=count).tolist(),
        rng.gamma(2.0, 30.0, size=count).tolist(),
        rng.integers(1 << 62, size=count).tolist(),
        strict=True,
    )
    lines = (
        f'{{"user": {user}, "path": "/v1/items", "ms": {took:.3f}, "id": "{key:016x}"}}'
        for user, took, key in rows
    )
    return "\n".join(lines).encode()[:size]


def volume_of(rng: np.random.Generator, size: int) -> bytes:
    """Return a noisy field of whole numbers, in float32."""
    side = round((size // 4) ** (1 / 3)) + 1
    places = np.linspace(0, 7, side)
    field = rng.normal(size=(8, 8, 8))
    for axis in range(3):
        field = np.apply_along_axis(
            lambda line: np.interp(places, np.arange(8), line), axis, field
        )
    noise = 4 * rng.normal(size=field.shape)
    return np.round(400 * field + noise).astype("<f4").tobytes()[:size]


def image_of(rng: np.random.Generator, size: int) -> bytes:
    """Return bytes that do not shrink, as those of compressed images."""
    return rng.bytes(size)


def mixed_of(rng: np.random.Generator, size: int) -> bytes:
    """Return one of the others, of another size."""
    make = (text_of, volume_of, image_of)[int(rng.integers(3))]
    return make(rng, int(size * rng.uniform(0.3, 2)))


@dataclass(frozen=True, slots=True)
class Case:
    """A dataset, and a tier that holds `room` of its bytes."""

    make: Callable[[np.random.Generator, int], bytes]
    files: int
    file_bytes: int
    room: float
    shuffles: bool = False


CASES = {
    "JSON": Case(text_of, 500, 500_000, 0.2),
    "volumes": Case(volume_of, 200, 2_000_000, 0.25, shuffles=True),
    "images": Case(image_of, 1000, 110_000, 0.5),
    "mixed records": Case(mixed_of, 400, 400_000, 0.4, shuffles=True),
}
QUICK_PARTS = 4
"""How many times fewer files the quick version has."""


def make_tree(root: Path, case: Case) -> int:
    """Create the files in ten folders; return their bytes."""
    rng, total = np.random.default_rng(1), 0
    for number in range(case.files):
        folder = root / f"{number % 10}"
        folder.mkdir(parents=True, exist_ok=True)
        content = case.make(rng, case.file_bytes)
        (folder / f"{number:05d}").write_bytes(content)
        total += len(content)
    return total


# -- the program -----------------------------------------------------------------------


def read_some(names: list[str]) -> None:
    """Read files as a worker would."""
    for name in names:
        with open(name, "rb", buffering=0) as file:
            while file.read(4 * BLOCK):
                pass


def compute() -> None:
    """Use a processor until the process is ended."""
    while True:
        sum(range(20_000))


def read_epochs(root: str, epochs: int, settled_s: float, busy: int) -> None:
    """Read all files in each epoch and print its seconds, beside busy processes."""
    names = sorted(os.path.join(d, f) for d, _, fs in os.walk(root) for f in fs)
    order = random.Random(1)
    fork = multiprocessing.get_context("fork")
    busy_ones = [fork.Process(target=compute, daemon=True) for _ in range(busy)]
    for one in busy_ones:
        one.start()
    with fork.Pool(READERS) as pool:
        for number in range(epochs):
            order.shuffle(names)
            begun = time.perf_counter()
            parts = [names[part::READERS] for part in range(READERS)]
            pool.map(read_some, parts, chunksize=1)
            print(time.perf_counter() - begun, flush=True)
            if not number:
                time.sleep(settled_s)
    for one in busy_ones:
        one.terminate()


# -- measuring -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Ran:
    """What a job took, and what it held.

    Attributes:
        expected, reached: how often the bytes of packed files are the tier's.
    """

    first_s: float
    later_s: float
    codec: str
    expected: float
    reached: float


@dataclass(frozen=True, slots=True)
class Bench:
    """A dataset at a slow origin, and a tier for it."""

    monarch: str
    root: Path
    room: int

    @property
    def tier(self) -> str:
        """Return the tier as an option has it."""
        return f"ram:{self.room}B"

    def direct_s(self, busy: int) -> float:
        """Return the seconds of an epoch straight from the origin."""
        return self._epochs([], 1, busy)[0]

    def run(
        self, codec: str, *, epochs: int = EPOCHS, busy: int = 0, settles: bool = True
    ) -> Ran:
        """Run a job with a packed tier."""
        report = self.root.with_name("report.json")
        words = [self.monarch, "run", "-q", "--data", str(self.root)]
        words += ["--tier", self.tier, "--set", f"tiers[0].codec={codec}"]
        words += ["--report", str(report), "--"]
        seconds = self._epochs(words, epochs, busy, SETTLED_S if settles else 0.0)
        told = json.loads(report.read_text())
        tier, packed = told["tiers"][0], told["packed"] or {}
        later_s = statistics.median(seconds[1:] or seconds)
        ratios = tier["expected_ratio"], packed.get("ratio", 1.0)
        return Ran(seconds[0], later_s, tier["codec"], *ratios)

    def chosen(self) -> str:
        """Return the codec that `monarch codecs` chooses."""
        words = [self.monarch, "codecs", str(self.root), "--tier", self.tier, "--json"]
        done = subprocess.run(words, check=True, capture_output=True, text=True)
        found: str = json.loads(done.stdout)["tiers"][0]["chosen"]
        return found

    def _epochs(
        self, command: list[str], epochs: int, busy: int, settled_s: float = 0.0
    ) -> list[float]:
        numbers = map(str, (epochs, settled_s, busy))
        program = [sys.executable, __file__, "--read", str(self.root), *numbers]
        done = subprocess.run(
            [*command, *program], check=True, stdout=subprocess.PIPE, text=True
        )
        return list(map(float, done.stdout.split()))


@contextmanager
def bench_of(monarch: str, work: Path, case: Case) -> Iterator[Bench]:
    """Make a dataset and mount it as a slow origin."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as source:
        total = make_tree(Path(source), case)
        mount = work / "origin"
        mount.mkdir(exist_ok=True)
        with countfs.mounted(countfs.build(), Path(source), mount, bw=BYTES_PER_S):
            yield Bench(monarch, mount, int(case.room * total))


def choice(what: str, bench: Bench, codecs: tuple[str, ...], turns: int) -> list[Row]:
    """Return how good the choice is, and how well it was told what fits."""
    expected = bench.chosen()
    ran: dict[str, list[Ran]] = {}
    for _ in range(turns):
        for codec in ("auto", *codecs):
            ran.setdefault(codec, []).append(bench.run(codec))
    autos = ran["auto"]
    told = {one.codec for one in autos}
    if told != {expected}:
        raise SystemExit(f"{what}: a job chose {told}, `monarch codecs` {expected}")
    later = {
        codec: statistics.median(one.later_s for one in all_of)
        for codec, all_of in ran.items()
    }
    best = min(codecs, key=lambda codec: later[codec])
    fits = statistics.median(one.reached / one.expected for one in autos)
    return [
        Row(
            f"later epochs by `auto` ({expected}), {what}",
            f"{later['auto']:.3f} s",
            f"{later[best]:.3f} s by {best}",
            later["auto"] / later[best],
            1.1,
        ),
        Row(
            f"what fits, {what}",
            f"{autos[0].reached:.2f} x",
            f"{autos[0].expected:.2f} x expected",
            max(fits, 1 / fits),
            1.1,
        ),
    ]


def beside_work(what: str, bench: Bench, turns: int) -> Row:
    """Return what packing costs the first epoch, where programs use all processors."""
    busy = len(os.sched_getaffinity(0))
    pairs = []
    for _ in range(turns):
        direct_s = bench.direct_s(busy)
        ours = bench.run("auto", epochs=1, busy=busy, settles=False)
        pairs.append((ours.first_s, direct_s))
    ours_s, direct_s = (statistics.median(side) for side in zip(*pairs, strict=True))
    return Row(
        f"epoch 1 by `auto` beside {busy} busy processes, {what}",
        f"{ours_s:.2f} s",
        f"{direct_s:.2f} s direct",
        statistics.median(ours / theirs for ours, theirs in pairs),
        1.05,
    )


def measure(monarch: str, work: Path, *, quick: bool) -> list[Row]:
    """Measure all rows.

    Args:
        quick: with fewer files and codecs, and once.
    """
    rows = []
    for what, case in CASES.items():
        codecs = (CODECS_QUICK if quick else CODECS) + SHUFFLES * case.shuffles
        files = case.files // QUICK_PARTS if quick else case.files
        smaller = Case(case.make, files, case.file_bytes, case.room)
        with bench_of(monarch, work, smaller) as bench:
            rows += choice(what, bench, codecs, 1 if quick else TURNS)
            if case.make in (text_of, volume_of):
                rows.append(beside_work(what, bench, TURNS))
    return rows


def main() -> int:
    """Measure alone, without the other parts of the table."""
    monarch = str(Path(sys.executable).with_name("monarch"))
    with tempfile.TemporaryDirectory(prefix="monarch-bench-", dir="/dev/shm") as base:
        rows = measure(monarch, Path(base), quick="--quick" in sys.argv)
    print_rows(rows)
    return 0 if all(row.kept for row in rows) else 1


if __name__ == "__main__":
    if sys.argv[1:2] == ["--read"]:
        read_epochs(sys.argv[2], int(sys.argv[3]), float(sys.argv[4]), int(sys.argv[5]))
    else:
        sys.exit(main())
