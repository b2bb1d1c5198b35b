"""Threads that open and fork for a while read right bytes and leak nothing."""

import glob
from array import array
from collections.abc import Callable
from pathlib import Path

import pytest

from support import compiler
from support.programs import Runner

SOURCE = Path(__file__).parents[1] / "native" / "soak" / "read_loops.c"
FILES = 60
THREADS = 32
ALLOCATORS = {
    "jemalloc": "/usr/lib/*/libjemalloc.so.2",
    "tcmalloc": "/usr/lib/*/libtcmalloc_minimal.so.4",
}


@pytest.fixture
def certified(tmp_path: Path) -> Path:
    """A dataset root each of whose words says where it belongs; see the C source."""
    root = tmp_path / "certified"
    root.mkdir()
    for number in range(FILES):
        words = 1000 + number * 997
        content = array("Q", [number << 32 | word for word in range(words)])
        (root / f"{number:04}").write_bytes(content.tobytes())
    return root


@pytest.fixture(scope="session")
def read_loops(tool) -> Path:
    """The compiled program that loops."""
    flags = ["-std=gnu11", "-D_GNU_SOURCE", "-O1", "-g", *compiler.WARNINGS]
    return compiler.build("read_loops", tool("cc"), *flags, SOURCE, "-pthread")


@pytest.mark.soak
@pytest.mark.timeout(400)
@pytest.mark.parametrize("allocator", ["libc", *ALLOCATORS])
def test_threads_and_forks_read_right_bytes(
    allocator: str,
    certified: Path,
    read_loops: Path,
    runner: Runner,
    soak_count: Callable[[int, int], int],
) -> None:
    environment = {} if allocator == "libc" else {"LD_PRELOAD": find(allocator)}
    seconds = soak_count(3, 60)
    words = [str(read_loops), str(seconds), str(THREADS), str(FILES), str(certified)]

    outcome = runner.under_monarch(
        words, roots=[certified], environment=environment, timeout=seconds + 60
    ).succeed()

    names = ("opens", "forks", "wrong")
    counts = dict(zip(names, map(int, outcome.stdout.split()[1:6:2]), strict=True))
    assert counts["wrong"] == 0
    assert counts["opens"] > 100 * seconds
    assert counts["forks"] > seconds
    # Every open in the threads and their children was redirected, none read the origin.
    assert outcome.redirected_opens >= counts["opens"]
    assert outcome.counter("opens_origin") == 0


def find(allocator: str) -> str:
    """The path of an allocator's library, or a skip."""
    found = glob.glob(ALLOCATORS[allocator])
    if not found:
        pytest.skip(f"{allocator} is not installed")
    return found[0]
