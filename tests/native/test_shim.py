"""The Shim under sanitizers: its parts in a C program, and whole in real processes."""

import shutil
import subprocess
from pathlib import Path

import pytest

from support import compiler
from support.shim_fixtures import (
    BASE,
    BOARD,
    NATIVE,
    SHARED,
    WARNINGS,
    Board,
    Compile,
    build_shim,
    fill,
)

# Without the exported functions, which would precede the sanitizer's own.
PARTS = (
    *("route", "route_at", "attach", "mounts", "process", "identity", "wait", "mark"),
    *("invalidate", "inherited", "object", "segments"),
)
MODES = {
    "bare": (),
    "address": compiler.ADDRESS,
    "thread": compiler.THREAD,
}


def program_of_parts(compiled: Compile, name: str, mode: str) -> Path:
    """A program with the parts, which are compiled once for each mode."""
    sources = [path for part in PARTS for path in NATIVE.glob(f"shim/*/{part}.c")]
    sources += map(Path, (*BOARD, *SHARED))
    parts = compiler.objects((*BASE, *WARNINGS, *MODES[mode]), sources)
    words = [*map(str, parts), *MODES[mode]]
    return compiled(f"{name}.c", *words, name=f"{name}-{mode}")


@pytest.fixture(params=["bare", "address"])
def route_program(request: pytest.FixtureRequest, compiled: Compile) -> Path:
    """test_route, bare and with sanitizers."""
    return program_of_parts(compiled, "test_route", request.param)


@pytest.mark.parametrize("mode", MODES)
def test_no_change_is_lost_while_the_catalog_is_loaded(
    compiled: Compile, folders: list[str], mode: str
) -> None:
    for number in range(400):
        (Path(folders[-1]) / f"{number}.bin").touch()
    program = program_of_parts(compiled, "test_changes", mode)

    done = subprocess.run([str(program), *folders], capture_output=True, text=True)

    assert (done.stdout, done.returncode) == ("ok\n", 0), done.stderr


@pytest.fixture
def folders(tmp_path: Path) -> list[str]:
    """A run directory, a Tier and a dataset."""
    for name in ("run", "tier", "dataset"):
        (tmp_path / name).mkdir(mode=0o700)
    fill(tmp_path / "dataset")
    return [str(tmp_path / name) for name in ("run", "tier", "dataset")]


def test_parts_of_the_shim_pass(route_program: Path, folders: list[str]) -> None:
    done = subprocess.run(
        [str(route_program), *folders], capture_output=True, text=True
    )

    assert (done.stdout, done.returncode) == ("ok\n", 0), done.stderr


def test_sanitizer_catches_a_planted_overflow(
    route_program: Path, folders: list[str]
) -> None:
    command = [str(route_program), *folders, "overflow"]
    done = subprocess.run(command, capture_output=True, text=True)

    assert (done.returncode != 0) == route_program.name.endswith("address")
    assert ("heap-buffer-overflow" in done.stderr) == (done.returncode != 0)


@pytest.fixture
def sanitized(board: Board) -> tuple[Board, str]:
    """A board whose Shim is built with sanitizers, and the library they need."""
    runtime = subprocess.check_output(
        ["cc", "-print-file-name=libasan.so"], text=True
    ).strip()
    if shutil.which("cc") is None or not Path(runtime).is_absolute():
        pytest.skip("no libasan")
    board.library = build_shim(*MODES["address"])
    board.start("-d", "1")
    return board, runtime


def test_sanitized_shim_finds_nothing_in_real_programs(
    sanitized: tuple[Board, str],
) -> None:
    board, runtime = sanitized
    preload = f"{runtime}:{board.run_dir / 'shim.so'}"
    env = board.environ(LD_PRELOAD=preload, ASAN_OPTIONS="detect_leaks=0")
    script = (
        f"cd {board.root}; cat two.bin a/../one.bin folder/three.bin; stat a/link.bin; "
        "cp -a . ../copy; tar cf ../t.tar .; mv two.bin new; rm new; touch one.bin; "
        "mkdir d; rmdir d; sh -c 'exec env -i cat one.bin'; ls -l /proc/self/fd"
    )

    done = subprocess.run(
        ["sh", "-c", script], env=env, capture_output=True, text=True, timeout=100
    )

    assert done.returncode == 0, done.stderr
    assert "ERROR" not in done.stderr
    assert "runtime error" not in done.stderr
    assert board.counters()["opens_miss"] > 2


def test_address_sanitizer_must_come_first_and_says_so(
    board: Board, compiled: Compile
) -> None:
    program = compiled("reader.c", *MODES["address"], name="reader-asan")
    board.start()
    board.ask("publish two.bin")
    env = board.environ(ASAN_OPTIONS="verify_asan_link_order=0:detect_leaks=0")

    assert board.run(program, board.root / "two.bin", env=env) == "two.b\n"
    assert board.counters()["opens_hit_tier0"] == 1
