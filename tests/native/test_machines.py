"""The native parts on another machine: compiled for aarch64, run by qemu-user.

Segments and frames are shared as they stand in memory: a Shim of one machine and an
agent of the other understand each other.
"""

import ctypes
import os
import shutil
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from importlib.resources import files
from pathlib import Path

import pytest
import xxhash

from support import compiler
from support.shim_fixtures import BOARD, INCLUDES, SHARED, SOURCES, Board, fill, zero

HERE = Path(__file__).parent
NATIVE = compiler.NATIVE
GOLDEN = HERE / "machines" / "golden.c"
SYSROOT = Path("/usr/aarch64-linux-gnu")
TOOLS = ("cc", "aarch64-linux-gnu-gcc", "qemu-aarch64")
FLAGS = ("-std=c11", "-D_GNU_SOURCE", "-O1", "-g1", *INCLUDES)
PARTS = (
    *("route", "route_at", "attach", "mounts", "process", "identity", "wait", "mark"),
    *("invalidate", "inherited", "object", "segments"),
)
BYTES = bytes(n * 2654435761 % (1 << 32) >> 13 & 0xFF for n in range(1 << 20))

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(300),
    pytest.mark.skipif(
        not all(map(shutil.which, TOOLS)), reason=f"needs {', '.join(TOOLS)}"
    ),
]

Build = Callable[..., Path]


def build(cc: str, name: str, *words: str | Path, shared: bool = False) -> Path:
    """What a compiler makes of some sources and options, of each source once."""
    flags = [*FLAGS, *(["-fPIC"] if shared else [])]
    sources = [Path(word) for word in words if str(word).endswith(".c")]
    more = [str(word) for word in words if not str(word).endswith(".c")]
    parts = compiler.objects((cc, *flags, *more), sources)
    link = ["-shared"] if shared else []
    return compiler.build(name, cc, *flags, *more, *link, *parts, "-pthread", "-ldl")


here = partial(build, "cc")
there = partial(build, "aarch64-linux-gnu-gcc")


def emulated(*words: str | Path, **variables: str) -> list[str]:
    """The command that runs a program of the other machine with more environment."""
    # qemu itself must not load a library that is meant for its program.
    more = [f"{name}={value}" for name, value in variables.items()]
    options = [word for one in more for word in ("-E", one)]
    return ["qemu-aarch64", "-L", str(SYSROOT), *options, *map(str, words)]


