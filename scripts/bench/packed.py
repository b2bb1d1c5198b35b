"""What a packed tier gains, and what decoding costs.

The files are words that compress to about a third. In the job, a tier has room for less
than half of them as they are, the origin is the tests' counting file system with its
page cache off, throttled; the same job with a plain tier, and with a packed one, in
turn. Both have as much memory: the pool of decoded files is a part of the packed tier.
The decode path is measured at the engine: all files are asked for at once, by two
threads, beside two threads that only decompress the same pieces; both by the time that
they take of processors. Opens are timed in a program whose files are all packed, beside
decompressing a file and writing it into a new file in memory.
"""

from __future__ import annotations

import json
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
from epochs import epochs_of, paired
from table import Row, print_rows

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

from monarch import native
from monarch.codec import Codec
from monarch.native import Coder, Packing, Table
from monarch.stager import Destination
from support import countfs
from unit.test_native_packs import add_pool
from unit.test_native_staging import files_of, make_job

FILES, FILE_BYTES = 2_000, 110_000
BYTES_PER_S = 100_000_000
EPOCHS, TURNS = 10, 3
ROOM = 0.45
POOL = 16 << 20
CODEC = Codec.parse("zstd:3")
PIECES = 600
WORDS = 3_000
POOLED_MIN = 0.75
"""What is wanted. The kernel takes as long for the memory of a file as the codec for
its bytes. A program that decodes into new files without Monarch reaches 0.43 to 0.51,
by mappings of them 0.33 to 0.38, and into files that are there already 0.60 to 0.72."""


