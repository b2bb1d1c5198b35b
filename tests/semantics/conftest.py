"""A dataset with every kind of name, and programs that inspect it under Monarch."""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support import compiler

HERE = Path(__file__).parent
# The start of each program: D is the dataset, tier(fd) reports whether a descriptor is
# one of a Replica, plain() runs another program without Monarch.
PREAMBLE = """
import ctypes, errno, fcntl, mmap, os, subprocess, sys, time
D = sys.argv[1]
libc = ctypes.CDLL(None, use_errno=True)
def tier(fd):
    return "/monarch-" in os.readlink(f"/proc/self/fd/{fd}")
def redirected(path, flags=os.O_RDONLY):
    fd = os.open(path, flags)
    try:
        return tier(fd)
    finally:
        os.close(fd)
def plain(*words):
    env = {**os.environ, "MONARCH_STAGING_DISABLE": "1"}
    env.pop("LD_PRELOAD")
    return subprocess.run(words, env=env, check=True, capture_output=True).stdout
"""


SETTLED_S = 2.2
"""After this time without a change a directory may be listed from the Catalog."""
# Changes by programs outside the job are seen after a second: before that the Catalog
# answers, and where it does not, they are seen at once.
LOOK = """
def come(name):
    plain("touch", D + "/sub/" + name)
def soon(true):
    end = time.monotonic() + 1.5
    while not true():
        assert time.monotonic() < end
        time.sleep(0.01)
def listed(name):
    return name in os.listdir(D + "/sub")
def there(name):
    return os.path.lexists(D + "/sub/" + name)
"""


def make_tree(root: Path) -> None:
    """Write the dataset."""
    (root / "sub").mkdir(parents=True)
    (root / "a.bin").write_bytes(bytes(range(256)) * 400)
    (root / "sub" / "b.bin").write_bytes(b"b" * 50_000)
    (root / "spare.bin").write_bytes(b"s" * 10_000)
    (root / "shard.bin").write_bytes(os.urandom(9 << 20))
    (root / "x.lock").write_bytes(b"lock")
    (root.parent / "outside.bin").write_bytes(b"outside")
    (root / "inner").symlink_to("a.bin")
    (root / "outer").symlink_to("../outside.bin")
    os.link(root / "a.bin", root / "hard.bin")
    os.mkfifo(root / "fifo")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    make_tree(tmp_path / "data")
    return tmp_path / "data"


@pytest.fixture
def line(
    tree: Path, run_root: Path, monarch_command: Path
) -> Iterator[Callable[..., list[str]]]:
    """A function that returns the command line of a program under Monarch."""
    with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="monarch-test-") as ram:
        tier = ["--tier", f"ram:256MiB:{ram}"]  # its Pool holds each file packed

        def make(
            *program: str, options: tuple[str, ...] = (), data: tuple[str, ...] = ()
        ) -> list[str]:
            roots = data or ("--data", str(tree))
            run = [str(monarch_command), "run", "-q", *roots, *tier, *options]
            return [*run, "--", *program]

        yield make


@pytest.fixture
def under(tree: Path, line: Callable[..., list[str]]) -> Callable[..., None]:
    """A function that runs Python under Monarch; all its asserts must hold."""

    def run(body: str, *options: str, data: tuple[str, ...] = ()) -> None:
        program = [sys.executable, "-c", PREAMBLE + body, str(tree)]
        command = line(*program, options=options, data=data)
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stdout + done.stderr

    return run


@pytest.fixture
def looking(under: Callable[..., None]) -> Callable[..., None]:
    """The same with functions that look at the directory `sub`."""
    return lambda body: under(LOOK + body)


@pytest.fixture
def settled(tree: Path, looking: Callable[..., None]) -> Callable[..., None]:
    """The same when the directories have not changed for a while."""
    (tree / "sub" / "link").symlink_to("b.bin")
    (tree / "sub" / "deep").mkdir()
    time.sleep(SETTLED_S)
    return looking


@pytest.fixture(scope="session")
def program(
    tool: Callable[[str], str], tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., Path]:
    """A function that compiles a C file of this directory; each call gives a new copy,
    of which the test may change the owner and the mode."""
    base = [tool("cc"), "-std=gnu11", "-D_GNU_SOURCE", *compiler.WARNINGS]

    def make(source: str, *flags: str) -> Path:
        name = Path(source).stem
        made = compiler.build(name, *base, *flags, HERE / source)
        return Path(shutil.copy(made, tmp_path_factory.mktemp("c") / name))

    return make
