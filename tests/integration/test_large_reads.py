"""Large Files are read once, whatever part is read, with the origin's bytes."""

import os
import random
import subprocess
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from support.clusters import Cluster
from support.commands import without_doubts
from support.countfs import CountFs
from support.nodes import Plan
from support.programs import (
    Outcome,
    Runner,
    compile_program,
    consumer,
    finish,
    read_report,
    start,
    tried_bytes,
)

MIB = 1 << 20
SIZE = 3 * 8 * MIB + 123_457
BLOCK = 256 << 10
NO_FILL = ("--set", "fill.enabled=false")
THROUGH_PROBES = 5
"""Small reads at random after which a program knows whether to wait for the agent."""

pytestmark = pytest.mark.timeout(200)


def make_file(folder: Path, size: int = SIZE, seed: int = 1) -> Path:
    """A file of random bytes in a dataset of its own."""
    folder.mkdir(exist_ok=True)
    file = folder / f"shard{seed}.bin"
    file.write_bytes(random.Random(seed).randbytes(size))
    return file


def both(
    runner: Runner, file: Path, *words: str, options: tuple[str, ...] = NO_FILL
) -> Outcome:
    """The outcome under Monarch, whose output equals that of the plain program."""
    way, *more = words
    command = consumer("read_parts.py", way, file, *more)
    plain = runner.plain(command).succeed()
    outcome = runner.under_monarch(command, roots=[file.parent], options=options)
    assert outcome.stdout == plain.stdout
    return outcome.succeed()


@pytest.fixture
def counted(mount_counted: Callable[..., CountFs], tmp_path: Path) -> CountFs:
    """A counting origin with one large file."""
    make_file(tmp_path / "data")
    return mount_counted(tmp_path / "data")


def shard(view: CountFs) -> Path:
    """The file as programs name it."""
    return view.root / "shard1.bin"


@pytest.mark.parametrize("fill", ["true", "false"])
def test_reading_in_sequence_for_three_epochs_reads_the_origin_once(
    runner: Runner, counted: CountFs, fill: str
) -> None:
    command = consumer("read_parts.py", "sequence", shard(counted), "0", "3")
    plain = runner.plain(command).succeed()
    counted.reset()

    options = ("--set", f"fill.enabled={fill}")
    outcome = runner.under_monarch(command, roots=[counted.root], options=options)

    assert outcome.stdout == plain.stdout
    assert SIZE <= counted.counts().read_bytes <= 1.02 * SIZE
    assert outcome.counter("reads_origin") == 0


def test_small_random_reads_do_not_wait_where_the_origin_is_fast(
    runner: Runner, mount_counted: Callable[..., CountFs], tmp_path: Path
) -> None:
    """They are copied afterwards, out of the page cache, and read from the copy later.

    An origin on a busy machine is a slow one: one of some jobs meets a fast one.
    """
    make_file(tmp_path / "data")
    # The Extents of a Pool that runs short are completed.
    options = (*NO_FILL, "--set", f"peers.transit={3 * SIZE}B")
    passed = []
    for _ in range(5):
        view = mount_counted(tmp_path / "data", cached=1)
        command = consumer("read_parts.py", "small", shard(view), "1000")
        outcome = runner.under_monarch(command, roots=[view.root], options=options)
        ours = view.counts().read_bytes
        direct = mount_counted(tmp_path / "data", cached=1)
        plain = runner.plain(consumer("read_parts.py", "small", shard(direct), "1000"))

        assert outcome.succeed().stdout == plain.succeed().stdout
        assert ours <= 1.25 * direct.counts().read_bytes
        assert outcome.counter("reads_local") > 900
        passed.append(outcome.counter("reads_origin"))
        if passed[-1] > 500:
            break

    assert passed[-1] > 500, passed


def test_small_random_reads_wait_for_the_agent_where_the_origin_is_slow(
    runner: Runner, mount_counted: Callable[..., CountFs], tmp_path: Path
) -> None:
    make_file(tmp_path / "data")
    view = mount_counted(tmp_path / "data", cached=1, read_us=1000)
    command = consumer("read_parts.py", "small", shard(view), "200")

    outcome = runner.under_monarch(command, roots=[view.root], options=NO_FILL)

    assert outcome.succeed().counter("reads_local") > 300


