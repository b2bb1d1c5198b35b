"""The channels of an agent: the pipe to its launcher, and the control socket.

The functions at the end are for processes that send requests to that socket.
"""

import asyncio
import contextlib
import json
import logging
import os
import select
import socket
import struct
import tempfile
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any, Final

from monarch.cluster import RUN_VARIABLE
from monarch.errors import MonarchError

SOCKET: Final = "control"
LINE_BYTES_MAX: Final = 64 << 10
HINT_PREFIX: Final = "hint-"
"""The prefix of the names of files in which programs pass paths."""
TIMEOUT_S: Final = 5.0

log = logging.getLogger("monarch.agent")

AnyPath = str | bytes | os.PathLike[str] | os.PathLike[bytes]
Answer = Callable[[dict[str, Any], int], Awaitable[dict[str, Any]]]


# -- the pipe to the launcher ---------------------------------------------------------


class Notifier:
    """Writes lines to the launcher; never blocks, and ignores that it has ended.

    Attributes:
        foreground: the user has started the agent, not a launcher.
    """

    foreground = False

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self.lost = False
        os.set_blocking(fd, False)
        os.set_inheritable(fd, False)

    def progress(self, text: str) -> None:
        """Send the progress of a long step."""
        self._write("progress", text)

    def warn(self, text: str) -> None:
        """Send a warning; the job continues."""
        self._write("warn", text)

    def ready(self, text: str) -> None:
        """Start the program under the Shim."""
        self._write("ready", text)

    def late(self, text: str) -> None:
        """Start the program before the Catalog is ready."""
        self._write("late", text)

    def plain(self, text: str) -> None:
        """Report that the job has no Catalog, and why."""
        self._write("plain", text)

    def fail(self, code: int, text: str) -> None:
        """Report why the agent cannot start, and an exit code: 2 is a usage error."""
        for line in text.splitlines() or ["unknown error"]:
            self._write(f"fail {code}", line)

    def say(self, text: str) -> None:
        """Send lines to be printed as they are."""
        for line in text.splitlines():
            self._write("say", line)

    def done(self) -> None:
        """Report that another node prints the report."""
        self._write("done", "")

    def has_reader(self) -> bool:
        """Return whether the launcher still has the pipe open."""
        if not self.lost:
            poll = select.poll()
            poll.register(self._fd, 0)
            self.lost = bool(poll.poll(0))
        return not self.lost

    def close(self) -> None:
        """Close the pipe: the launcher then sees that the agent has finished."""
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = -1
        self.lost = True

    def _write(self, word: str, text: str) -> None:
        line = f"{word} {text}".replace("\n", " ").rstrip(" ") + "\n"
        if self.lost:
            return
        try:
            os.write(self._fd, os.fsencode(line))
        except BlockingIOError:
            pass  # the launcher is stopped: the line is lost, the agent continues
        except OSError:
            self.lost = True


# -- the control socket -------------------------------------------------------------


class ControlSocket:
    """Answers requests of this user and of root: one JSON line in, one out.

    Args:
        answer: called with a request and the id of the requesting process.
    """

    def __init__(self, directory: Path, answer: Answer) -> None:
        self._directory = directory
        self._answer = answer
        self._server: asyncio.Server | None = None

    async def open(self) -> None:
        """Listen; an address in /proc stays short if the directory's path is long."""
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        fd = os.open(self._directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            listener.bind(f"/proc/self/fd/{fd}/{SOCKET}")
        finally:
            os.close(fd)
        os.chmod(self._directory / SOCKET, 0o600)
        self._server = await asyncio.start_unix_server(
            self._serve, sock=listener, limit=LINE_BYTES_MAX
        )

    def close(self) -> None:
        """Stop listening."""
        if self._server is not None:
            self._server.close()

    async def _serve(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        try:
            pid, uid = _credentials(writer.get_extra_info("socket"))
            if uid not in (0, os.geteuid()):
                return
            async with asyncio.timeout(TIMEOUT_S):
                line = await reader.readline()
                answer = await self._reply(line, pid)
                writer.write(json.dumps(answer).encode() + b"\n")
                await writer.drain()
        except (OSError, ValueError, TimeoutError) as error:
            log.info("control connection ended error=%s", error)
        finally:
            writer.close()

    async def _reply(self, line: bytes, pid: int) -> dict[str, Any]:
        try:
            request = json.loads(line)
        except ValueError:
            return {"error": "not a JSON line"}
        if not isinstance(request, dict):
            return {"error": "not a JSON object"}
        try:
            return await self._answer(request, pid)
        except MonarchError as error:
            return {"error": str(error)}
        except Exception as error:
            log.exception("control request failed")
            return {"error": f"{type(error).__name__}: {error}"}


def _credentials(peer: Any) -> tuple[int, int]:
    """Return the process and the user at the other end."""
    raw = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    pid, uid, _ = struct.unpack("3i", raw)
    return pid, uid


# -- requests -------------------------------------------------------------------------


def hint(paths: Iterable[AnyPath]) -> int:
    """See monarch.hint()."""
    if isinstance(paths, str | bytes | os.PathLike):
        raise TypeError(f"give a list of paths, not the path {os.fsdecode(paths)!r}")
    text = packed(paths)
    directory = os.environ.get(RUN_VARIABLE)
    if not directory:
        return 0
    try:
        answer = send_hint(Path(directory), text, lasting=False)
    except (MonarchError, OSError):
        return 0
    return int(answer["files"] or 0)


def packed(paths: Iterable[AnyPath]) -> bytes:
    """Return absolute paths without "." and "..", each ended by NUL."""
    return b"".join(_absolute(os.fsencode(path)) + b"\0" for path in paths)


def _absolute(path: bytes) -> bytes:
    try:
        return os.path.abspath(path)
    except FileNotFoundError:  # the working directory is removed
        return path


def send_hint(directory: Path, paths: bytes, *, lasting: bool) -> dict[str, Any]:
    """Send the agent of a run directory the paths that will be opened next.

    Args:
        paths: absolute, each ended by NUL, in their order.
        lasting: other programs open them, and this one may end earlier.

    Raises:
        MonarchError: no agent answers, or it cannot use them.
    """
    with contextlib.ExitStack() as leftovers:
        try:
            fd, name = tempfile.mkstemp(prefix=HINT_PREFIX, dir=directory)
            leftovers.callback(Path(name).unlink, missing_ok=True)
            with open(fd, "wb") as file:
                file.write(paths)
        except OSError as error:
            reason = f"the paths cannot be handed over: {error.strerror}"
            raise MonarchError(f"{directory}: {reason}") from error
        request = {"op": "hint", "file": os.path.basename(name), "lasting": lasting}
        answer = ask(directory, request)
    if "error" in answer:
        raise MonarchError(f"{directory}: {answer['error']}")
    return answer


def ask(directory: Path, request: dict[str, Any]) -> dict[str, Any]:
    """Return the answer of the agent of a run directory.

    Raises:
        MonarchError: no agent answers.
    """
    try:
        fd = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise MonarchError(f"{directory}: {error.strerror}") from error
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as peer:
            peer.settimeout(TIMEOUT_S)
            peer.connect(f"/proc/self/fd/{fd}/{SOCKET}")
            peer.sendall(json.dumps(request).encode() + b"\n")
            with peer.makefile("rb") as lines:
                answer = json.loads(lines.readline())
    except (OSError, ValueError) as error:
        raise MonarchError(f"{directory}: no agent answers ({error})") from error
    finally:
        os.close(fd)
    if not isinstance(answer, dict):
        raise MonarchError(f"{directory}: the agent's answer is not valid")
    return answer
