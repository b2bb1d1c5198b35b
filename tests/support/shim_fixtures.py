"""The Shim for tests: the library, C programs, a pretended agent, Python programs."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from support import compiler

ROOT = Path(__file__).parents[2]
NATIVE = ROOT / "monarch" / "native"
SOURCES = ROOT / "tests" / "native" / "shim"
WARNINGS = (*compiler.WARNINGS, "-Wno-nonnull")
INCLUDES = (f"-I{NATIVE}", f"-I{SOURCES}")
BASE = ("cc", "-std=gnu11", "-D_GNU_SOURCE", "-O2", "-g", *INCLUDES)
BOARD = (str(SOURCES / "board_build.c"), str(SOURCES.parent / "segment_builder.c"))
SHARED = tuple(str(path) for path in sorted((NATIVE / "shared").glob("*.c")))

# The start of each Python program under the Shim.
READ = "def read(p):\n    with open(p) as f: return f.read(3)\n"

Compile = Callable[..., Path]


def build_shim(*flags: str) -> Path:
    """Builds the Shim as CMake does, with more flags if any."""
    sources = [str(path) for path in sorted((NATIVE / "shim").glob("*/*.c"))]
    hidden = ("-fPIC", "-fvisibility=hidden", "-ftls-model=initial-exec")
    link = ("-shared", "-Wl,-z,relro,-z,now,-z,nodelete", "-Wl,--no-as-needed")
    command = [*BASE, *hidden, "-U_FORTIFY_SOURCE", *flags, *link]
    end = [*sources, *SHARED, "-l:libdl.so.2"]
    return compiler.build("libmonarch_shim.so", *command, *end)


@pytest.fixture(scope="session")
def shim_library() -> Path:
    """The Shim under test; MONARCH_TEST_SHIM names one that is built already."""
    built = os.environ.get("MONARCH_TEST_SHIM")
    if built:
        return Path(built)
    if shutil.which("cc") is None:
        pytest.skip("no C compiler")
    return build_shim()


@pytest.fixture(scope="session")
def compiled() -> Compile:
    """A function that compiles a program of tests/native/shim."""

    def compile_program(source: str, *flags: str, name: str | None = None) -> Path:
        words = [*BASE, *WARNINGS, str(SOURCES / source), *flags, "-ldl", "-lpthread"]
        return compiler.build(name or Path(source).stem, *words)

    return compile_program


@dataclass(slots=True)
class Board:
    """A run directory, a Tier, a dataset, and the process that plays the agent."""

    folder: Path
    mkboard: Path
    library: Path
    agent: subprocess.Popen[str] | None = field(default=None)

    @property
    def root(self) -> Path:
        """The dataset root."""
        return self.folder / "dataset"

    @property
    def run_dir(self) -> Path:
        """The run directory."""
        return self.folder / "run"

    @property
    def tier(self) -> Path:
        """The directory of the Replicas."""
        return self.folder / "tier"

    def start(self, *options: str, under: tuple[str, ...] = ()) -> None:
        """Catalogues the dataset as it is now and starts to answer.

        The agent gets its rights from the command that it is started `under`.
        """
        self.run_dir.mkdir(mode=0o700, exist_ok=True)
        (self.run_dir / "shim.so").symlink_to(self.library)
        self.agent = subprocess.Popen(
            [*under, self.mkboard, *options, self.run_dir, self.tier, self.root],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.agent.stdout is not None
        assert self.agent.stdout.readline() == "ready\n"

    def ask(self, line: str) -> str:
        """Sends one line to the agent and returns its answer."""
        assert self.agent is not None
        assert self.agent.stdin is not None
        assert self.agent.stdout is not None
        self.agent.stdin.write(f"{line}\n")
        self.agent.stdin.flush()
        return self.agent.stdout.readline().rstrip("\n")

    def counters(self) -> dict[str, int]:
        """All counters, summed over the processes."""
        pairs = (pair.split("=") for pair in self.ask("counters").split())
        return {name: int(value) for name, value in pairs}

    def processes(self) -> list[tuple[int, int, str]]:
        """(pid, state, name) of each process slot in use."""
        slots = (slot.split(":", 2) for slot in self.ask("processes").split("\t"))
        return [(int(slot[0]), int(slot[1]), slot[2]) for slot in slots if slot[0]]

    def environ(self, **more: str) -> dict[str, str]:
        """The environment that the launcher would make."""
        ours = {
            "LD_PRELOAD": str(self.run_dir / "shim.so"),
            "MONARCH_STAGING_RUN": str(self.run_dir),
        }
        return {**os.environ, **ours, **more}

    def run(
        self,
        *command: str | Path,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
    ) -> str:
        """Runs a program under the Shim and returns what it prints."""
        done = subprocess.run(
            [str(word) for word in command],
            env=self.environ() if env is None else dict(env),
            capture_output=True,
            text=True,
            timeout=60,
            cwd=cwd,
        )
        assert done.returncode == 0, (done.returncode, done.stdout, done.stderr)
        return done.stdout

    def end(self) -> None:
        """Ends the agent."""
        if self.agent is not None:
            self.agent.communicate()


def fill(root: Path) -> None:
    """The dataset of these tests: files, a hard link, links, names that need care."""
    for name in ("one.bin", "two.bin", "a/b/three.bin", "a/b/.hidden", "..odd/x y"):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes((name * 4000).encode())
    os.link(root / "one.bin", root / "a" / "same.bin")
    (root / "a" / "link.bin").symlink_to("b/three.bin")
    (root / "folder").symlink_to("a/b")
    (root / "away").symlink_to("/etc/hostname")
    os.mkfifo(root / "fifo")


@pytest.fixture
def board(shim_library: Path, compiled: Compile, tmp_path: Path) -> Iterator[Board]:
    """A dataset and a Tier; the test starts the agent."""
    program = compiled("mkboard.c", *BOARD, *SHARED)
    board = Board(tmp_path, program, shim_library)
    board.root.mkdir()
    board.tier.mkdir(mode=0o700)
    fill(board.root)
    yield board
    board.end()


@pytest.fixture
def staged(board: Board) -> Board:
    """The same with every file ready in the Tier, and the origin's bytes all zeros."""
    board.start()
    board.ask("publish-all")
    zero(board.root)
    return board


