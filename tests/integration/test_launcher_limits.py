"""Odd limits and places: the program ends as it would without Monarch."""

import json
import os
import resource
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from support.launcher import SANITIZED, Launch
from support.programs import Runner

pytest_plugins = ["support.launcher_fixtures"]

PROGRAM = ["sh", "-c", "echo hello; exit 7"]
KIB = 1024

LIMITS = [
    *((resource.RLIMIT_NOFILE, count) for count in (3, 4, 5, 6, 7, 8, 9, 12, 20)),
    *((resource.RLIMIT_FSIZE, size) for size in (0, 10 * KIB)),
    *((resource.RLIMIT_STACK, size * KIB) for size in (32, 64, 128, 512)),
    *((resource.RLIMIT_AS, size * KIB) for size in (5000, 20_000, 100_000)),
    *((resource.RLIMIT_DATA, size * KIB) for size in (1000, 10_000)),
    (resource.RLIMIT_MEMLOCK, 0),
]


def limited(kind: int, value: int) -> Callable[[], None]:
    """Something that sets a limit in a child."""
    return lambda: resource.setrlimit(kind, (value, value))


@pytest.mark.skipif(SANITIZED, reason="sanitizers need memory and descriptors")
@pytest.mark.parametrize(("kind", "value"), LIMITS)
def test_under_any_limit_the_program_ends_as_it_would(
    launch: Launch, tmp_path: Path, kind: int, value: int
) -> None:
    limit = limited(kind, value)
    plain = subprocess.run(
        PROGRAM, stdout=subprocess.PIPE, preexec_fn=limit, check=False
    )

    with (tmp_path / "errors").open("wb") as errors:
        done = subprocess.run(
            launch.argv(*PROGRAM),
            env=launch.environ,
            stdout=subprocess.PIPE,
            stderr=errors,
            preexec_fn=limit,
            check=False,
            timeout=60,
        )

    assert (done.returncode, done.stdout) == (plain.returncode, plain.stdout)


def test_a_closed_stderr_pipe_is_harmless(launch: Launch) -> None:
    reading, writing = os.pipe()
    os.close(reading)

    done = subprocess.run(
        launch.argv(*PROGRAM),
        env=launch.environ,
        stdout=subprocess.PIPE,
        stderr=writing,
        check=False,
        timeout=60,
    )
    os.close(writing)

    assert (done.returncode, done.stdout) == (7, b"hello\n")


@pytest.mark.parametrize("number", [signal.SIGXFSZ, signal.SIGPIPE])
@pytest.mark.parametrize("action", [signal.SIG_DFL, signal.SIG_IGN])
def test_dispositions_of_signals_are_the_callers(
    launch: Launch, number: signal.Signals, action: signal.Handlers
) -> None:
    def set_up() -> None:
        signal.signal(number, action)

    words = ["grep", "SigIgn", "/proc/self/status"]
    done = launch.run("-q", *words, preexec_fn=set_up)

    ignored = int(done.stdout.split()[1], 16) >> number - 1 & 1
    assert ignored == (action is signal.SIG_IGN)


@pytest.mark.skipif(SANITIZED, reason="sanitizers switch cores off")
def test_the_only_core_is_the_programs(launch: Launch, tmp_path: Path) -> None:
    if Path("/proc/sys/kernel/core_pattern").read_text().startswith(("|", "/")):
        pytest.skip("cores do not come into the working directory here")

    def status_of(words: list[str | bytes], folder: Path) -> int:
        folder.mkdir()
        line = 'ulimit -c unlimited; cd "$0"; exec "$@"'
        argv = ["sh", "-c", line, folder, *words]
        pid = os.posix_spawnp("sh", [os.fsencode(word) for word in argv], environ)
        return os.waitpid(pid, 0)[1]

    environ = launch.environ
    crash: list[str | bytes] = ["sh", "-c", "kill -ABRT $$"]
    plain = status_of(crash, tmp_path / "plain")
    ours = status_of(launch.argv("-q", *crash), tmp_path / "ours")

    assert os.WTERMSIG(plain) == os.WTERMSIG(ours) == signal.SIGABRT
    # A dump of ours would be a second core, in place of the first.
    assert (os.WCOREDUMP(plain), os.WCOREDUMP(ours)) == (True, False)
    assert len([*tmp_path.glob("plain/core*")]) == len([*tmp_path.glob("ours/core*")])


