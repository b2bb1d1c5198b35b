"""Where loaders are compared: their own Pythons, the datasets, and their processes."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

PROGRAM = str(Path(__file__).with_name("loader_reader.py"))
VENVS = Path("/var/tmp/monarch-bench-venvs")
"""Kept, because the largest ones take minutes to make."""
EVERYWHERE = ("numpy", "xxhash")
REQUIREMENTS: dict[str, tuple[str, ...]] = {
    "torch": ("torch==2.13.0", "torchdata==0.11.0", "lmdb==3.0.0"),
    "webdataset": ("webdataset==1.0.2",),
    "streaming": ("torch==2.13.0", "mosaicml-streaming==0.13.0"),
    "grain": ("grain==0.2.18", "array-record==0.8.6"),
    "litdata": ("torch==2.13.0", "litdata==0.2.76"),
    "tensorflow": ("tensorflow-cpu==2.21.0",),
    "clients": ("redis==8.1.0", "hiredis==3.5.0", "boto3==1.44.8"),
    "s3torch": ("torch==2.13.0", "s3torchconnector==1.5.0"),
    "tfio": ("tensorflow-cpu==2.16.1", "tensorflow-io==0.37.1"),
}
LIMIT_S = 180.0
LOOK_S = 0.1
QUIET = {
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "CUDA_VISIBLE_DEVICES": "",
    "PYTHONUNBUFFERED": "",
}


class Failed(Exception):
    """A loader has failed, or has not ended in time."""


def python_of(venv: str) -> str:
    """The Python of a loader, made if need be; without a name it is Monarch's.

    Raises:
        Failed: its packages cannot be installed.
    """
    if not venv:
        return sys.executable
    folder, wanted = VENVS / venv, [*REQUIREMENTS[venv], *EVERYWHERE]
    stamp = folder / "requirements"
    if not stamp.exists() or stamp.read_text().split() != wanted:
        print(f"making {folder} ...", file=sys.stderr, flush=True)
        make = [sys.executable, "-m", "venv", "--clear", str(folder)]
        install = [str(folder / "bin" / "pip"), "install", "--quiet", *wanted]
        for command in (make, install):
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode:
                raise Failed(done.stderr.strip().splitlines()[-1])
        stamp.write_text(" ".join(wanted))
    return str(folder / "bin" / "python")


def make_data(python: str, name: str, folder: Path, count: int) -> None:
    """Make a dataset in a format, if it is not there.

    Raises:
        Failed: it cannot be made.
    """
    if folder.exists() and name != "digests":
        return
    command = [python, PROGRAM, "make", name, str(folder), str(count)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise Failed(last_line(done.stderr))


def last_line(text: str) -> str:
    """What an error output ends with."""
    return next((line for line in reversed(text.splitlines()) if line.strip()), "?")


class Child:
    """A process of a loader, from its start to its end.

    Args:
        folder: gets what it keeps, and says that is not for us.
    """

    def __init__(
        self, python: str, plan: Mapping[str, Any], folder: Path, group: Path | None
    ) -> None:
        self._errors = folder / "errors"
        (folder / "cache").mkdir(exist_ok=True)
        environ = {**os.environ, **QUIET, "XDG_STATE_HOME": str(folder / "state")}
        with self._errors.open("wb") as errors:
            self._process = subprocess.Popen(
                [python, PROGRAM, "read", json.dumps(plan)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=environ,
                start_new_session=True,
            )
        try:
            self.can_resume = bool(self.hear()["can_resume"])
            if group is not None:
                (group / "cgroup.procs").write_text(str(self.pid))
        except Exception:
            self.end()
            raise

    @property
    def pid(self) -> int:
        """Of the process that reads."""
        return self._process.pid

    def hear(self) -> dict[str, Any]:
        """What it says next.

        Raises:
            Failed: it has ended instead, or says nothing.
        """
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], LIMIT_S)
        if not ready:
            raise Failed(f"has said nothing for {LIMIT_S:.0f} s")
        line = self._process.stdout.readline()
        if not line:
            code = self._process.wait()
            if code == -signal.SIGKILL:
                raise Failed("killed: out of memory")
            raise Failed(last_line(self._errors.read_text(errors="replace")))
        found: dict[str, Any] = json.loads(line)
        return found

    def go(self) -> dict[str, Any]:
        """Let an epoch begin; return what is said of it."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(b"go\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass
        return self.hear()

    def end(self) -> None:
        """End it, and all that it has started."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(10)
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self._process.wait()
        self._process.stdout.close()


@contextmanager
def child(
    python: str, plan: Mapping[str, Any], folder: Path, group: Path | None = None
) -> Iterator[Child]:
    """A process of a loader, which ends with the block.

    Args:
        group: of processes, which it joins when all is imported.
    """
    one = Child(python, plan, folder, group)
    try:
        yield one
    finally:
        one.end()


# -- memory ----------------------------------------------------------------------------


@dataclass(slots=True)
class Memory:
    """The most memory that a process and all that it has started have had, in bytes.

    Attributes:
        pss: of all, where pages that several processes have count once.
        private: the same without memory that is made to be shared, such as buffers.
    """

    pss: int = 0
    private: int = 0
    ended: threading.Event = field(default_factory=threading.Event)

    def watch(self, pid: int) -> None:
        """Look until the end."""
        while not self.ended.wait(LOOK_S):
            pss = shared = 0
            with suppress(psutil.Error):
                top = psutil.Process(pid)
                for one in [top, *top.children(recursive=True)]:
                    sizes = sizes_of(one.pid)
                    pss += sizes.get("Pss", 0)
                    shared += sizes.get("Pss_Shmem", 0)
            self.pss = max(self.pss, pss)
            self.private = max(self.private, pss - shared)


def sizes_of(pid: int) -> dict[str, int]:
    """The sums over all mappings of a process, by name."""
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except OSError:  # it has ended
        return {}
    lines = [line.split() for line in text.splitlines()[1:]]
    return {words[0].rstrip(":"): int(words[1]) << 10 for words in lines}


@contextmanager
def memory_of(pid: int) -> Iterator[Memory]:
    """Watch the memory of a process until the block ends."""
    found = Memory()
    thread = threading.Thread(target=found.watch, args=(pid,))
    thread.start()
    try:
        yield found
    finally:
        found.ended.set()
        thread.join()


@contextmanager
def memory_group(limit: int) -> Iterator[Path]:
    """A group of processes that have so many bytes together, page cache included.

    Raises:
        Failed: there can be none here.
    """
    group, setting = group_place()
    try:
        group.mkdir()
    except OSError as error:
        raise Failed(f"no group with a limit: {error.strerror}") from error
    try:
        (group / setting).write_text(str(limit))
        yield group
    except OSError as error:
        raise Failed(f"no limit of memory: {error.strerror}") from error
    finally:
        group.rmdir()


def group_place(root: Path = Path("/sys/fs/cgroup")) -> tuple[Path, str]:
    """Where a group can be made, and the file of its limit, in either version.

    Raises:
        Failed: no version has a limit of memory here.
    """
    name = f"monarch-bench-{os.getpid()}"
    delegated = root / "cgroup.subtree_control"
    if delegated.exists() and "memory" in delegated.read_text().split():
        return root / name, "memory.max"
    if (root / "memory" / "memory.limit_in_bytes").exists():
        return root / "memory" / name, "memory.limit_in_bytes"
    raise Failed("no control group limits memory here")
