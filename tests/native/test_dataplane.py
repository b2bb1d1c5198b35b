"""The data plane's C programs, run bare, under ASan with UBSan and under TSan."""

import os
import shutil
import struct
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from monarch import native
from monarch.codec import Codec
from monarch.native import Coder, Method, codec_library
from support import compiler

PROGRAMS = Path(__file__).with_name("dataplane")
BUILDER = Path(__file__).with_name("segment_builder.c")
NATIVE = compiler.NATIVE
FLAGS = ["-std=c11", "-D_GNU_SOURCE", "-O1", "-g1", "-Wall", "-Wextra", "-Wshadow"]
FLAGS += ["-Werror", f"-I{PROGRAMS}", f"-I{NATIVE}"]
CALLS = ("read", "pread", "write", "pwrite", "openat", "linkat", "syscall")
WRAPPED = ",".join(["-Wl", *(f"--wrap={call}" for call in CALLS)])
MODES = {
    "bare": (),
    "address": compiler.ADDRESS,
    "thread": compiler.THREAD,
}
# Bare programs run in long campaigns only: sanitizers see all that they do, and more.
SANITIZED = [pytest.param("bare", marks=pytest.mark.long), "address", "thread"]
PARTS = ("board", "bytes", "fault", "peer", "nodes", "packed", "ranges")
NAMES = ["copies", "origins", "faults", "adoptions", "queues", "roots", "requests"]
NAMES += ["storm", "peer_fetches", "peer_waits", "peer_faults"]
NAMES += ["peer_blocks", "peer_block_faults"]
NAMES += ["marks", "tables", "blocks", "pages", "whole", "readers"]
NAMES += ["packs", "pack_drops", "pool_damage", "evictions", "states", "idle"]
NAMES += ["siblings"]
# Programs that must also pass where engines make seals, and receivers check them.
SEALED = [("adoptions", "1"), ("queues", "1"), ("peer_fetches", "1")]
SEALED += [("peer_fetches", "only"), ("peer_faults", "only")]
SEALED += [("peer_forger", "1"), ("peer_forger", "only")]
SEALED += [("peer_blocks", "1"), ("peer_blocks", "only")]
SEALED += [("peer_block_faults", "1"), ("peer_block_faults", "only")]
SKIPPED = 77
LIMIT_S = "150"  # for one case of a program, which then reports where it hangs
MAGIC = 0x4D52464D  # of a frame in a pack file
PACK_MAGIC = 0x4B43415048435241  # of the index of one

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(300),  # twenty seconds alone, more beside other workers
    pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler"),
]


def build(name: str, mode: str) -> Path:
    """The program of this name in this mode."""
    words = ["cc", *FLAGS, *MODES[mode]]
    sources = [*NATIVE.glob("dataplane/*/*.c"), *NATIVE.glob("shared/*.c")]
    sources += [PROGRAMS / f"{part}.c" for part in PARTS]
    sources.append(BUILDER)
    parts = compiler.objects(words, sorted(sources))
    libraries = ("-pthread", "-ldl", WRAPPED)
    return compiler.build(name, *words, PROGRAMS / f"{name}.c", *parts, *libraries)


def run(
    program: Path, base: Path, *words: str, **variables: str
) -> "subprocess.CompletedProcess[str]":
    """The ended program; its origin and Tier lie below `base`."""
    environment = {**os.environ, "TEST_BASE": str(base), **variables}
    return subprocess.run(
        [str(program), *words], capture_output=True, text=True, env=environment
    )


@pytest.mark.parametrize("mode", SANITIZED)
@pytest.mark.parametrize("name", NAMES)
def test_engine_program_passes(name: str, mode: str, tmp_path: Path) -> None:
    program = build(name, mode)

    done = run(program, tmp_path, TEST_LIMIT_S=LIMIT_S)

    if done.returncode == SKIPPED:
        pytest.skip(done.stderr)
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(native.seal_library() is None, reason="no libcrypto")
@pytest.mark.parametrize("mode", SANITIZED)
@pytest.mark.parametrize(("name", "how"), SEALED)
def test_engine_program_passes_with_seals(
    name: str, how: str, mode: str, tmp_path: Path
) -> None:
    done = run(build(name, mode), tmp_path, TEST_SEALED=how, TEST_LIMIT_S=LIMIT_S)

    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("mode", ["bare", "address"])
def test_a_killed_engine_leaves_whole_replicas_only(
    mode: str, tmp_path: Path, soak_count: Callable[[int, int], int]
) -> None:
    trials = soak_count(100 if mode == "bare" else 20, 2000)

    done = run(build("killed", mode), tmp_path, str(trials), "1")

    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("mode", MODES)