def test_a_segment_that_leaves_no_address_space_is_not_mapped(
    runner: Runner, tmp_path: Path
) -> None:
    root = tmp_path / "root"
    root.mkdir()
    for number in range(6000):
        (root / f"{number}").touch()
    (root / "0").write_text("hello\n")
    sizes = range(3000, 12_000, 250)
    script = f"for v in {' '.join(map(str, sizes))}; do "
    script += f"(ulimit -v $v; exec cat {root}/0 2>/dev/null); echo $v $?; done"

    def failures(output: bytes) -> list[str]:
        lines = output.decode().splitlines()
        return [line for line in lines if line != "hello" and not line.endswith(" 0")]

    plain = runner.plain(["sh", "-c", script])
    ours = runner.under_monarch(["sh", "-c", script], roots=[root])

    # The library itself uses up to one step.
    refused = len(failures(plain.stdout))
    assert len(failures(ours.stdout)) <= refused + 1


@pytest.mark.root
def test_a_full_file_system_keeps_nothing_of_a_job(
    runner: Runner, run_root: Path, tmp_path: Path
) -> None:
    root, stages = tmp_path / "root", tmp_path / "stages"
    root.mkdir()
    (root / "file").write_text("hello\n")
    command = f"{runner.command} run --data {root} --tier ram:1MiB:/dev/shm"
    (tmp_path / "script").write_text(f"""
        for size in 900 1300 1600 1700 1750 1800 1850 1900 1950 2000 2100 2200; do
            mount -t tmpfs -o size=${{size}}k,mode=700 x {run_root}
            {command} cat {root}/file 2>>{stages} || echo failed
            ls -A {run_root}
            umount -l {run_root}
        done""")

    done = subprocess.run(
        ["unshare", "-m", "sh", str(tmp_path / "script")],
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.stdout == "hello\n" * 12
    assert done.stderr == ""
    lines = stages.read_text().splitlines()
    assert sum("; the program runs without staging" in line for line in lines) >= 4
    assert "Traceback" not in stages.read_text()


@pytest.mark.parametrize("offset", ["+2d", "-2d", "+0 x10"])
def test_a_faked_clock_of_the_program_does_not_affect_monarch(
    runner: Runner, rich_tree: Path, tool: Callable[[str], str], offset: str
) -> None:
    faketime = tool("faketime")
    report = runner.folder / "report.json"
    file = next(p for p in rich_tree.rglob("*") if p.is_file() and p.stat().st_size)
    wait = ["--set", "cold_open.mode=wait"]
    line = [*runner.line([rich_tree], report, wait), "cat", str(file)]

    subprocess.run(
        [faketime, "-f", offset, *line], check=True, capture_output=True, timeout=60
    )

    counters = json.loads(report.read_text())["counters"]
    assert counters["origin_silent"] == 0
    served = ("opens_miss", "opens_hit_tier0", "opens_unpacked")  # packed by fill
    assert sum(counters[name] for name in served) == 1


def test_a_removed_working_directory_is_harmless(
    runner: Runner, rich_tree: Path, tmp_path: Path
) -> None:
    file = next(p for p in rich_tree.rglob("*") if p.is_file() and p.stat().st_size)
    line = [*runner.line([rich_tree], runner.folder / "r.json"), "cat", str(file)]

    done = subprocess.run(
        ["sh", "-c", 'mkdir gone; cd gone; rmdir ../gone; exec "$@"', "x", *line],
        cwd=tmp_path,
        capture_output=True,
        check=False,
        timeout=60,
    )

    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout == file.read_bytes()