def test_a_sparse_reader_reads_only_its_bytes_from_the_origin_and_once(
    runner: Runner, counted: CountFs
) -> None:
    """Rounded to Blocks; the whole File is not copied."""
    command = consumer("read_parts.py", "sparse", shard(counted), "10", "3")
    plain = runner.plain(command).succeed()
    counted.reset()

    outcome = runner.under_monarch(command, roots=[counted.root], options=NO_FILL)

    assert outcome.stdout == plain.stdout
    assert counted.counts().read_bytes <= 20 * BLOCK < SIZE / 4
    read = outcome.counter("reads_local"), outcome.counter("reads_origin")
    assert sum(read) == 30
    assert read[1] <= THROUGH_PROBES
    assert outcome.report["staging"]["files"] == 0


def test_fill_completes_partly_read_files(runner: Runner, counted: CountFs) -> None:
    """After all other Files; each Block is read from the origin once."""
    make_file(counted.source, seed=2)
    file = shard(counted)
    program = f"{{ {shell('sparse', file)}; }} && {shell('staged', file)}"
    counted.reset()

    outcome = runner.under_monarch(
        ["sh", "-c", program], roots=[counted.root]
    ).succeed()

    assert 2 * SIZE <= counted.counts().read_bytes <= 1.02 * 2 * SIZE
    assert outcome.report["staging"]["files"] == 2


def test_waiting_readers_are_served_when_a_file_becomes_whole(
    make_cluster: Callable[..., Cluster],
) -> None:
    """They wait for Blocks, of which nothing is told any more of a whole File."""
    sizes = [(8 << 20) + 300_001 * number for number in range(1, 13)]
    cluster = make_cluster(1, sizes=sizes)
    cluster.origin.set(bw=200_000_000)
    plan = Plan(1, workers=6, sharding="together", reading="order")

    outcome = cluster.run(plan, *NO_FILL).right(opens=6 * len(sizes))

    assert outcome.report["counters"]["reads_origin"] == 0
    read_bytes = cluster.origin.counts().read_bytes
    assert read_bytes == cluster.size_bytes + tried_bytes(outcome.report)


def shell(way: str, file: Path) -> str:
    """A command that reads in this way, or waits until all Files are staged."""
    if way == "staged":
        stage = consumer("stage_all.py", file.parent)
        return " ".join(stage)
    return " ".join(consumer("read_parts.py", way, file))


@pytest.mark.parametrize("way", ["vectors", "shared", "reused"])
@pytest.mark.parametrize("kind", ["plain", "counted"])
def test_all_kinds_of_reads_return_the_bytes_of_the_origin(
    runner: Runner,
    counted: CountFs,
    tmp_path: Path,
    way: str,
    kind: str,
) -> None:
    """On a file system whose inode numbers are kept, and on one where they are not."""
    file = shard(counted) if kind == "counted" else tmp_path / "data" / "shard1.bin"
    outcome = both(runner, file, way)
    assert outcome.counter("reads_local") >= 1


def test_each_function_that_reads_is_served(runner: Runner, tmp_path: Path) -> None:
    outcome = both(runner, make_file(tmp_path / "data"), "symbols")
    assert outcome.counter("reads_local") == len(outcome.stdout.splitlines()) == 12


def test_a_read_that_is_served_is_a_cancellation_point(
    runner: Runner, tmp_path: Path
) -> None:
    file = make_file(tmp_path / "data")
    program = compile_program("cancel_reads", "cancel_reads.c", "-pthread")

    outcome = runner.under_monarch(
        [program, file], roots=[file.parent], options=NO_FILL
    )

    assert outcome.succeed().stdout == b"cancelled\n"
    assert outcome.counter("reads_local") > 1


def test_copies_of_a_descriptor_are_served_too(runner: Runner, tmp_path: Path) -> None:
    outcome = both(runner, make_file(tmp_path / "data"), "shared")
    assert outcome.counter("reads_local") == 10
    assert outcome.counter("reads_origin") == 0


def test_a_write_is_seen_by_the_next_read(runner: Runner, tmp_path: Path) -> None:
    file = make_file(tmp_path / "data")
    kept = file.read_bytes()
    command = consumer("read_parts.py", "written", file)
    plain = runner.plain(command).succeed()
    file.write_bytes(kept)

    outcome = runner.under_monarch(command, roots=[file.parent], options=NO_FILL)

    assert outcome.stdout == plain.stdout
    assert outcome.report["staging"]["files"] == 0


