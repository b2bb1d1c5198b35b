"""A root or a Tier that hangs or fails delays nothing else."""

import errno
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support import countfs
from support.agents import AgentProcess, start_agent
from support.countfs import CountFs
from support.dataset import Dataset, make_dataset
from support.processes import wait_until
from support.tier_codecs import PLAIN

SERVED_S = 3.0
OPENAT = {"x86_64": "257", "aarch64": "56"}
"""The number of the system call."""
"""Ample for an open that is served or sent on; others may wait ten times longer."""
OPEN_ALL = (
    "import sys, time\n"
    "for path in sys.argv[1:]:\n"
    "    began = time.monotonic()\n"
    "    open(path, 'rb').read()\n"
    "    print(time.monotonic() - began)\n"
)

Begin = Callable[..., AgentProcess]


@pytest.fixture
def begin(
    run_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Begin]:
    """A function that starts an agent on some roots."""
    monkeypatch.setenv("MONARCH_STAGING_NODE", "n")
    started: list[AgentProcess] = []

    def start(*options: str | Path, wait: str = "ready") -> AgentProcess:
        # RAM tiers are in the same place as those of all other tests.
        run = run_root / f"hung{os.getpid()}.n"
        agent = start_agent(run, list(map(str, options)))
        started.append(agent)
        agent.listen(wait)
        return agent

    yield start
    for agent in started:
        agent.kill()


@pytest.fixture
def other(tmp_path: Path) -> Dataset:
    """A second dataset."""
    return make_dataset(tmp_path / "other", large=0, seed=2)


def open_all(agent: AgentProcess, paths: list[Path]) -> list[float]:
    """How long a program under the Shim took for each of these files."""
    words = [sys.executable, "-c", OPEN_ALL, *map(str, paths)]
    done = subprocess.run(
        words, env=agent.environ(), capture_output=True, text=True, check=True
    )
    return [float(line) for line in done.stdout.splitlines()]


def cats(agent: AgentProcess, paths: list[Path]) -> "list[subprocess.Popen[bytes]]":
    """Programs that read a file each."""
    return [
        subprocess.Popen(["cat", path], env=agent.environ(), stdout=subprocess.DEVNULL)
        for path in paths
    ]


def is_opening(process: "subprocess.Popen[bytes]") -> bool:
    """Whether the kernel lets a program wait in an open, not Monarch in a futex."""
    text = Path(f"/proc/{process.pid}/syscall").read_text()
    return text.split()[0] == OPENAT[os.uname().machine]


# -- roots ------------------------------------------------------------------------


def test_a_hung_root_delays_no_open_of_another_root(
    begin: Begin,
    dataset: Dataset,
    other: Dataset,
    mount_counted: Callable[[Path], CountFs],
) -> None:
    sick = mount_counted(dataset.root)
    agent = begin(
        *("--data", sick.root, "--data", other.root),
        *("--tier", "ram:64MiB", "--set", "fill.enabled=false"),
    )
    paths = sorted(sick.root.glob("class-*/sample-*"))[:24]
    sick.set(stall="class-")
    stuck = cats(agent, paths)
    try:
        wait_until(lambda: agent.status()["in_flight"] >= 12, "Transfers that hang")
        times = open_all(agent, other.paths)
        opened = agent.figures()["staged_files"]
    finally:
        sick.set(stall="")
        ends = [process.wait(60) for process in stuck]

    assert max(times) < SERVED_S
    assert opened == len(other.paths)
    assert ends == [0] * len(stuck)


def test_programs_do_not_wait_for_copies_from_a_hung_root(
    begin: Begin, dataset: Dataset, mount_counted: Callable[[Path], CountFs]
) -> None:
    sick = mount_counted(dataset.root)
    agent = begin(
        "--data", sick.root, "--tier", "ram:64MiB", "--set", "fill.enabled=false"
    )
    *paths, last = sorted(sick.root.glob("class-*/sample-*"))
    sick.set(stall="class-")
    began = time.monotonic()
    stuck = cats(agent, paths)
    try:
        wait_until(
            lambda: all(map(is_opening, stuck)),
            "opens that go to the origin",
        )
        took_s = time.monotonic() - began
    finally:
        sick.set(stall="")
        ends = [process.wait(60) for process in stuck]

    assert took_s < SERVED_S
    assert ends == [0] * len(stuck)
    # The root answers again: its Files are staged as before.
    wait_until(lambda: agent.status()["in_flight"] == 0, "the end of what hung")
    staged = agent.figures()["staged_files"]
    assert max(open_all(agent, [last])) < SERVED_S
    agent.await_figure("staged_files", staged + 1)


