"""Whole jobs whose programs start before their datasets are indexed."""

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from monarch.native import DTYPES
from support.agents import AgentProcess, start_agent
from support.countfs import CountFs
from support.dataset import Dataset, make_dataset
from support.obedient import Program
from support.processes import wait_until
from support.programs import ready_opens
from support.tier_codecs import in_blocks

Start = Callable[..., AgentProcess]


@pytest.fixture
def slow(dataset: Dataset, mount_counted: Callable[[Path], CountFs]) -> CountFs:
    """The dataset on a file system that does not list one of its directories."""
    mount = mount_counted(dataset.root)
    mount.set(stall="class-3")
    return mount


@pytest.fixture
def start(run_root: Path, slow: CountFs, memory: Path) -> Iterator[Start]:
    """Starts an agent whose programs do not wait for the scan."""
    started: list[AgentProcess] = []

    def begin(*options: str) -> AgentProcess:
        given = ["--data", str(slow.root), "--tier", f"ram:256MiB:{memory}"]
        given += ["--set", "catalog.wait_max=200ms", *options]
        agent = start_agent(run_root / "j.n", given)
        started.append(agent)
        return agent

    yield begin
    slow.set(stall="")
    for agent in started:
        agent.kill()


def line(
    monarch_command: Path, slow: CountFs, report: Path, *program: str
) -> list[str]:
    """`monarch run` of a program that does not wait for the scan."""
    words = [str(monarch_command), "run", "--data", str(slow.root)]
    words += ["--tier", "ram:64MiB", "--set", "catalog.wait_max=200ms"]
    return [*words, "--report", str(report), "--", *program]


def test_job_that_ends_before_its_scan_ends_in_order(
    slow: CountFs,
    dataset: Dataset,
    monarch_command: Path,
    run_root: Path,
    tmp_path: Path,
) -> None:
    readable = next(p for p in dataset.paths if "class-3" not in str(p))
    path = slow.root / readable.relative_to(dataset.root)
    began = time.monotonic()

    try:
        done = subprocess.run(
            line(
                *(monarch_command, slow, tmp_path / "report.json"),
                *("sh", "-c", f"cat {path} | wc -c; exit 5"),
            ),
            capture_output=True,
            text=True,
            timeout=60,
        )
    finally:
        slow.set(stall="")

    report = json.loads((tmp_path / "report.json").read_text())
    assert done.returncode == 5, done.stderr
    assert int(done.stdout) == readable.stat().st_size
    assert "datasets not indexed after 200 ms" in done.stderr
    said = " ".join(done.stderr.split())
    assert "nothing was staged: the datasets were not indexed yet." in said
    assert report["counters"]["origin_early"] >= 1
    assert report["run"]["late_s"] > 0
    assert time.monotonic() - began < 30
    wait_until(lambda: not list(run_root.iterdir()))


def test_programs_are_served_once_the_scan_has_ended(
    start: Start, slow: CountFs, dataset: Dataset, tier_codec: str
) -> None:
    agent = start()
    agent.listen("late")
    assert agent.status()["state"] == "scanning"
    program = Program.run(agent.environ())
    paths = [slow.root / path.relative_to(dataset.root) for path in dataset.paths]
    first = next(path for path in paths if "class-3" not in str(path))
    before = program.read(first)

    slow.set(stall="")
    agent.listen("ready")
    agent.await_staged(len(paths))

    assert [program.read(path) for path in paths][paths.index(first)] == before
    counters = agent.status()["report"]["counters"]
    program.end()
    assert counters["origin_early"] == 1
    assert ready_opens(counters) == len(paths) - in_blocks(tier_codec)


def test_writes_during_the_scan_are_read_by_all(
    start: Start, slow: CountFs, tmp_path: Path
) -> None:
    """Here the scan has seen the files before, and waits for another dataset."""
    other = make_dataset(tmp_path / "other", large=0)
    agent = start("--data", str(other.root))
    agent.listen("late")
    program = Program.run(agent.environ())
    first, second, *_ = other.paths
    program.write(first)
    kept = f"globals().update(kept=open({str(second)!r}, 'r+'))"
    assert program.do(kept) == "None"

    slow.set(stall="")
    agent.listen("ready")
    wait_until(lambda: agent.status()["in_flight"] == 0)
    assert program.do("kept.write('NEW') and kept.flush()") == "None"

    for path in (first, second):
        assert agent.read(path).startswith(b"NEW")
        assert program.read(path).startswith("(b'NEW'")
    assert agent.status()["report"]["counters"]["origin_written"] >= 4
    program.end()
    assert agent.stop() == 0


@pytest.mark.root
def test_writes_of_a_process_that_cannot_reach_the_catalog_are_marked(
    start: Start, slow: CountFs, tmp_path: Path
) -> None:
    """It has another root directory: the agent finds its changes."""
    other = make_dataset(tmp_path / "other", large=0)
    agent = start("--data", str(other.root))
    agent.listen("late")
    path, jail = other.paths[0], other.root.parent
    program = Program.run(agent.environ())
    assert program.do(f"os.chroot({str(jail)!r})") == "None"
    slow.set(stall="")
    agent.listen("ready")
    agent.await_staged(len(other.paths))
    assert not agent.read(path).startswith(b"NEW")

    inside = f"open({str(Path('/') / path.relative_to(jail))!r}, 'w').write('NEW')"
    assert program.do(inside) == "3"

    wait_until(lambda: agent.read(path) == b"NEW")
    program.end()


