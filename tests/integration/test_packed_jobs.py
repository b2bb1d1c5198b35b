"""Jobs whose Tiers are packed: they hold more, and serve the same bytes.

Most tests are those of jobs with plain Tiers, with nodes whose Tiers have a codec.
"""

import errno
import hashlib
import os
import random
import shlex
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from integration.test_faults import (  # noqa: F401
    jobs as plain_jobs,
)
from integration.test_faults import (  # noqa: F401
    test_a_killed_job_leaves_nothing_that_the_next_one_trusts,
    test_a_resumed_agent_serves_again,
    test_a_tier_that_runs_full_leaves_the_bytes_right,
    test_bytes_are_right_when_the_agent_is_killed_or_frozen_at_any_moment,
)
from integration.test_nodes_faults import (  # noqa: F401
    test_a_node_that_dies_with_its_programs_blocks_no_other_node,
    test_an_agent_that_is_killed_costs_only_what_it_held,
)
from integration.test_nodes_sharing import (  # noqa: F401
    test_a_late_node_is_served,
    test_files_of_several_extents_pass_from_node_to_node,
    test_four_nodes_that_read_everything_read_the_origin_once,
    test_nodes_together_hold_a_dataset_too_large_for_one_node,
    test_several_commands_on_a_node_share_its_agent,
)
from integration.test_nodes_written import (  # noqa: F401
    cluster,
    test_a_node_that_joins_late_receives_all_marks,
    test_a_write_on_one_node_is_read_by_all_nodes,
)
from monarch.codec import Codec
from monarch.native import codec_library
from support.certified import fill_anew
from support.changing_files import files_below
from support.clusters import Cluster
from support.countfs import CountFs
from support.jobs import Jobs
from support.nodes import Plan
from support.programs import Runner, Words, consumer

FILES, MEAN_BYTES = 300, 40_000
# Reads for trying codecs count, too.
OVERREAD_MAX = 1.02 + 0.01
READERS, EPOCHS = 4, 3
POOL = 1 << 20

pytestmark = pytest.mark.skipif(
    codec_library(Codec.parse("zstd:1")) is None, reason="no libzstd"
)


@pytest.fixture
def make_cluster(make_cluster: Callable[..., Cluster]) -> Callable[..., Cluster]:
    """Nodes whose first Tier is packed."""

    def make(*words: Any, **more: Any) -> Cluster:
        codec = ("--set", "tiers[0].codec=zstd:1")
        return replace(make_cluster(*words, **more), extra=codec)

    return make


@pytest.fixture
def jobs(plain_jobs: Jobs) -> Jobs:  # noqa: F811
    """Jobs of one node whose Tier is packed."""
    return replace(plain_jobs, extra=("--set", "tiers[0].codec=lz4"))


