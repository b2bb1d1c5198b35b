"""Programs that announce the files they will open next, and `monarch hint`."""

import asyncio
import errno
import json
import os
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import monarch
from monarch.agent.hints import Hints
from monarch.cluster import RUN_VARIABLE
from monarch.errors import MonarchError
from monarch.native import DTYPES
from support.agents import start_agent
from support.countfs import CountFs
from support.processes import wait_until

FILES, SIZE = 60, 64 << 10
TIER_BYTES = 1 << 20  # a quarter of the files, with their last pages

# Opens all files in the announced order, and checks each.
READER = """
import os, sys, time, monarch
mode, root, *names = sys.argv[1:]
paths = [os.path.join(root, name) for name in names]
if mode == "hint":
    print(monarch.hint(paths))
for path in paths:
    time.sleep(0.01)
    with open(path, "rb") as file:
        assert file.read() == os.path.basename(path).encode() * %d, path
"""

# Passes the order of the files to the command, and reads them with other programs.
SHELL = """
cd "$1"; shift
printf '%s\\n' "$@" missing | monarch hint --order -
sleep 0.5
cat "$@" | wc -c
"""


@pytest.fixture
def order(tmp_path: Path) -> list[str]:
    """Names in the order in which they are opened; their files hold their names."""
    names = [f"{number:03d}x" for number in range(FILES)]
    (tmp_path / "data").mkdir()
    for name in names:
        (tmp_path / "data" / name).write_bytes(name.encode() * (SIZE // 4))
    random.Random(3).shuffle(names)
    return names


Run = Callable[..., tuple[str, dict[str, Any]]]


@pytest.fixture
def run(tmp_path: Path, run_root: Path, monarch_command: Path) -> Run:
    """A function that runs a program under Monarch, and returns output and report."""

    def run_it(*words: str, capacity: int = TIER_BYTES) -> tuple[str, dict[str, Any]]:
        report = tmp_path / "report.json"
        options = ["--data", str(tmp_path / "data"), "--report", str(report)]
        options += ["--tier", f"ram:{capacity}B:{run_root}"]
        path = f"{monarch_command.parent}:{os.environ['PATH']}"
        done = subprocess.run(
            [str(monarch_command), "run", "-q", *options, "--", *words],
            env={**os.environ, "PATH": path},
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout, json.loads(report.read_text())

    return run_it


def reader(mode: str, root: Path, order: list[str]) -> tuple[str, ...]:
    """The words of a program that opens these files."""
    return sys.executable, "-c", READER % (SIZE // 4), mode, str(root), *order


def pooled(report: dict[str, Any]) -> int:
    """How many opens the Pool has answered."""
    rows = [row for row in report["sources"] if row["source"] == "transit pool"]
    return int(sum(row["opens"] for row in rows))


def test_a_dataset_larger_than_the_tiers_is_read_ahead(
    tmp_path: Path, run: Run, order: list[str]
) -> None:
    out, report = run(*reader("hint", tmp_path / "data", order))

    assert out == f"{FILES}\n"
    assert report["staging"]["hinted_files"] > FILES // 2
    assert pooled(report) > FILES // 3
    # The Pool takes its memory from the Tier.
    assert report["tiers"][0]["used_bytes"] <= TIER_BYTES * 7 // 8
    assert report["tiers"][0]["capacity_bytes"] == TIER_BYTES * 7 // 8
    assert report["transit"]["capacity_bytes"] == TIER_BYTES // 8
    # Files that were read ahead were opened, so that each file was read once.
    opened = report["origin"]["programs_opened_bytes"]
    read = report["origin"]["agent_read_bytes"] + opened
    assert read <= (FILES + TIER_BYTES // SIZE) * SIZE


def test_without_hints_the_tier_keeps_its_room(
    tmp_path: Path, run: Run, order: list[str]
) -> None:
    _, report = run(*reader("none", tmp_path / "data", order))

    assert report["tiers"][0]["used_bytes"] > TIER_BYTES * 7 // 8
    assert report["staging"]["hinted_files"] == pooled(report) == 0


def test_a_dataset_that_the_tiers_hold_needs_no_pool(
    tmp_path: Path, run: Run, order: list[str]
) -> None:
    words = reader("hint", tmp_path / "data", order)

    _, report = run(*words, capacity=16 * TIER_BYTES)

    assert report["transit"]["capacity_bytes"] == pooled(report) == 0
    assert report["tiers"][0]["capacity_bytes"] == 16 * TIER_BYTES


def test_the_command_takes_an_order_from_standard_input(
    tmp_path: Path, run: Run, order: list[str]
) -> None:
    """Paths are those of the directory in which it runs; the others are counted."""
    out, report = run("sh", "-c", SHELL, "sh", str(tmp_path / "data"), *order)

    said, size = out.splitlines()
    assert said.endswith(f"{FILES} of {FILES + 1} paths are files of the datasets")
    assert int(size) == FILES * SIZE
    assert pooled(report) > 0


def test_the_command_reports_that_no_agent_runs(
    tmp_path: Path, run_root: Path, monarch_command: Path
) -> None:
    (tmp_path / "order").write_text("/nowhere/a\n")

    done = command(monarch_command, tmp_path / "order")

    assert done.returncode == 1
    assert "no agent of yours is running" in done.stderr


def test_the_command_names_an_order_that_does_not_exist(
    tmp_path: Path, run_root: Path, monarch_command: Path
) -> None:
    done = command(monarch_command, tmp_path / "missing")

    assert done.returncode == 2
    assert str(tmp_path / "missing") in done.stderr
    assert len(done.stderr.splitlines()) == 1


def command(monarch_command: Path, order: Path) -> subprocess.CompletedProcess[str]:
    """`monarch hint` with an order in a file."""
    return subprocess.run(
        [str(monarch_command), "hint", "--order", str(order)],
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_a_hint_before_the_catalog_is_applied_once_it_is_ready(
    tmp_path: Path,
    run_root: Path,
    order: list[str],
    mount_counted: Callable[[Path], CountFs],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "data" / "deep").mkdir()
    mount = mount_counted(tmp_path / "data")
    mount.set(stall="deep")
    options = ["--data", str(mount.root), "--tier", f"ram:{TIER_BYTES}B:{run_root}"]
    options += ["--set", "catalog.wait_max=200ms", "--set", "peers.transit=512KiB"]
    agent = start_agent(run_root / "j.n", options)
    try:
        agent.listen("late")
        monkeypatch.setenv(RUN_VARIABLE, str(run_root / "j.n"))
        known = monarch.hint([str(mount.root / name) for name in order])

        mount.set(stall="")
        agent.listen("ready")

        assert known == 0
        staging = lambda: agent.status()["report"]["staging"]  # noqa: E731
        wait_until(lambda: staging()["hinted_files"] >= 3, "files read ahead")
    finally:
        mount.set(stall="")
        agent.kill()


def test_hints_of_a_program_are_dropped_when_it_ends(
    tmp_path: Path, run_root: Path, order: list[str]
) -> None:
    """The Pool would keep it for a program that never opens it."""
    options = ["--data", str(tmp_path / "data")]
    options += ["--tier", f"ram:{TIER_BYTES}B:{run_root}"]
    agent = start_agent(run_root / "j.n", options)
    announce = "import monarch, sys; print(monarch.hint(sys.argv[1:]))"
    paths = [str(tmp_path / "data" / name) for name in order]
    try:
        agent.listen("ready")
        environ = {**agent.environ(), RUN_VARIABLE: str(run_root / "j.n")}
        for some in (paths[: FILES // 2], paths[FILES // 2 :]):
            words = [sys.executable, "-c", announce, *some]
            subprocess.run(words, env=environ, check=True, timeout=60)
        wait_until(lambda: "forgotten" in agent.log(), "the end to be noticed")
    finally:
        agent.kill()


def test_outside_a_job_a_hint_does_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(RUN_VARIABLE, raising=False)

    assert monarch.hint(["/some/file"]) == 0


def test_a_hint_to_an_ended_agent_does_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(RUN_VARIABLE, str(tmp_path))

    assert monarch.hint(["/some/file"]) == 0
    assert list(tmp_path.iterdir()) == []


def test_a_hint_that_finds_no_room_in_the_run_directory_does_nothing(
    tmp_path: Path,
) -> None:
    """Neither there nor in a working directory that is removed."""
    (tmp_path / "gone").mkdir()
    (tmp_path / "run").mkdir()
    program = (
        "import monarch, os, resource\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (4, 4))\n"
        "os.rmdir(os.getcwd())\n"
        "print(monarch.hint(['/some/file', 'relative']))\n"
    )
    environ = {**os.environ, RUN_VARIABLE: str(tmp_path / "run")}

    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path / "gone",
        env=environ,
        capture_output=True,
        text=True,
        timeout=60,
    )

    assert (done.stdout, done.stderr) == ("0\n", "")
    assert list((tmp_path / "run").iterdir()) == []


def test_hints_that_are_refused_do_not_stop_a_job(tmp_path: Path) -> None:
    def refuse(_program: int, _files: object) -> None:
        raise OSError(errno.ENOSPC, "hints")

    catalog = np.zeros(DTYPES["catalog"].itemsize, np.uint8)
    staging: Any = SimpleNamespace(
        namespace=SimpleNamespace(
            segments=SimpleNamespace(memory={"catalog": catalog})
        ),
        engine=SimpleNamespace(is_open=True),
        stager=SimpleNamespace(reading_ahead=SimpleNamespace(hint=refuse)),
    )

    async def main() -> None:
        hints = Hints(tmp_path)
        for program in (7, 8):
            (tmp_path / "hint-a").write_bytes(b"/x\0")
            early = await hints.take({"file": "hint-a"}, program)
            assert early == {"paths": 1, "files": None}
        await hints.begin(staging)
        (tmp_path / "hint-a").write_bytes(b"/x\0")
        with pytest.raises(MonarchError, match="too many programs give hints"):
            await hints.take({"file": "hint-a"}, 9)

    asyncio.run(main())


@pytest.mark.parametrize("name", ["../secret", "hint-/../../secret", "control", None])
def test_a_hint_names_a_list_of_paths_in_the_run_directory(
    tmp_path: Path, name: str | None
) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "secret").write_bytes(b"/x\0")

    with pytest.raises(MonarchError, match="is not the name of a list of paths"):
        asyncio.run(Hints(tmp_path / "run").take({"file": name}, 7))

    assert (tmp_path / "secret").exists()


@pytest.mark.parametrize("wrong", ["/one/path", b"/one/path", Path("/one/path")])
def test_a_single_path_is_not_an_order(wrong: Any) -> None:
    with pytest.raises(TypeError, match="a list of paths"):
        monarch.hint(wrong)
