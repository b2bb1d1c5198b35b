"""Large files whose reads are not seen: an open waits until they are staged whole."""

import random
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

from support.countfs import CountFs
from support.nodes import Plan
from support.programs import TRIED_TIMES, Outcome, Runner

Mount = Callable[..., CountFs]

LARGE = (9 << 20) + 5
OVERREAD_MAX = 1.02
NO_FILL = ("--set", "fill.enabled=false")
OTHERS = ["shard.tar", "shard.tfrecord", "plain.bin"]

# The first argument of each program is the dataset; it prints what it has read.
MAP_TWICE = """
import hashlib, mmap, sys
root, *names = sys.argv[1:]
for name in names * 2:
    with open(f"{root}/{name}", "rb") as file:
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
            print(name, hashlib.sha256(mapped).hexdigest())
"""
STREAM = """
import ctypes, hashlib, sys
libc = ctypes.CDLL(None)
libc.fopen.restype = ctypes.c_void_p
size = ctypes.c_size_t
libc.fread.argtypes = [ctypes.c_char_p, size, size, ctypes.c_void_p]
libc.fclose.argtypes = [ctypes.c_void_p]
root, *names = sys.argv[1:]
buffer = ctypes.create_string_buffer(1 << 26)
for name in names * 2:
    stream = libc.fopen(f"{root}/{name}".encode(), b"rb")
    read = libc.fread(buffer, 1, len(buffer), stream)
    libc.fclose(stream)
    print(name, hashlib.sha256(buffer.raw[:read]).hexdigest())
"""
# Reads some random pages of a file, as a sparse reader of a memmap does.
SPARSE = """
import mmap, random, sys
path, part = sys.argv[1], float(sys.argv[2])
block, page = 1 << 18, 4096
with open(path, "rb") as file:
    with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        mapped.madvise(mmap.MADV_RANDOM)
        blocks = range(len(mapped) // block)
        chosen = random.Random(1).sample(blocks, int(len(blocks) * part))
        print(sum(sum(mapped[n * block:n * block + page]) for n in chosen))
"""


def program(text: str, *words: object) -> list[str]:
    """The command line of a Python program."""
    return [sys.executable, "-c", text, *map(str, words)]


def write(root: Path, names: Sequence[str], size_bytes: int = LARGE) -> int:
    """Writes files of random bytes; returns how many bytes they have together."""
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(random.Random(name).randbytes(size_bytes))
    return size_bytes * len(names)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """The empty directory of a dataset."""
    root = tmp_path / "source"
    root.mkdir()
    return root


def both(
    runner: Runner, text: str, view: CountFs, words: Sequence[str], *options: str
) -> Outcome:
    """Runs a program plain and under Monarch, with the same result.

    The counts of the view are those of the second run.
    """
    line = program(text, view.root, *words)
    plain = runner.plain(line).succeed()
    view.reset()
    outcome = runner.under_monarch(line, roots=[view.root], options=options)
    assert outcome.words == plain.words
    return outcome


def whole(outcome: Outcome) -> tuple[int, int]:
    """How many opens have waited for a whole file, and how many of them got it."""
    waits: Mapping[str, int] = outcome.report["waits"]
    return waits["whole"], waits["whole_served"]


def test_files_that_are_mapped_are_staged_whole_at_the_mapping(
    runner: Runner, mount_counted: Mount, source: Path
) -> None:
    size_bytes = write(source, OTHERS)
    view = mount_counted(source, cached=1)

    outcome = both(runner, MAP_TWICE, view, OTHERS, *NO_FILL)

    assert whole(outcome) == (0, 0)  # no open waited
    assert outcome.counter("maps_origin") == 0
    assert outcome.counter("maps_local") + outcome.redirected_opens == 2 * len(OTHERS)
    assert view.counts().read_bytes <= OVERREAD_MAX * size_bytes


def test_files_opened_by_fopen_are_staged_whole(
    runner: Runner, mount_counted: Mount, source: Path
) -> None:
    size_bytes = write(source, OTHERS)
    view = mount_counted(source)

    outcome = both(runner, STREAM, view, OTHERS, *NO_FILL)

    assert whole(outcome) == (len(OTHERS), len(OTHERS))
    assert outcome.counter("opens_origin") == 0
    assert view.counts().read_bytes <= OVERREAD_MAX * size_bytes


def test_a_partly_read_file_is_completed_for_a_waiting_open(
    runner: Runner, mount_counted: Mount, source: Path
) -> None:
    """Its blocks are there, and nobody would copy the others without fill."""
    size_bytes = write(source, ["a.bin"])
    view = mount_counted(source)
    part = "import os, sys\nos.pread(os.open(f'{sys.argv[1]}/a.bin', 0), 1000, 5000)\n"

    outcome = both(runner, part + STREAM, view, ["a.bin"], *NO_FILL)

    assert whole(outcome) == (1, 1)
    assert view.counts().read_bytes <= OVERREAD_MAX * size_bytes


def test_user_patterns_select_files_whose_opens_wait(
    runner: Runner, mount_counted: Mount, source: Path
) -> None:
    names = ["deep/in/a.bin", "other/b.bin"]
    write(source, names)
    view = mount_counted(source, cached=1)
    patterns = ("--set", 'cold_open.whole=["deep/**"]')

    outcome = both(runner, MAP_TWICE, view, names, *NO_FILL, *patterns)

    assert whole(outcome) == (1, 1)