def content(seed: int) -> bytes:
    """Words, some of which are frequent."""
    rng = np.random.default_rng(seed % 50)
    words = [b"%x" % number for number in rng.integers(1 << 40, size=WORDS).tolist()]
    picked = rng.zipf(1.2, FILE_BYTES // 8) % WORDS
    text = b" ".join(words[place] for place in picked.tolist())
    return (text + bytes(FILE_BYTES))[seed : seed + FILE_BYTES]


def make_tree(root: Path) -> None:
    """Create FILES files in ten folders, named as epochs.py finds them."""
    for i in range(FILES):
        folder = root / f"class{i % 10}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"text{i:05d}.jpg").write_bytes(content(i))


def job(monarch: str, work: Path) -> list[Row]:
    """Time a job that fits only packed, with a plain tier and with packed ones."""
    make_tree(work / "source")
    mount = work / "origin"
    mount.mkdir()
    room = int(ROOM * FILES * FILE_BYTES)
    turns: dict[str, list[tuple[float, float]]] = {"zstd:3": [], "auto": []}
    with countfs.mounted(countfs.build(), work / "source", mount, bw=BYTES_PER_S):
        for _ in range(TURNS):
            words = [monarch, "run", "-q", "--data", str(mount), "--tier"]
            plain = sum(epochs_of([*words, f"ram:{room}B", "--"], mount, EPOCHS))
            for codec, seconds in turns.items():
                packed = [*words, f"ram:{room}B"]
                packed += ["--set", f"peers.transit={POOL}B"]
                packed += ["--set", f"tiers[0].codec={codec}", "--"]
                seconds.append((plain, sum(epochs_of(packed, mount, EPOCHS))))
    return [
        replace(
            paired(f"job of {EPOCHS} epochs, plain tier", seconds, codec, 1.5),
            at_least=True,
        )
        for codec, seconds in turns.items()
    ]


# -- the engine ------------------------------------------------------------------------


def decode(folder: Path) -> list[Row]:
    """Return how fast the engine decodes, beside the codec alone."""
    contents = [content(number) for number in range(PIECES)]
    sizes = [len(one) for one in contents]
    job = make_job(folder, sizes, contents)
    add_pool(job)
    files = files_of(job, sizes)
    table = Table(files, 1, 8 << 20)
    rows = np.zeros(int(files.first[-1]), native.TABLE_ROW)
    rows["destination"], rows["sources"] = Destination.TIER, native.NO_SOURCE
    table.pack(0, 2.0)
    table.set_capacity(0, 1 << 30)
    table.set_capacity(1, 1 << 30)
    table.follow(rows, 0, 1, uses_pool=False)
    options = replace(
        job.options, threads=2, table=table, packings=(Packing(0, CODEC),)
    )
    engine = native.Engine(job.board, options)
    everything = np.arange(PIECES, dtype=np.uint32)
    engine.fill(everything, np.zeros(0, np.uint32))
    wait(lambda: bool((table.packed() == 0).all()))
    begun = time.process_time()
    for file in range(PIECES):
        engine.demand(file)
    wait(lambda: table.tally()["unpacked_files"] == PIECES)
    ours = sum(sizes) / (time.process_time() - begun)
    decoding = sum(sizes) / table.tally()["unpack_ns"] * 1e9
    engine.close()
    table.close()
    alone = statistics.median(codec_rate(contents) for _ in range(TURNS))
    against = f"{alone / 1e6:,.0f} MB/s by {CODEC} alone"
    rates = {
        "frames read and decoded, 2 threads": (decoding, 0.8),
        "the same into files of the pool": (ours, POOLED_MIN),
    }
    return [
        Row(what, f"{rate / 1e6:,.0f} MB/s", against, rate / alone, least, True)
        for what, (rate, least) in rates.items()
    ]


def wait(holds: Callable[[], bool]) -> None:
    """Wait until something holds; looking costs little of a processor."""
    while not holds():
        time.sleep(0.005)


def packed_pieces(contents: list[bytes]) -> list[np.ndarray]:
    """Return the pieces compressed."""
    room = np.empty(2 * FILE_BYTES, np.uint8)
    found = []
    with Coder(CODEC) as coder:
        for one in contents:
            size = coder.pack(one, room)
            assert size is not None
            found.append(room[:size].copy())
    return found


def codec_rate(contents: list[bytes]) -> float:
    """Return the bytes that two threads decompress in a second of a processor."""
    pieces = packed_pieces(contents)

    def run(numbers: range) -> None:
        plain = np.empty(FILE_BYTES, np.uint8)
        with Coder(CODEC) as coder:
            for number in numbers:
                assert coder.unpack(pieces[number], plain)

    threads = [
        threading.Thread(target=run, args=(range(half, len(pieces), 2),))
        for half in range(2)
    ]
    begun = time.process_time()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(map(len, contents)) / (time.process_time() - begun)


# -- opens -----------------------------------------------------------------------------

OPENER = """
import os, random, statistics, sys, time
names = sorted(os.path.join(d, f) for d, _, fs in os.walk(sys.argv[1]) for f in fs)
time.sleep(float(sys.argv[2]))
random.Random(1).shuffle(names)
took = []
for name in names:
    begun = time.perf_counter()
    fd = os.open(name, os.O_RDONLY)
    took.append(time.perf_counter() - begun)
    os.close(fd)
print(statistics.median(took))
"""
STAGED_S = 6.0
"""After which all files are packed; the origin is not throttled."""


def opens(monarch: str, work: Path) -> Row:
    """Return the median of opens of packed files, beside decoding and a write."""
    root = work / "source"
    place = work / "opener.py"
    place.write_text(OPENER)
    report = work / "report.json"
    words = [monarch, "run", "-q", "--data", str(root), "--tier", "ram:1GiB"]
    words += ["--set", f"tiers[0].codec={CODEC}", "--report", str(report), "--"]
    program = [sys.executable, str(place), str(root), str(STAGED_S)]
    done = subprocess.run(
        [*words, *program], check=True, stdout=subprocess.PIPE, text=True
    )
    counts = json.loads(report.read_text())["packed"]
    assert counts["decoded_files"] == FILES, "not all were packed when they were opened"
    ours, alone = float(done.stdout), by_hand([content(i) for i in range(PIECES)])
    return Row(
        "open of a packed file of 110 kB, p50",
        f"{1e6 * ours:.0f} us",
        f"{1e6 * alone:.0f} us to decode and write it",
        ours / alone,
        2.0,
    )


def by_hand(contents: list[bytes]) -> float:
    """Return the median time to decompress a file and write it into a new one."""
    pieces, plain, took = packed_pieces(contents), np.empty(FILE_BYTES, np.uint8), []
    with (
        tempfile.TemporaryDirectory(dir="/dev/shm") as folder,
        Coder(CODEC) as coder,
    ):
        for number in random.Random(1).sample(range(len(pieces)), len(pieces)):
            begun = time.perf_counter()
            coder.unpack(pieces[number], plain)
            with open(f"{folder}/{number}", "wb", buffering=0) as file:
                file.write(plain.data)
            took.append(time.perf_counter() - begun)
    return statistics.median(took)


def measure(monarch: str, work: Path) -> list[Row]:
    """Measure the rows of packed tiers."""
    rows = job(monarch, work)
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        rows += decode(Path(folder))
    return [*rows, opens(monarch, work)]


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        print_rows(measure(sys.argv[1], Path(folder)))
