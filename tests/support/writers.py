"""Programs on the nodes of a job that read and write as a test says, step by step.

Also that program, of the standard library alone: each line of its standard input is an
order in JSON, and each line that it prints is the answer.
"""

import errno
import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

END_LIMIT_S = 30.0
POLL_S = 0.01


def digest_of(content: bytes) -> str:
    """The answer of a program that has read these bytes."""
    return hashlib.blake2b(content, digest_size=16).hexdigest()


class Reading(NamedTuple):
    """The digest of a read file, and whether the origin served it."""

    digest: str
    at_origin: bool


@dataclass(frozen=True, slots=True)
class Writer:
    """A program on a node that executes orders."""

    node: int
    process: "subprocess.Popen[str]"

    def do(self, order: str, *arguments: Any) -> Any:
        """Let it do one thing; return its answer."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(json.dumps([order, *arguments]), file=self.process.stdin, flush=True)
        line = self.process.stdout.readline()
        assert line, f"the program on node {self.node} has ended"
        return json.loads(line)

    def read(self, path: str) -> Reading:
        """Let it open and read a file."""
        return Reading(*self.do("read", path))


def sees(writer: Writer, path: str, content: bytes) -> Callable[[], bool]:
    """Return a function that tests whether a program reads these bytes."""
    wanted = digest_of(content)
    return lambda: writer.read(path).digest == wanted


def seconds_until(tests: Sequence[Callable[[], bool]], limit_s: float) -> float:
    """Wait until all of these are true at once; return how long it took."""
    begin_s = time.monotonic()
    while not all(test() for test in tests):
        passed_s = time.monotonic() - begin_s
        assert passed_s < limit_s, f"not true after {passed_s:.1f} s"
        time.sleep(POLL_S)
    return time.monotonic() - begin_s


class Writers:
    """The programs of a job, which end together: none can before the others do."""

    def __init__(self) -> None:
        self.all: list[Writer] = []

    def start(self, node: int, line: Sequence[str], **more: Any) -> Writer:
        """Start such a program behind the words of a command."""
        process = subprocess.Popen(
            [*line, sys.executable, __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
            **more,
        )
        self.all.append(Writer(node, process))
        return self.all[-1]

    def end(self) -> None:
        """Let all programs end, and the commands that wait for them."""
        for writer in self.all:
            assert writer.process.stdin is not None
            writer.process.stdin.close()
        end_s = time.monotonic() + END_LIMIT_S
        for writer in self.all:
            try:
                writer.process.wait(max(0.1, end_s - time.monotonic()))
            except subprocess.TimeoutExpired:
                os.killpg(writer.process.pid, signal.SIGKILL)
                writer.process.wait()
            assert writer.process.stdout is not None
            writer.process.stdout.close()


def _read(path: str) -> tuple[str, bool]:
    with open(path, "rb", buffering=0) as file:
        place = os.readlink(f"/proc/self/fd/{file.fileno()}")
        found = hashlib.blake2b(digest_size=16)
        while piece := file.read(1 << 20):
            found.update(piece)
    return found.hexdigest(), place == path


def _write(path: str, offset: int, text: str) -> int:
    with open(path, "r+b", buffering=0) as file:
        file.seek(offset)
        return file.write(text.encode())


def _create(path: str) -> None:
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644))


def _mtime(path: str) -> int:
    return os.stat(path).st_mtime_ns


def _hold(path: str) -> int:
    return os.open(path, os.O_RDONLY)


def _links(descriptor: int) -> int:
    return os.fstat(descriptor).st_nlink


def _read_anew(descriptor: int) -> str:
    try:
        with open(f"/proc/self/fd/{descriptor}", "rb") as file:
            return digest_of(file.read())
    except OSError as error:
        return errno.errorcode[error.errno or 0]


def main() -> None:
    """Obey until there are no more orders."""
    orders: dict[str, Callable[..., Any]] = {
        "read": _read,
        "write": _write,
        "rename": os.rename,
        "create": _create,
        "mtime": _mtime,
        "chmod": os.chmod,
        "list": os.listdir,
        "exists": os.path.exists,
        "unlink": os.unlink,
        "hold": _hold,
        "links": _links,
        "read anew": _read_anew,
    }
    for line in sys.stdin:
        order, *arguments = json.loads(line)
        print(json.dumps(orders[order](*arguments)), flush=True)


if __name__ == "__main__":
    main()