def body(size: int, seed: int) -> bytes:
    """Words that shrink to a third or less."""
    rng = random.Random(seed)
    words = [b"%d" % rng.randrange(1 << 20) for _ in range(50)]
    found = b" ".join(rng.choice(words) for _ in range(size // 5 + 1))
    return found[:size]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Files that shrink, of some kilobytes."""
    root = tmp_path / "data"
    rng = random.Random(1)
    for number in range(FILES):
        place = root / f"class{number % 5}" / f"{number}.txt"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(body(rng.randrange(MEAN_BYTES * 2), number))
    return root


def total(root: Path) -> int:
    return sum(place.stat().st_size for place in root.rglob("*.txt"))


@pytest.mark.parametrize("codec", ["auto", "zstd:3", "lz4"])
def test_tier_that_holds_a_dataset_only_packed_reads_it_once(
    runner: Runner,
    mount_counted: Callable[..., CountFs],
    folder: Path,
    codec: str,
) -> None:
    view, size = mount_counted(folder), total(folder)
    words = consumer("python_epochs.py", view.root, str(READERS), str(EPOCHS))
    plain = runner.plain(words).succeed()
    view.reset()
    small = replace(runner, tier=f"ram:{int(0.6 * size) + POOL}B")
    # Packing uses the processor time that programs leave, at the latest at the end.
    waits = [sys.executable, "-c", WAIT_PACKED, runner.command, FILES // 2]
    both = (shlex.join(map(str, one)) for one in (words, waits))
    rests = ["sh", "-c", " && ".join(both)]

    outcome = small.under_monarch(
        rests,
        roots=[view.root],
        options=["--set", f"tiers[0].codec={codec}", "--set", f"peers.transit={POOL}B"],
    )

    assert outcome.words == plain.words
    assert size <= view.counts().read_bytes <= OVERREAD_MAX * size
    packed, tier = outcome.report["packed"], outcome.report["tiers"][0]
    # Some may be plain in the Pool when the job ends: more on a busy machine.
    assert 0.5 * FILES <= packed["files"] == tier["files"] <= FILES
    assert packed["ratio"] > 1.7
    assert tier["used_bytes"] <= tier["capacity_bytes"]
    assert tier["codec"] == codec or codec == "auto"


WAIT_PACKED = """
import json, subprocess, sys, time
until_s = time.monotonic() + 60
def packed():
    words = [sys.argv[1], "status", "--json"]
    done = subprocess.run(words, stdout=subprocess.PIPE, check=True)
    return json.loads(done.stdout)["tiers"][0]["files"]
while packed() < int(sys.argv[2]) and time.monotonic() < until_s:
    time.sleep(0.1)
"""

READ_ALL = """
import hashlib, json, random, subprocess, sys, time
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import Pool
from pathlib import Path
right = dict(line.split() for line in open(sys.argv[2]))
paths = sorted(map(str, Path(sys.argv[1]).rglob("*.txt")))
turns, threads = int(sys.argv[3]), 4
def packed():
    words = [sys.argv[4], "status", "--json"]
    done = subprocess.run(words, stdout=subprocess.PIPE, check=True)
    return json.loads(done.stdout)["tiers"][0]["files"]
while packed() < len(paths):
    time.sleep(0.1)
def read(path):
    with open(path, "rb") as file:
        return hashlib.sha256(file.read()).hexdigest() == right[Path(path).name]
def run(number):
    mixed = random.Random(number % turns).sample(paths, len(paths))
    with ThreadPoolExecutor(threads) as readers:
        return all(readers.map(read, mixed if turns > 1 else paths))
with Pool(8) as processes:
    assert all(processes.map(run, range(8 * turns), 1))
"""


def read_by_32_threads(
    node: Runner, folder: Path, turns: int, *options: str
) -> dict[str, Any]:
    """The report of a job whose 8 processes read all files right, by 4 threads each.

    They begin when all files are packed.
    """
    sums = folder.parent / "sums"
    lines = [
        f"{path.name} {hashlib.sha256(path.read_bytes()).hexdigest()}\n"
        for path in folder.rglob("*.txt")
    ]
    sums.write_text("".join(lines))
    program = folder.parent / "threads.py"
    program.write_text(READ_ALL)
    command: Words = ["python3", program, folder, sums, str(turns), node.command]
    codec = ("--set", "tiers[0].codec=zstd:3", *options)
    outcome = node.under_monarch(command, roots=[folder], options=codec).succeed()
    return dict(outcome.report)


def test_many_threads_that_open_a_packed_file_decode_it_once(
    runner: Runner, folder: Path
) -> None:
    report = read_by_32_threads(runner, folder, 1)

    packed, agent = report["packed"], report["agent"]
    # Fill packs before a program opens a file; files opened earlier arrive plain.
    assert packed["decoded_files"] + agent["transit_files"] == FILES
    assert agent["transit_full"] == 0


def test_memory_of_decoded_files_is_bounded_by_the_pool(
    runner: Runner, run_root: Path, folder: Path
) -> None:
    """By what its files take of memory, seen from outside while others come."""
    bound, most = 2 << 20, 0
    ended = threading.Event()

    def look() -> None:
        nonlocal most
        while not ended.wait(0.01):
            most = max(most, decoded_bytes(run_root))

    looking = threading.Thread(target=look)
    looking.start()
    try:
        transit = ("--set", f"peers.transit={bound}B")
        report = read_by_32_threads(runner, folder, 2, *transit)
    finally:
        ended.set()
        looking.join()

    assert 0 < most <= 1.1 * bound
    # The set does not fit into the pool: reopened files are decoded again.
    assert report["packed"]["decoded_files"] > FILES
    assert total(folder) > 4 * bound


def decoded_bytes(run_root: Path) -> int:
    """The space of the files in the pools of all jobs below."""
    files = files_below(run_root).items()
    return sum(one.st_blocks * 512 for p, one in files if p.parent.name == "transit")


def test_four_nodes_together_hold_a_dataset_that_fits_only_packed(
    make_cluster: Callable[..., Cluster],
) -> None:
    nodes = make_cluster()
    fill_anew(nodes.origin.source, body)
    share = int(0.15 * nodes.size_bytes)
    tier = ("--tier", f"ram:{share + POOL}B:{nodes.ram}")
    small = ("--set", "peers.mode=partition", "--set", f"peers.transit={POOL}B")

    job = nodes.start(Plan(3), *tier, *small, hold=[1])
    job.await_epoch(1)
    first = nodes.origin.counts().read_bytes
    job.release(1)
    outcome = job.finish()
    outcome.right(opens=12 * len(nodes.sizes))

    assert first <= OVERREAD_MAX * nodes.size_bytes
    later = nodes.origin.counts().read_bytes - first
    assert later <= 0.02 * nodes.size_bytes
    assert outcome.report["packed"]["ratio"] > 1.7
    # Files packed at a peer were staged: later epochs have no misses.
    assert outcome.report["counters"]["opens_miss"] <= 4 * len(nodes.sizes)


def test_missing_library_is_reported_and_files_are_packed_uncompressed(
    monkeypatch: pytest.MonkeyPatch, runner: Runner, tmp_path: Path
) -> None:
    from monarch.agent import packed_tiers
    from monarch.agent.codec_choice import Space
    from monarch.agent.job_spec import TierCodec
    from monarch.config import Tier as TierSection
    from monarch.tiers import TierSettings, open_tier

    section = TierSection(name="ram", kind="ram", codec="zstd:3")
    tier = open_tier(TierSettings.of(0, section), "test")
    monkeypatch.setattr(packed_tiers, "codec_library", lambda codec: None)
    told: list[str] = []

    wanted = packed_tiers._Wanted(0, tier, None, Space(0))
    agreed = packed_tiers._agreed(wanted, TierCodec(0, "zstd:3", 2.0), told.append)

    assert agreed is not None
    assert agreed.codec == "none"
    assert "has not the library of zstd" in told[0]


RULES = """[{files: ["*.bin"], codec: none}, {files: ["a/**"], codec: lz4}]"""


@pytest.mark.parametrize("main", ["zstd:1", "auto"])
def test_files_with_some_names_have_a_codec_of_their_own(
    runner: Runner, tmp_path: Path, main: str
) -> None:
    root = tmp_path / "data"
    names = [
        f"{folder}/{n}.{end}"
        for folder in "ab"
        for end in ("bin", "txt")
        for n in range(20)
    ]
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(name.encode() * 60_000)
    codecs = [f"tiers[0].codec={main}", f"tiers[0].codecs={RULES}"]
    program = f"""
import pathlib, time
root = pathlib.Path({str(root)!r})
for turn in range(2):
    for name in {names!r}:
        assert (root / name).read_bytes() == name.encode() * 60_000, name
    time.sleep(1.5)
"""

    outcome = runner.under_monarch(
        ["python3", "-c", program],
        roots=[root],
        options=[word for codec in codecs for word in ("--set", codec)],
    )

    assert outcome.succeed()
    packed, tier = outcome.report["packed"], outcome.report["tiers"][0]
    assert packed["files"] == len(names)
    codec, _, rules = tier["codec"].partition(",")
    assert rules == " none for *.bin, lz4 for a/**"
    # All files fit uncompressed: nothing is compressed if reading less is no faster.
    is_raw = "none" in codec
    assert main == "auto" or not is_raw
    raw = len(names) / 2 + (len(names) / 4 if is_raw else 0)  # *.bin, also in a/
    assert packed["raw_files"] == raw
    # The share of each rule is known without a sample.
    assert (1.2 if is_raw else 1.5) < tier["expected_ratio"] <= 2.2


def test_auto_has_nothing_to_choose_where_rules_match_all(
    runner: Runner, tmp_path: Path
) -> None:
    root = tmp_path / "data"
    root.mkdir()
    for n in range(60):
        (root / f"{n}.bin").write_bytes(random.Random(n).randbytes(300_000))
    rule = """tiers[0].codecs=[{files: ["*.bin"], codec: lz4}]"""

    outcome = replace(runner, tier="ram:12MiB").under_monarch(
        ["sh", "-c", f"cat {root}/*.bin | cksum"],
        roots=[root],
        options=["--set", "tiers[0].codec=auto", "--set", rule],
    )

    assert outcome.succeed()
    assert outcome.report["packed"]["ratio"] <= 1.0
    assert outcome.report["tiers"][0]["expected_ratio"] == pytest.approx(1.0)


def test_codec_is_chosen_for_a_tier_whose_speed_cannot_be_measured(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from monarch.agent import packed_tiers
    from monarch.config import Tier as TierSection
    from monarch.tiers import TierSettings, open_tier, speed

    section = TierSection(name="ram", kind="ram", codec="auto")
    tier = open_tier(TierSettings.of(0, section), "test")

    def measure(directory: Path, room_bytes: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(speed, "measure_speed", measure)
    told: list[str] = []

    found = packed_tiers._speed_of(tier, told.append)

    assert found.bytes_per_s == packed_tiers.MEMORY[1]
    assert told == [
        "tier ram: its speed cannot be measured (No space left on device): the codec "
        "is chosen as for memory"
    ]


# Reads files in many threads while all processors are busy: threads wait for one.
CROWD = """
import concurrent.futures, multiprocessing, os, pathlib, sys
def spin():
    while True:
        pass
busy = [multiprocessing.Process(target=spin) for _ in range(2 * os.cpu_count())]
for process in busy:
    process.start()
files = sorted(pathlib.Path(sys.argv[1]).iterdir())
with concurrent.futures.ThreadPoolExecutor(16) as pool:
    for _ in range(2):
        list(pool.map(pathlib.Path.read_bytes, files))
for process in busy:
    process.kill()
"""


def test_the_processor_time_of_the_report_is_that_of_the_agent_without_waits(
    runner: Runner, tmp_path: Path
) -> None:
    root = tmp_path / "data"
    root.mkdir()
    words = [*map(str, range(5000))]
    for n in range(100):
        text = " ".join(random.Random(n).choices(words, k=60_000))
        (root / f"{n}").write_text(text)

    report = (
        replace(runner, tier="ram:64MiB")
        .under_monarch(
            [sys.executable, "-c", CROWD, str(root)],
            roots=[root],
            options=["--set", "tiers[0].codec=zstd:9"],
        )
        .succeed()
        .report
    )

    packed, run = report["packed"], report["run"]
    spent_s = packed["pack_s"] + packed["decode_s"]
    assert 0 < spent_s <= run["agent_cpu_s"]
    assert spent_s <= run["seconds"] * (os.cpu_count() or 1)