@pytest.mark.parametrize("where", ["class-3", "/"])
def test_a_root_whose_scan_hangs_leaves_the_others_staged(
    begin: Begin,
    dataset: Dataset,
    other: Dataset,
    mount_counted: Callable[[Path], CountFs],
    where: str,
) -> None:
    sick = mount_counted(dataset.root)
    sick.set(stall=where)
    began = time.monotonic()
    agent = begin(
        *("--data", sick.root, "--data", other.root, "--tier", "ram:64MiB"),
        *("--set", "catalog.wait_max=2s"),
    )
    took_s = time.monotonic() - began
    try:
        agent.await_staged(len(other.paths))
        times = open_all(agent, other.paths)
    finally:
        sick.set(stall="")

    assert took_s < 5 * SERVED_S
    assert max(times) < SERVED_S
    assert any("is not staged" in line for line in agent.heard)


# -- Tiers ------------------------------------------------------------------------


@pytest.fixture(scope="session")
def tierfs_program() -> Path:
    """The compiled file system that fails and hangs on command."""
    if lack := countfs.missing():
        pytest.skip(lack)
    return countfs.build(countfs.SOURCE.with_name("tierfs.c"))


@pytest.fixture
def medium(tierfs_program: Path, tmp_path: Path) -> Iterator[CountFs]:
    """A file system for a Tier."""
    (tmp_path / "medium").mkdir()
    (tmp_path / "mounted").mkdir()
    with countfs.mounted(
        tierfs_program, tmp_path / "medium", tmp_path / "mounted"
    ) as mount:
        yield mount
        mount.set(eio=0)


@pytest.fixture
def staged(begin: Begin, dataset: Dataset, medium: CountFs) -> AgentProcess:
    """An agent with all files in a Tier on that file system, and room in a second."""
    agent = begin(
        *("--data", dataset.root, "--tier", f"ssd:64MiB:{medium.root}"),
        *("--tier", "ram:64MiB"),
    )
    agent.await_staged(len(dataset.paths))
    return agent


def content_of(paths: list[Path]) -> bytes:
    """The content of the files."""
    return b"".join(path.read_bytes() for path in paths)


@pytest.mark.parametrize(
    "harm", [{"eio": 2}, {"eio": 3}, {"stall": "all"}], ids=["opens", "all", "hangs"]
)
def test_a_tier_that_fails_is_withdrawn_and_its_files_are_staged_elsewhere(
    staged: AgentProcess,
    dataset: Dataset,
    medium: CountFs,
    harm: dict[str, str | int],
    tier_codec: str,
) -> None:
    # Files in the Pool stay there: pieces of the large file, which were packed from it,
    # and files that programs read while the packed Tier failed.
    count = len(dataset.paths) - (6 if tier_codec != PLAIN else 0)
    medium.set(**harm)
    try:
        if "stall" not in harm:  # an open on a hung medium never returns
            assert staged.read(*dataset.paths[:5]) == content_of(dataset.paths[:5])
        staged.await_figure("tiers_lost", 1)
        staged.await_staged(count)
        tiers = staged.status()["report"]["tiers"]
        times = open_all(staged, dataset.paths)
    finally:
        medium.set(eio=0, stall="")

    assert [tier["in_service"] for tier in tiers] == [False, True]
    assert tiers[1]["files"] >= count
    assert max(times) < SERVED_S
    assert staged.figures()["agent_errors"] == 0
    assert staged.stop() == 0
    lines = [line for line in staged.heard if "is no longer used" in line]
    assert len(lines) == 1, staged.heard


def test_a_tier_that_hangs_delays_no_end(staged: AgentProcess, medium: CountFs) -> None:
    medium.set(stall="all")
    try:
        staged.await_figure("tiers_lost", 1)
        began = time.monotonic()
        status = staged.stop()
        took_s = time.monotonic() - began
    finally:
        medium.set(stall="")

    assert status == 0
    assert took_s < 2 * SERVED_S


@pytest.mark.parametrize("harm", [{"eio": 3}, {"stall": "all"}], ids=["fails", "hangs"])
def test_a_tier_that_is_broken_at_the_start_is_not_used(
    begin: Begin, dataset: Dataset, medium: CountFs, harm: dict[str, str | int]
) -> None:
    options = ("--data", dataset.root, "--tier", f"ssd:64MiB:{medium.root}")
    medium.set(**harm)
    began = time.monotonic()
    try:
        agent = begin(*options, "--tier", "ram:64MiB", "--set", "catalog.wait_max=2s")
        took_s = time.monotonic() - began
        agent.await_staged(len(dataset.paths))
    finally:
        medium.set(eio=0, stall="")

    assert took_s < 4 * SERVED_S
    assert any("is not used" in line for line in agent.heard)


def test_an_error_of_a_tier_under_an_open_file_reaches_the_program(
    staged: AgentProcess, dataset: Dataset, medium: CountFs
) -> None:
    """As the fine print says: only opens are covered."""
    script = (
        "import sys; file = open(sys.argv[1], 'rb', buffering=0)\n"
        "print('open', flush=True); sys.stdin.readline()\n"
        "try:\n    file.read(10)\n"
        "except OSError as error:\n    print(error.errno)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script, str(dataset.paths[0])],
        env=staged.environ(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == "open\n"
        medium.set(eio=1)
        out, _ = program.communicate("\n", timeout=60)
    medium.set(eio=0)

    assert out == f"{errno.EIO}\n"
