"""Jobs of a loader whose ranks and readers are killed again and again."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from support.loaders import is_running, readers
from support.processes import kill

GLOBAL_BATCH: Final = 24
WORLDS: Final = (2, 3, 4)
EPOCHS: Final = 2
LIMIT_S: Final = 60
"""A job that has not gone on for this time hangs."""
READERS_GO_S: Final = 10
OPTIONS: Final[dict[str, Any]] = {
    "group_bytes": 20_000,
    "groups_in_flight": 4,
    "remainder": "uneven",
    "timeout": 20,
}
ZYGOTE: Final = Path(__file__).with_name("loader_zygote.py")


def own_mounts(folder: Path) -> list[str]:
    """A command that runs another one with a /tmp and a /dev/shm of its own.

    They are empty but for what the tests need; nothing where there is no bwrap that may
    do so.
    """
    line = ["bwrap", "--dev-bind", "/", "/", "--tmpfs", "/dev/shm", "--tmpfs", "/tmp"]
    for path in mounted(folder):
        line += ["--bind", str(path), str(path)]
    if shutil.which("bwrap") is None:
        return []
    tried = subprocess.run([*line, "true"], capture_output=True, check=False)
    return line if tried.returncode == 0 else []


def mounted(folder: Path) -> list[Path]:
    """What is seen in the own mounts."""
    return [folder, ZYGOTE.parent, Path(sys.prefix), Path(sys.base_prefix)]


class Member:
    """A rank of a job."""

    def __init__(self, pid: int, said: Path, errors: Path) -> None:
        self.pid = pid
        self._said = said
        self._errors = errors

    def said(self) -> list[Any]:
        """The Records and the state of each batch."""
        text = self._said.read_text() if self._said.exists() else ""
        # An unfinished line is being written, or was when its rank was killed.
        lines = [one for one in text.splitlines(keepends=True) if one.endswith("\n")]
        return [json.loads(line) for line in lines if line != '"end"\n']

    def errors(self) -> str:
        """The messages of its errors, and of those of a reader that it has started."""
        return self._errors.read_text() if self._errors.exists() else ""

    @property
    def runs(self) -> bool:
        """Whether it has not ended."""
        return is_running(self.pid)

    @property
    def has_ended_well(self) -> bool:
        """Whether it has reached the end of its last epoch."""
        return self._said.exists() and self._said.read_text().endswith('"end"\n')


class Zygote:
    """Starts ranks as quickly as by fork."""

    def __init__(
        self, folder: Path, process: subprocess.Popen[str], has_own_mounts: bool
    ) -> None:
        self._folder = folder
        self._process = process
        self._has_own_mounts = has_own_mounts
        self._started = 0
        self._pid = self._told()  # of the zygote, not of bwrap

    def rank(self, path: str, rank: int, state: Any, **options: Any) -> Member:
        """Start a rank."""
        self._started += 1
        said = self._folder / f"said-{self._started}"
        errors = self._folder / f"errors-{self._started}"
        pause_max_s = options.pop("pause_max_s", 0.004)
        plan = {
            "path": path,
            "rank": rank,
            "state": state,
            "said": str(said),
            "errors": str(errors),
            "epochs": EPOCHS,
            "pause_max_s": pause_max_s,
            "options": {**OPTIONS, **options},
        }
        stdin = self._process.stdin
        assert stdin is not None
        stdin.write(json.dumps(plan) + "\n")
        stdin.flush()
        return Member(self._told(), said, errors)

    def _told(self) -> int:
        assert self._process.stdout is not None
        return int(self._process.stdout.readline())

    def job(
        self, path: str, states: Sequence[Any], world: int, **options: Any
    ) -> list[Member]:
        """Start all ranks of a job."""
        share = GLOBAL_BATCH // world
        options = {**options, "world_size": world, "batch_size": share}
        return [
            self.rank(path, rank, states[rank % len(states)], **options)
            for rank in range(world)
        ]

    def readers(self) -> list[int]:
        """The readers that its ranks have started."""
        return [pid for pid in readers() if self._is_own(pid) and is_running(pid)]

    def _is_own(self, pid: int) -> bool:
        try:
            environ = Path(f"/proc/{pid}/environ").read_bytes()
        except OSError:
            return False
        return str(self._folder).encode() in environ

    def leftovers(self) -> list[str]:
        """What is in its /tmp and /dev/shm that has come from the ranks."""
        if not self._has_own_mounts:
            return []
        needed = {path for one in mounted(self._folder) for path in (one, *one.parents)}
        root = Path(f"/proc/{self._pid}/root")
        return [
            str(path)
            for folder in ("tmp", "dev/shm")
            for path in root.joinpath(folder).iterdir()
            if Path("/", folder, path.name) not in needed
        ]


@contextmanager
def zygote(folder: Path) -> Iterator[Zygote]:
    """Start a zygote, and end it with all that it has started."""
    environ = {**os.environ, "LOADER_TEST": str(folder)}
    prefix = own_mounts(folder)
    process = subprocess.Popen(
        [*prefix, sys.executable, "-P", str(ZYGOTE)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environ,
        text=True,
        start_new_session=True,
    )
    started = Zygote(folder, process, bool(prefix))
    try:
        yield started
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        for pid in started.readers():
            kill(pid)