def output(*command: str | Path) -> str:
    done = subprocess.run(
        [str(word) for word in command], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def told() -> str:
    """The output of golden.c on the other machine."""
    parts = [NATIVE / f"dataplane/api/{name}.c" for name in ("layout_dump", "scan")]
    return output(*emulated(there("golden", GOLDEN, *parts, *SHARED)))


def test_all_layouts_are_those_of_this_machine(told: str) -> None:
    library = ctypes.CDLL(str(files("monarch.native") / "libmonarch.so"))
    library.monarch_layout.restype = ctypes.c_char_p

    assert "struct entry " in told
    assert "struct frame_reply " in told
    assert told.startswith(library.monarch_layout().decode())


def test_frames_are_little_endian_and_without_gaps(told: str) -> None:
    ids = 0x0102030405060708, 0x11121314, 0x21222324
    request = struct.pack("<4sBBBBQQ", b"MPQR", 3, 5, 1, 0, ids[0], 0xFEDCBA9876543210)
    request += struct.pack("<IIII", *ids[1:], 0x51525354, 0)
    reply = struct.pack("<4siQII", b"MPRS", -11, *ids)
    reply += struct.pack("<QQ", 0x3132333435363738, 0x4142434445464748)
    reply += struct.pack("<Q", 0x6162636465666768)
    reply += struct.pack("<III", 0xFFFFFFFF, 0xFFFFFFFF, 0)
    lines = dict(line.split(" ", 1) for line in told.splitlines() if line)

    assert lines["request"] == request.hex()
    assert lines["reply"] == (reply + b"\x5a" * 28).hex()


def test_checksums_are_those_of_the_reference(told: str) -> None:
    found = [line.split()[1:] for line in told.splitlines() if line.startswith("xxh3 ")]

    assert len(found) > 10
    for length, digest in found:
        assert xxhash.xxh3_64_hexdigest(BYTES[: int(length)]) == digest


@pytest.mark.parametrize("name", ["test_index", "test_replica_table"])
def test_look_up_and_table_pass_on_the_other_machine(
    name: str, soak_count: Callable[[int, int], int]
) -> None:
    includes = f"-I{NATIVE / 'shared'}"
    program = there(name, HERE / "shared" / f"{name}.c", *SHARED, includes)

    # The sanitizers check damaged indexes as well, and here each one takes long.
    output(*emulated(program, str(soak_count(100, 2000))))


def test_parts_of_the_launcher_pass_on_the_other_machine() -> None:
    sources = [path for path in NATIVE.glob("launcher/*.c") if path.name != "main.c"]
    sources += [*NATIVE.glob("job/*.c"), HERE / "launcher/test_parts.c"]
    program = there("parts", *sorted(sources), *SHARED)

    output(*emulated(program))


@pytest.fixture
def board(tmp_path: Path) -> Iterator[Board]:
    """A dataset and a Tier; the test names the library and starts the agent."""
    board = Board(tmp_path, Path(), Path())
    board.root.mkdir()
    board.tier.mkdir(mode=0o700)
    fill(board.root)
    yield board
    board.end()


def test_parts_of_the_shim_pass_on_the_other_machine(board: Board) -> None:
    parts = [path for part in PARTS for path in NATIVE.glob(f"shim/*/{part}.c")]
    program = there("test_route", SOURCES / "test_route.c", *parts, *BOARD, *SHARED)
    board.run_dir.mkdir(mode=0o700)

    told = output(*emulated(program, board.run_dir, board.tier, board.root))

    assert told == "ok\n"


def shim(make: Build) -> Path:
    hidden = ("-fvisibility=hidden", "-ftls-model=initial-exec", "-U_FORTIFY_SOURCE")
    sources = [*sorted(NATIVE.glob("shim/*/*.c")), *SHARED]
    return make("libmonarch_shim.so", *sources, *hidden, shared=True)


def reader(make: Build) -> Path:
    return make("reader", SOURCES / "reader.c")


def test_shim_there_is_served_by_segments_from_here(board: Board) -> None:
    board.mkboard = here("mkboard", SOURCES / "mkboard.c", *BOARD, *SHARED)
    board.library = shim(there)
    board.start()
    board.ask("publish-all")
    zero(board.root)
    env = {"MONARCH_STAGING_RUN": str(board.run_dir)}
    env["LD_PRELOAD"] = str(board.run_dir / "shim.so")

    names = {"one.bin": "one.b", "a/same.bin": "one.b", "folder/three.bin": "a/b/t"}
    for path, begin in names.items():
        command = emulated(reader(there), board.root / path, **env)
        assert output(*command) == f"{begin}\n"

    assert board.counters()["opens_hit_tier0"] == 3
    assert board.counters()["opens_origin"] == 0


def test_shim_here_is_served_by_segments_from_there(board: Board) -> None:
    program = there("mkboard", SOURCES / "mkboard.c", *BOARD, *SHARED)
    # Started by a script, because a Board starts a program without options.
    board.mkboard = board.folder / "mkboard"
    board.mkboard.write_text(f'#!/bin/sh\nexec {" ".join(emulated(program))} "$@"\n')
    board.mkboard.chmod(0o700)
    board.library = shim(here)
    board.start()

    assert board.run(reader(here), board.root / "two.bin") == "two.b\n"  # it waits

    board.ask("publish one.bin")
    zero(board.root)
    assert board.run(reader(here), board.root / "one.bin") == "one.b\n"
    assert board.counters()["opens_miss"] == 1
    assert board.counters()["opens_hit_tier0"] == 1


@pytest.mark.soak
@pytest.mark.parametrize("name", ["copies", "peer_blocks", "peer_fetches", "tables"])
def test_data_plane_passes_on_the_other_machine(
    name: str, tmp_path: Path, soak_count: Callable[[int, int], int]
) -> None:
    if not soak_count(0, 1):
        pytest.skip("runs with --soak")
    folder = HERE / "dataplane"
    names = ("board", "bytes", "fault", "peer", "nodes", "packed", "ranges")
    parts = [folder / f"{part}.c" for part in names]
    parts += [*NATIVE.glob("dataplane/*/*.c"), HERE / "segment_builder.c"]
    calls = ("read", "pread", "write", "pwrite", "openat", "linkat", "syscall")
    wraps = ",".join(["-Wl", *(f"--wrap={call}" for call in calls)])
    program = there(name, folder / f"{name}.c", *sorted(parts), *SHARED, wraps)

    output(*emulated(program, TEST_BASE=str(tmp_path)))


def test_launcher_there_starts_an_agent_here(run_root: Path, tmp_path: Path) -> None:
    sources = [*NATIVE.glob("launcher/*.c"), *NATIVE.glob("job/*.c")]
    launcher = there("monarch", *sorted(sources), *SHARED)
    data = tmp_path / "data"
    data.mkdir()
    (data / "one").write_text("bytes")
    words = ["run", "--data", str(data), "--", "cat", str(data / "one")]

    done = subprocess.run(
        emulated(launcher, *words),
        env={**os.environ, "MONARCH_STAGING_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        timeout=60,
    )

    assert (done.stdout, done.returncode) == ("bytes", 0), done.stderr
    assert "monarch: active in 1 of 1 process" in done.stderr
