"""Files that a program can write to through inherited descriptors."""

import os
import subprocess
from pathlib import Path

import pytest

from support.programs import Runner

# Writes to descriptor FD without a Shim, and then executes a program that has one.
STATIC = """
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>
int main(int argc, char **argv)
{
    int fd = atoi(argv[1]);
    if (argc < 3 || write(fd, "new", 3) != 3)
        return 1;
    if (fd == 1)
        dup2(2, 1);
    else
        close(fd);
    execvp(argv[2], argv + 2);
    return 2;
}
"""


@pytest.fixture
def static(tmp_path: Path) -> Path:
    """The static program."""
    source, program = tmp_path / "static.c", tmp_path / "static"
    source.write_text(STATIC)
    build = ["cc", "-static", "-o", str(program), str(source)]
    subprocess.run(build, check=True)
    return program


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A dataset of two files, one of which has a second name."""
    root = tmp_path / "root"
    (root / "sub").mkdir(parents=True)
    (root / "log").write_text("old")
    (root / "sub" / "other").write_text("other")
    os.link(root / "log", root / "sub" / "hard")
    return root


def start(
    runner: Runner, root: Path, words: list[str], job: str = "", **options: object
) -> subprocess.Popen[bytes]:
    """Starts `monarch run` of a program; opens wait for their Transfers."""
    wait = ["--set", "cold_open.mode=wait", *(["--job", job] if job else [])]
    line = runner.line([root], runner.folder / "report.json", wait)
    popen: subprocess.Popen[bytes] = subprocess.Popen(
        [*line, *words], stderr=subprocess.PIPE, **options
    )  # type: ignore[call-overload]
    return popen


@pytest.mark.parametrize("name", ["log", "sub/hard"])
@pytest.mark.parametrize("flags", [os.O_WRONLY, os.O_RDWR, os.O_WRONLY | os.O_APPEND])
def test_a_file_behind_an_inherited_descriptor_is_not_served_from_a_tier(
    runner: Runner, root: Path, static: Path, name: str, flags: int
) -> None:
    fd = os.open(root / name, flags)
    command = "cat $1/log $1/sub/hard $1/sub/other >&2"
    words = [str(static), "1", "sh", "-c", command, "x", str(root)]

    with start(runner, root, words, stdout=fd) as run:
        _, err = run.communicate(timeout=60)
    os.close(fd)

    content = "oldnew" if flags & os.O_APPEND else "new"
    assert run.returncode == 0, err
    assert err.decode() == f"{content}{content}other"


@pytest.mark.parametrize("fd", [0, 2, 9])
def test_any_number_of_descriptor_counts(
    runner: Runner, root: Path, static: Path, fd: int
) -> None:
    out = runner.folder / "out"
    read = ["sh", "-c", 'exec cat "$1" >"$2"', "x", f"{root}/log", str(out)]
    line = runner.line(
        [root], runner.folder / "report.json", ["--set", "cold_open.mode=wait"]
    )
    shell = f'exec "$@" {fd}<>{root}/log'

    subprocess.run(
        ["bash", "-c", shell, "x", *line, str(static), str(fd), *read], check=True
    )

    assert out.read_text() == "new"


def test_the_last_of_many_descriptors_counts(
    runner: Runner, root: Path, static: Path, tmp_path: Path
) -> None:
    files = [tmp_path / f"{number}" for number in range(200)]
    fds = [os.open(file, os.O_WRONLY | os.O_CREAT) for file in files]
    fds.append(os.open(root / "log", os.O_WRONLY))

    words = [str(static), str(fds[-1]), "cat", str(root / "log")]
    with start(runner, root, words, stdout=subprocess.PIPE, pass_fds=tuple(fds)) as run:
        out, err = run.communicate(timeout=60)
    for fd in fds:
        os.close(fd)

    assert (run.returncode, out) == (0, b"new"), err


def test_a_launcher_that_joins_the_agent_checks_its_descriptors_too(
    runner: Runner, root: Path, static: Path, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    waiter = f"cat {root}/log; touch {gate}.up; until [ -e {gate} ]; do sleep 0.1; done"
    again = f"{waiter}; exec cat {root}/log"
    with start(
        *(runner, root, ["sh", "-c", again], "inherited"), stdout=subprocess.PIPE
    ) as first:
        while not Path(f"{gate}.up").exists():
            assert first.poll() is None
        fd = os.open(root / "log", os.O_WRONLY)
        with start(
            runner, root, [str(static), "1", "true"], "inherited", stdout=fd
        ) as second:
            second.communicate(timeout=60)
        os.close(fd)
        gate.touch()
        out, err = first.communicate(timeout=60)

    assert (first.returncode, second.returncode) == (0, 0), err
    assert out == b"oldnew"


def test_files_inherited_for_reading_or_outside_a_root_do_not_matter(
    runner: Runner, root: Path, tmp_path: Path
) -> None:
    with (root / "log").open() as log, (tmp_path / "out").open("w") as out:
        words = ["cat", str(root / "log")]
        with start(runner, root, words, stdin=log, stdout=out) as run:
            run.communicate(timeout=60)

    report = (runner.folder / "report.json").read_text()
    assert (tmp_path / "out").read_text() == "old"
    assert '"mutations": 0' in report
    assert '"origin_written": 0' in report