class Halted:
    """A program that has read some of a File, and waits."""

    def __init__(self, runner: Runner, file: Path, *options: str) -> None:
        self.report = runner.folder / "report.json"
        line = runner.line([file.parent], self.report, options or NO_FILL)
        command = consumer("read_parts.py", "halted", file)
        self.process = start([*line, *command], stdin=subprocess.PIPE)
        assert self.process.stderr is not None
        told = ""
        while (said := self.process.stderr.readline()) not in (b"paused\n", b""):
            told += said.decode()
        assert said
        assert not without_doubts(told)

    def go_on(self) -> Outcome:
        """Let it read the rest, and return the outcome."""
        outcome = finish(self.process, answer=b"\n")
        return Outcome(*outcome.words, report=read_report(self.report, outcome))


def expected(file: Path, runner: Runner) -> bytes:
    """The output of the program without Monarch."""
    process = start(consumer("read_parts.py", "halted", file), stdin=subprocess.PIPE)
    return finish(process, answer=b"\n").stdout


def test_a_file_changed_by_another_program_is_read_from_the_origin(
    runner: Runner, tmp_path: Path
) -> None:
    """Without Monarch's knowledge, while the File is staged in part."""
    file = make_file(tmp_path / "data")
    halted = Halted(runner, file)
    first = file.read_bytes()[:1000]
    with file.open("r+b") as changed:
        changed.write(b"new" * 100_000)

    outcome = halted.go_on().succeed()

    assert (
        outcome.stdout.split(b"\n", 1)[1] == expected(file, runner).split(b"\n", 1)[1]
    )
    assert first != file.read_bytes()[:1000]
    assert outcome.counter("bytes_local") == 1000


def test_an_error_of_the_origin_is_the_programs_own(
    runner: Runner, counted: CountFs
) -> None:
    halted = Halted(runner, shard(counted))
    counted.set(read_eio="shard1")

    outcome = halted.go_on().succeed()

    lines = outcome.stdout.decode().splitlines()[1:]
    # The first MiB begins in a Block that was present; its second Block was not.
    assert lines[1:] == ["Input/output error"] * (len(lines) - 1)


def test_reads_continue_from_the_origin_when_the_agent_is_killed(
    runner: Runner, tmp_path: Path, run_root: Path
) -> None:
    file = make_file(tmp_path / "data")
    halted = Halted(runner, file)
    agents = [
        int(pid)
        for pid in os.listdir("/proc")
        if pid.isdigit() and is_agent(pid, run_root)
    ]
    for pid in agents:
        os.kill(pid, 9)

    outcome = finish(halted.process, answer=b"\n")

    assert agents
    assert outcome.stdout == expected(file, runner)


def is_agent(pid: str, run_root: Path) -> bool:
    """Whether a process is an agent of this test."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
    return b"agent" in words.split(b"\0") and os.fsencode(run_root) in words


def test_a_tier_that_fills_up_in_mid_job_costs_only_time(
    runner: Runner, tmp_path: Path
) -> None:
    """Others have filled the device: no Block is lost, and the room is freed."""
    file = make_file(tmp_path / "data")
    tier = tmp_path / "tier"
    tier.mkdir()
    words = ["mount", "-t", "tmpfs", "-o", "size=40m", "none", str(tier)]
    if subprocess.run(words, capture_output=True).returncode:
        pytest.skip("needs the right to mount")
    try:
        line = ["--tier", f"ssd:30MiB:{tier}", *NO_FILL]
        small = Runner(runner.command, runner.folder, "ram:1MiB")
        halted = Halted(small, file, *line)
        with (tier / "ballast").open("wb") as ballast, suppress(OSError):
            while True:
                ballast.write(bytes(MIB))
                ballast.flush()
        outcome = halted.go_on().succeed()
        (tier / "ballast").unlink()
        left = [name for _, _, names in os.walk(tier) for name in names]
    finally:
        subprocess.run(["umount", "-l", str(tier)], check=True)
    assert outcome.stdout == expected(file, runner)
    assert not left
    ram, ssd = (one["used_bytes"] for one in outcome.report["tiers"])
    # The last Extent is short: an Extent that fits elsewhere is stored there.
    assert (ram <= MIB, ssd) == (True, 0)
    assert outcome.counter("reads_origin") > 0
