"""A packed tier on a medium of 100 MB/s: what it costs a job, and what was predicted.

The medium is a file system of the tests that passes on what it is asked for and gives
a limited number of bytes a second. A program reads batches of files, by threads that
wait for each other after each batch, from a tier that holds all files: plain and
packed in turn. In the second row a batch is read while the batch before it is computed
with; computing is waiting, as for a GPU. The other rows compare the time of a batch
with what `monarch codecs` says of the chosen codec, for three datasets.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from packed import content
from table import Row, print_rows

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

from support import countfs

FILES, FILE_BYTES = 1_000, 110_000
BATCH_FILES, THREADS = 50, 4
BYTES_PER_S = 100_000_000
POOL = "peers.transit=8MiB"
EPOCHS, TURNS = 4, 3
PACKED_S = 3.0
"""After which all files are packed; the origin is not throttled."""

PROGRAM = """
import os, random, sys, time
from concurrent.futures import ThreadPoolExecutor
root, batch, threads, epochs, compute_s, packed_s = sys.argv[1:]
batch, compute_s = int(batch), float(compute_s)
names = sorted(os.path.join(d, f) for d, _, fs in os.walk(root) for f in fs)
order = random.Random(1)

def read(name):
    with open(name, "rb", buffering=0) as file:
        return len(file.read())

def read_batch(names):
    return sum(pool.map(read, names))

with ThreadPoolExecutor(int(threads)) as pool, ThreadPoolExecutor(1) as ahead:
    read_batch(names)
    time.sleep(float(packed_s))
    for _ in range(int(epochs)):
        order.shuffle(names)
        batches = [names[i : i + batch] for i in range(0, len(names), batch)]
        begun = time.perf_counter()
        if compute_s:
            coming = ahead.submit(read_batch, batches[0])
            for following in [*batches[1:], []]:
                coming.result()
                coming = ahead.submit(read_batch, following)
                time.sleep(compute_s)
        else:
            for one in batches:
                read_batch(one)
        print(time.perf_counter() - begun, flush=True)
"""


def words_of(seed: int) -> bytes:
    """Return words, some of which are frequent."""
    return content(seed)[:FILE_BYTES]


def floats_of(seed: int) -> bytes:
    """Return a random walk, in float32."""
    steps = np.random.default_rng(seed).normal(size=FILE_BYTES // 4)
    return np.cumsum(steps).astype(np.float32).tobytes()


def json_of(seed: int) -> bytes:
    """Return records of a log, as lines of JSON."""
    rng = np.random.default_rng(seed)
    lines, length = [], 0
    while length < FILE_BYTES:
        user, took = rng.integers(5_000), rng.gamma(2.0, 30.0)
        path = f"/v1/items/{rng.zipf(1.3) % 900}"
        line = json.dumps({"user": int(user), "path": path, "ms": round(took, 3)})
        lines.append(line.encode())
        length += len(line) + 1
    return b"\n".join(lines)[:FILE_BYTES]


DATASETS: dict[str, Callable[[int], bytes]] = {
    "words": words_of,
    "floats": floats_of,
    "JSON": json_of,
}


@contextmanager
def medium(work: Path) -> Iterator[Path]:
    """Mount a medium of BYTES_PER_S for a tier."""
    place = work / "medium"
    place.mkdir(exist_ok=True)
    program = countfs.build(countfs.SOURCE.with_name("tierfs.c"))
    with (
        tempfile.TemporaryDirectory(dir="/dev/shm") as source,
        countfs.mounted(program, Path(source), place, bw=BYTES_PER_S),
    ):
        yield place


def make_tree(root: Path, make: Callable[[int], bytes]) -> None:
    """Create the files of a dataset."""
    root.mkdir(parents=True)
    for i in range(FILES):
        (root / f"{i:05d}").write_bytes(make(i))


class Bench:
    """A dataset and a tier for it."""

    def __init__(self, monarch: str, root: Path, tier: Path) -> None:
        self._monarch = monarch
        self._root = root
        self._tier = f"ssd:1GiB:{tier}"
        self._report = root.with_name("report.json")

    def epoch_s(self, codec: str, compute_s: float = 0.0) -> float:
        """Return the median time of an epoch after the first."""
        numbers = (BATCH_FILES, THREADS, EPOCHS, compute_s, PACKED_S)
        program = ["-c", PROGRAM, str(self._root), *map(str, numbers)]
        words = [self._monarch, "run", "-q", "--data", str(self._root), "--tier"]
        words += [self._tier, "--set", POOL, "--set", f"tiers[0].codec={codec}"]
        words += ["--report", str(self._report), "--"]
        done = subprocess.run(
            [*words, sys.executable, *program],
            check=True,
            stdout=subprocess.PIPE,
            text=True,
        )
        report = json.loads(self._report.read_text())
        packed = FILES if codec == "plain" else report["packed"]["files"]
        assert packed == FILES, "not all files were packed"
        assert report["counters"]["opens_miss"] <= FILES, "the origin was read again"
        return statistics.median(map(float, done.stdout.split()))

    def predicted(self) -> tuple[str, float]:
        """Return the codec that `monarch codecs` chooses, and its time of a batch."""
        words = [self._monarch, "codecs", str(self._root), "--tier", self._tier]
        words += ["--batch", str(BATCH_FILES), "--json"]
        done = subprocess.run(words, check=True, capture_output=True, text=True)
        tier = json.loads(done.stdout)["tiers"][0]
        codecs = {one["codec"]: one["batch_sync_s"] for one in tier["codecs"]}
        return tier["chosen"], codecs[tier["chosen"]]


def gates(bench: Bench) -> list[Row]:
    """Return what packing costs a job that reads, and one that computes meanwhile."""
    turns = [(bench.epoch_s("auto"), bench.epoch_s("plain")) for _ in range(TURNS)]
    packed, plain = (statistics.median(side) for side in zip(*turns, strict=True))
    batches = FILES // BATCH_FILES
    compute_s = 1.2 * plain / batches
    beside = statistics.median(bench.epoch_s("auto", compute_s) for _ in range(TURNS))
    bound = batches * compute_s
    return [
        Row(
            "epoch from a packed tier of 100 MB/s",
            f"{packed:.3f} s",
            f"{plain:.3f} s plain",
            statistics.median(ours / theirs for ours, theirs in turns),
            1.05,
        ),
        Row(
            "the same beside a computation",
            f"{beside:.3f} s",
            f"{bound:.3f} s of computation",
            beside / bound,
            1.05,
        ),
    ]


def prediction(what: str, bench: Bench) -> Row:
    """Return how far the predicted time of a batch is from the measured one."""
    codec, expected_s = bench.predicted()
    epochs = [bench.epoch_s(codec) for _ in range(TURNS)]
    batch_s = statistics.median(epochs) * BATCH_FILES / FILES
    return Row(
        f"batch of {BATCH_FILES} files by {codec}, {what}",
        f"{1e3 * batch_s:.1f} ms",
        f"{1e3 * expected_s:.1f} ms predicted",
        max(batch_s / expected_s, expected_s / batch_s),
        1.25,
    )


def measure(monarch: str, work: Path) -> list[Row]:
    """Measure the rows of packed tiers on a slow medium."""
    rows: list[Row] = []
    for name, make in DATASETS.items():
        root = work / f"{name}-files"
        make_tree(root, make)
        with medium(work) as tier:
            bench = Bench(monarch, root, tier)
            if not rows:
                rows += gates(bench)
            rows.append(prediction(name, bench))
    return rows


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        print_rows(measure(sys.argv[1], Path(folder)))
