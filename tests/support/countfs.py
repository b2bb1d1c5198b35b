"""A mounted view of a directory that counts, slows and fails requests."""

import os
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from support import compiler

SOURCE = Path(__file__).with_suffix(".c")
MOUNT_TIMEOUT_S = 20
COUNTS_BYTES_MAX = 4096


@dataclass(frozen=True, slots=True)
class Counts:
    """The counts of a mount since it was made or reset."""

    opens: int
    reads: int
    read_bytes: int
    stats: int
    listings: int
    xattrs: int
    failures: int
    most_reads: int
    readlinks: int


@dataclass(frozen=True, slots=True)
class CountFs:
    """One mount: `root` shows the content of `source`."""

    source: Path
    root: Path
    # Open as long as the mount exists: a stalled lookup holds its directory's lock, and
    # ending the stall must not need that lock.
    _counts: int
    _control: int

    def counts(self) -> Counts:
        """The counts of this moment."""
        return Counts(**self._numbers())

    def read_bytes(self) -> int:
        """The bytes read until this moment, which tierfs.c counts, too."""
        return self._numbers()["read_bytes"]

    def set(self, **settings: str | int) -> None:
        """Changes settings while the mount is in use; see countfs.c for their names."""
        for name, value in settings.items():
            os.write(self._control, f"{name}={value}\n".encode())

    def reset(self) -> None:
        """Zeroes the counts."""
        self.set(reset=1)

    def _numbers(self) -> dict[str, int]:
        lines = os.pread(self._counts, COUNTS_BYTES_MAX, 0).decode().splitlines()
        return {name: int(value) for name, value in map(str.split, lines)}


def missing() -> str | None:
    """The missing requirement for building and mounting, or None."""
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        return "needs /dev/fuse"
    for tool in ("cc", "pkg-config", "fusermount3"):
        if shutil.which(tool) is None:
            return f"needs the program {tool}"
    found = subprocess.run(["pkg-config", "--exists", "fuse3"], check=False)
    return "needs the headers of libfuse3" if found.returncode else None


def build(source: Path = SOURCE) -> Path:
    """The program of a file system."""
    flags = subprocess.run(
        ["pkg-config", "--cflags", "--libs", "fuse3"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    command = ["cc", "-std=c11", "-D_GNU_SOURCE", "-O2", "-Wall", "-Wextra", "-Werror"]
    return compiler.build(
        source.stem, *command, source, *shlex.split(flags), "-pthread"
    )


@contextmanager
def mounted(
    program: Path, source: Path, root: Path, **settings: str | int
) -> Iterator[CountFs]:
    """Mounts `source` at `root` for the duration of the block."""
    words = [f"{name}={value}" for name, value in settings.items()]
    subprocess.run([program, source, root, *words], check=True, timeout=MOUNT_TIMEOUT_S)
    with ExitStack() as undo:
        # Lazily, because a failed test may have left a process with an open file.
        unmount = ["fusermount3", "-u", "-z", str(root)]
        undo.callback(subprocess.check_call, unmount)
        counts = os.open(root / ".counts", os.O_RDONLY)
        undo.callback(os.close, counts)
        control = os.open(root / ".control", os.O_WRONLY)
        undo.callback(os.close, control)
        mount = CountFs(source, root, counts, control)
        undo.callback(mount.set, stall="")  # it would keep the daemon alive
        yield mount