def test_random_frames_hurt_neither_server_nor_receiver(
    mode: str, tmp_path: Path, soak_count: Callable[[int, int], int]
) -> None:
    inputs = soak_count(100_000, 1_000_000) if mode == "bare" else 10_000

    done = run(build("peer_garbage", mode), tmp_path, str(inputs), "1")

    assert done.returncode == 0, done.stderr


def build_fuzzer(name: str, folder: Path) -> Path:
    """The fuzzer of this name; the test is skipped if this clang cannot make it."""
    program = folder / name
    sources = [*NATIVE.glob("dataplane/*/*.c"), *NATIVE.glob("shared/*.c")]
    sources += [BUILDER, PROGRAMS / "board.c", PROGRAMS / "bytes.c"]
    words = ["clang", *FLAGS, "-fsanitize=address,undefined"]
    parts = compiler.objects([*words, "-fsanitize=fuzzer-no-link"], sorted(sources))
    words += ["-fsanitize=fuzzer", str(PROGRAMS / f"{name}.c"), *map(str, parts)]
    words += ["-o", str(program), "-pthread", "-ldl"]
    built = subprocess.run(words, capture_output=True, text=True)
    if "libclang_rt" in built.stderr:
        pytest.skip("this clang has no libFuzzer")
    assert built.returncode == 0, built.stderr
    return program


@pytest.mark.skipif(shutil.which("clang") is None, reason="no clang")
def test_the_frame_fuzzer_finds_nothing(
    tmp_path: Path, soak_count: Callable[[int, int], int]
) -> None:
    program = build_fuzzer("peer_fuzz", tmp_path)

    runs = soak_count(200_000, 5_000_000)
    limits = [f"-runs={runs}", "-seed=1", "-max_len=128"]
    done = run(program, tmp_path, *limits, f"-artifact_prefix={tmp_path}/")

    assert done.returncode == 0, done.stderr


def frames() -> Iterator[bytes]:
    """Frames of a packed Tier, as the fuzzer takes them."""
    for method, name in ((Method.LZ4, "lz4"), (Method.ZSTD, "zstd:1")):
        for shuffle, end in ((1, ""), (4, "+shuffle4")):
            codec = Codec.parse(f"{name}{end}")
            if codec_library(codec) is None:
                return
            plain, room = b"numbers " * 500, np.empty(8192, np.uint8)
            with Coder(codec) as coder:
                size = coder.pack(plain, room)
            assert size is not None
            # The fuzzer takes the codec and the size from these numbers.
            head = struct.pack(
                "<IIIBBhQ16x",
                *(MAGIC, len(plain), size + 4, method, shuffle - 1, 1, 0),
            )
            yield head + struct.pack("<I", size) + room[:size].tobytes()


def indexes() -> Iterator[bytes]:
    """Entries of indexes of pack files, and a whole index, as the fuzzer takes them."""
    rows = [bytes(16) + struct.pack("<6I", 0, 90, at, 100, 1, 0) for at in (0, 100)]
    yield b"".join(rows)
    yield bytes(200) + b"".join(rows) + struct.pack("<QIIQQ", 2, 1, 0, 0, PACK_MAGIC)


@pytest.mark.skipif(shutil.which("clang") is None, reason="no clang")
def test_the_pack_fuzzer_finds_nothing(
    tmp_path: Path, soak_count: Callable[[int, int], int]
) -> None:
    program, seeds = build_fuzzer("pack_fuzz", tmp_path), tmp_path / "seeds"
    seeds.mkdir()
    for number, frame in enumerate([*frames(), *indexes()]):
        (seeds / str(number)).write_bytes(frame)

    runs = soak_count(20_000, 2_000_000)
    limits = [f"-runs={runs}", "-seed=1", "-max_len=8192", "-detect_leaks=0"]
    # The parent's peak memory before exec() counts as the peak of this process.
    limits += ["-rss_limit_mb=0", "-malloc_limit_mb=1024"]
    words = [*limits, f"-artifact_prefix={tmp_path}/", str(seeds)]
    done = run(program, tmp_path, *words)

    assert done.returncode == 0, done.stderr
    assert "INITED" in done.stderr


@pytest.mark.parametrize(
    ("fault", "mode", "sign"),
    [("race", "thread", "data race"), ("overflow", "address", "heap-buffer-overflow")],
)
def test_the_sanitizers_see_a_fault_when_there_is_one(
    fault: str, mode: str, sign: str, tmp_path: Path
) -> None:
    done = run(build("must_fail", mode), tmp_path, fault)

    assert done.returncode != 0
    assert sign in done.stderr


def test_the_faulty_program_runs_silently_without_a_sanitizer(tmp_path: Path) -> None:
    done = run(build("must_fail", "bare"), tmp_path, "race")

    assert done.returncode == 0
    assert not done.stderr