def test_a_file_above_the_limit_is_not_copied_because_it_was_opened(
    runner: Runner, mount_counted: Mount, source: Path
) -> None:
    write(source, ["array.npy"], 4 * LARGE)
    view = mount_counted(source, cached=1)
    line = program(SPARSE, view.root / "array.npy", 0.05)
    limit = ("--set", "cold_open.wait_max_whole=16MiB")
    plain = runner.plain(line).succeed()
    plain_bytes = view.counts().read_bytes
    view.reset()

    outcome = runner.under_monarch(line, roots=[view.root], options=[*NO_FILL, *limit])

    assert outcome.words == plain.words
    assert outcome.counter("maps_origin") == 1
    assert whole(outcome) == (0, 0)
    assert outcome.copied_bytes == 0
    assert view.counts().read_bytes <= plain_bytes + TRIED_TIMES * outcome.origin_bytes


def test_background_fill_copies_a_file_above_the_limit_in_its_turn(
    runner: Runner, source: Path
) -> None:
    write(source, ["array.npy"])
    options = ["--set", "cold_open.wait_max_whole=1MiB"]
    options += ["--set", "cold_open.whole=['*.npy']"]
    options += ["--set", "fill.bandwidth=8MiB/s"]
    stage = "import os, sys, time\n" + (
        "while 'array' in os.readlink(f'/proc/self/fd/{os.open(sys.argv[1], 0)}'):\n"
        "    time.sleep(0.05)\n"
    )

    outcome = runner.under_monarch(
        program(stage, source / "array.npy"), roots=[source], options=options
    ).succeed()

    assert outcome.counter("origin_whole") >= 1
    assert outcome.counter("opens_hit_tier0") == 1


def test_five_percent_of_a_sparse_memmap_of_100_gb_are_read_as_without_monarch(
    runner: Runner, mount_counted: Mount, source: Path
) -> None:
    with (source / "huge.npy").open("wb") as file:
        file.truncate(100 * 10**9)
    view = mount_counted(source, cached=1)
    line = program(SPARSE, view.root / "huge.npy", 0.05)
    plain = runner.plain(line).succeed()
    plain_bytes = view.counts().read_bytes
    view.reset()

    outcome = runner.under_monarch(line, roots=[view.root])

    assert outcome.words == plain.words
    assert outcome.copied_bytes == 0
    most_bytes = OVERREAD_MAX * plain_bytes + TRIED_TIMES * outcome.origin_bytes
    assert view.counts().read_bytes <= most_bytes


def test_the_wait_may_exceed_the_time_out_while_bytes_arrive(
    runner: Runner, mount_counted: Mount, source: Path
) -> None:
    """4 s of copying, with a time-out of one second."""
    write(source, ["array.npy"], 4 * LARGE)
    view = mount_counted(source, cached=1)
    line = program(MAP_TWICE, view.root, "array.npy")
    plain = runner.plain(line).succeed()
    view.set(bw=LARGE)
    view.reset()
    timeout = ("--set", "cold_open.timeout=1s")

    outcome = runner.under_monarch(
        line, roots=[view.root], options=[*NO_FILL, *timeout]
    )

    assert outcome.words == plain.words
    assert outcome.counter("maps_local") == 1
    assert outcome.report["waits"]["total_s"] > 2
    assert view.counts().read_bytes <= OVERREAD_MAX * 4 * LARGE


def test_a_node_waits_while_another_one_reads_the_origin(make_cluster) -> None:
    """Longer than the time-out: what its owner has read of a file is told."""
    cluster = make_cluster(2, files=1, mean_bytes=24 << 20)
    cluster.origin.set(bw=cluster.size_bytes // 5)
    options = ("--set", "cold_open.timeout=1s", "--set", "cold_open.whole=['**']")

    outcome = cluster.run(Plan(2, workers=1), *options, *NO_FILL).right(opens=2 * 2)

    counts = cluster.origin.counts()
    assert counts.read_bytes <= OVERREAD_MAX * cluster.size_bytes
    assert not any(o.at_origin for o in outcome.opens)
    waits = outcome.report["waits"]
    assert waits["whole"] == waits["whole_served"] == 2


def test_nodes_wait_for_a_whole_file_that_fill_copies(make_cluster) -> None:
    """Fill of each node has begun it, and leaves the rest to who waits."""
    cluster = make_cluster(4, files=1, mean_bytes=64 << 20)
    options = ("--set", "cold_open.timeout=5s", "--set", "cold_open.whole=['**']")

    outcome = cluster.run(Plan(2, workers=1), *options).right(opens=2 * 4)

    assert not any(o.at_origin for o in outcome.opens)


def test_an_invalid_pattern_is_refused(runner: Runner, source: Path) -> None:
    pattern = ("--set", "cold_open.whole=['a/../b']")
    words = [str(runner.command), "run", "--data", str(source), *pattern, "--", "true"]

    outcome = runner.plain(words)

    assert outcome.status == 2
    assert outcome.stderr.decode() == (
        "monarch: cold_open.whole: pattern 'a/../b' is not valid; use a name such as "
        "'*.jpg' or a path in the dataset such as 'train/**'\n"
    )


def test_the_report_counts_opens_that_waited(runner: Runner, source: Path) -> None:
    write(source, ["array.npy"])
    line = program(STREAM, source, "array.npy")
    words = [str(runner.command), "run", "--tier", runner.tier, "--data", str(source)]

    shown = runner.plain([*words, *NO_FILL, "--", *line]).succeed().stderr.decode()

    assert "  1 open waited until a large file was staged whole\n" in shown