def zero(root: Path) -> None:
    """Overwrites every file with zeros of the same size and time."""
    for path in root.rglob("*"):
        if path.is_file() and not path.is_symlink():
            before = path.stat()
            path.write_bytes(bytes(before.st_size))
            os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


@pytest.fixture
def probe(compiled: Compile) -> Path:
    """The program that calls one libc function by its name."""
    return compiled("probe.c")


def python(
    board: Board, script: str, interpreter: str = sys.executable, **options: Any
) -> str:
    """The output of a Python program under the Shim."""
    head = f"import os, ctypes, sys\nD = {str(board.root)!r}\nos.chdir(D)\n{READ}"
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    done = subprocess.run(
        [interpreter, "-c", head + script],
        env=board.environ(PYTHONDONTWRITEBYTECODE="1"),
        text=True,
        timeout=60,
        **{**pipes, **options},
    )
    assert done.returncode == 0, done.stderr
    return str(done.stdout)


def python_around(board: Board, script: str, change: Callable[[], object]) -> str:
    """The output of a Python program after its first line, behind which it waits.

    Args:
        change: what happens meanwhile, and is seen by no Shim.
    """
    head = f"import os, sys\nos.chdir({str(board.root)!r})\n"
    with subprocess.Popen(
        [sys.executable, "-c", head + script],
        env=board.environ(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as program:
        assert program.stdout is not None
        assert program.stdout.readline()
        change()
        return program.communicate("\n", timeout=30)[0]


def begin(board: Board, *names: str) -> Board:
    """The dataset is catalogued, and these Files are staged."""
    board.start()
    for name in names:
        board.ask(f"publish {name}")
    return board


@pytest.fixture
def linked(board: Board) -> Board:
    """two.bin and other.bin, staged."""
    (board.root / "other.bin").write_bytes(b"other")
    return begin(board, "two.bin", "other.bin")