def rewrite(path: Path) -> None:
    """Other bytes of the same size, and the same time of change."""
    before = path.stat()
    path.write_bytes(b"x" * before.st_size)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


@pytest.fixture
def indexed(
    dataset: Dataset, run_root: Path, tmp_path: Path
) -> Iterator[Callable[..., AgentProcess]]:
    """Starts agents, one after the other, that load an index of the dataset."""
    saved = tmp_path / "saved.index"
    command = [sys.executable, "-m", "monarch", "index", str(dataset.root)]
    subprocess.run([*command, "-o", str(saved)], check=True, capture_output=True)
    (tmp_path / "ssd").mkdir()
    started: list[AgentProcess] = []

    def begin(*options: str) -> AgentProcess:
        given = ["--data", str(dataset.root), "--index", str(saved), *options]
        given += ["--tier", f"ssd:64MiB:{tmp_path / 'ssd'}"]
        agent = start_agent(run_root / f"j{len(started)}.n", given)
        started.append(agent)
        agent.listen("ready")
        return agent

    yield begin
    for agent in started:
        agent.kill()


def test_files_of_an_index_are_compared_beside_the_job(
    indexed: Callable[..., AgentProcess], dataset: Dataset
) -> None:
    """Files that differ are the origin's from then on, without an open before."""
    rewrite(dataset.paths[0])
    with dataset.paths[1].open("ab") as file:
        file.write(b"more")

    agent = indexed("--set", "fill.enabled=false")

    def marked() -> int:
        flags, dtype = np.fromfile(agent.run / "flags", np.uint8), DTYPES["flags"]
        marks = int(flags[: dtype.itemsize].view(dtype)["count"][0])
        return int(np.count_nonzero(flags[dtype.itemsize :][:marks]))

    wait_until(lambda: marked() == 2)
    assert agent.read(*dataset.paths[:2]) == b"".join(
        path.read_bytes() for path in dataset.paths[:2]
    )
    counters = agent.status()["report"]["counters"]
    assert counters["origin_written"] == 2
    wait_until(lambda: "saved index compared" in agent.log())
    assert marked() == 2
    before = agent.status()["report"]["metadata"]["answered"]
    words = [
        sys.executable,
        "-c",
        "import os, sys; print(os.stat(sys.argv[1]).st_size)",
    ]
    shown = subprocess.check_output([*words, dataset.paths[2]], env=agent.environ())
    assert int(shown) == dataset.paths[2].stat().st_size
    assert agent.status()["report"]["metadata"]["answered"] > before


def test_copy_of_an_earlier_job_is_adopted_if_its_file_is_unchanged(
    indexed: Callable[..., AgentProcess], dataset: Dataset
) -> None:
    """Neither the index nor the copy shows that the file was rewritten since."""
    first = indexed("--set", "retain=node")
    first.await_staged(len(dataset.paths))
    first.stop()
    rewrite(dataset.paths[0])

    second = indexed("--set", "retain=node")
    second.await_figure("adopted_files", len(dataset.paths) - 1)

    assert second.read(dataset.paths[0]) == dataset.paths[0].read_bytes()
    assert second.figures()["adopted_files"] == len(dataset.paths) - 1


@pytest.mark.root
def test_catalog_that_finds_no_room_later_leaves_programs_to_the_origin(
    start: Start, slow: CountFs, dataset: Dataset, run_root: Path
) -> None:
    subprocess.run(["mount", "-t", "tmpfs", "-osize=8m", "x", run_root], check=True)
    try:
        os.chmod(run_root, 0o700)
        agent = start()
        agent.listen("late")
        program = Program.run(agent.environ())
        path = next(p for p in dataset.paths if "class-3" not in str(p))
        with contextlib.suppress(OSError), (run_root / "filled").open("wb") as file:
            while True:
                file.write(bytes(4096))
                file.flush()

        slow.set(stall="")
        reason = agent.listen("plain")

        assert "no room for" in reason
        assert program.read(slow.root / path.relative_to(dataset.root)) != ""
        assert agent.status()["state"] == "plain"
        program.end()
        assert agent.stop() == 0
        said = " ".join(line.removeprefix("say ") for line in agent.heard)
        assert f"nothing was staged: {reason}" in " ".join(said.split())
    finally:
        subprocess.run(["umount", "-l", run_root], check=True)


def test_unusable_dataset_is_reported_before_any_program_starts(
    start: Start, slow: CountFs, tmp_path: Path
) -> None:
    """However short programs wait, and however long another dataset takes."""
    agent = start("--data", str(tmp_path / "missing"))

    assert "missing does not exist" in agent.listen("fail")
    assert not any(heard.startswith("late") for heard in agent.heard)


def test_unresponsive_root_delays_no_start(
    start: Start, slow: CountFs, tmp_path: Path
) -> None:
    other = make_dataset(tmp_path / "other", large=0)
    slow.set(stall="/")

    agent = start("--data", str(other.root))

    agent.listen("late")
    assert agent.status()["state"] == "scanning"
