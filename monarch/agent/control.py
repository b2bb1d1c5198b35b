"""The control socket of an agent: one JSON line in, one JSON line out."""

import asyncio
import json
import logging
import os
import select
import socket
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from monarch.errors import MonarchError


class Notifier:
    """Writes lines to a pipe; never waits, and a reader that is gone is no error."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self.lost = False
        os.set_blocking(fd, False)
        os.set_inheritable(fd, False)

    def progress(self, text: str) -> None:
        """Say how far a long step is."""
        self._write("progress", text)

    def warn(self, text: str) -> None:
        """Say what the user should know although the job goes on."""
        self._write("warn", text)

    def ready(self, text: str) -> None:
        """Let the program start, staged."""
        self._write("ready", text)

    def plain(self, text: str) -> None:
        """Let the program start without Monarch."""
        self._write("plain", text)

    def fail(self, code: int, text: str) -> None:
        """Say why there is no agent; 2 = the user must change something."""
        for line in text.splitlines() or ["unknown error"]:
            self._write(f"fail {code}", line)

    def say(self, text: str) -> None:
        """Print lines of the summary as they are."""
        for line in text.splitlines():
            self._write("say", line)

    def done(self) -> None:
        """Say that the report is given elsewhere."""
        self._write("done", "")

    def has_reader(self) -> bool:
        """Return whether the launcher still reads."""
        if not self.lost:
            poll = select.poll()
            poll.register(self._fd, 0)
            self.lost = bool(poll.poll(0))
        return not self.lost

    def close(self) -> None:
        """Tell the launcher by the end of the pipe that the agent has finished."""
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
            pass  # a stopped launcher must not stop the agent
        except OSError:
            self.lost = True


SOCKET: Final = "control"
LINE_BYTES_MAX: Final = 64 << 10
PATIENCE_S: Final = 5.0

log = logging.getLogger("monarch.agent")

Answer = Callable[[dict[str, Any]], dict[str, Any]]


class ControlSocket:
    """Answers this user's questions; nobody else's, and none that is too long."""

    def __init__(self, directory: Path, answer: Answer) -> None:
        self._directory = directory
        self._answer = answer
        self._server: asyncio.Server | None = None

    async def open(self) -> None:
        """Listen; the socket's name is short however long the directory's is."""
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        fd = os.open(self._directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            listener.bind(f"/proc/self/fd/{fd}/{SOCKET}")
        finally:
            os.close(fd)
        os.chmod(self._directory / SOCKET, 0o600)
        self._server = await asyncio.start_unix_server(
            self._converse, sock=listener, limit=LINE_BYTES_MAX
        )

    def close(self) -> None:
        """Listen no more."""
        if self._server is not None:
            self._server.close()

    async def _converse(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        try:
            if not _is_ours(writer.get_extra_info("socket")):
                return
            async with asyncio.timeout(PATIENCE_S):
                line = await reader.readline()
                writer.write(json.dumps(self._reply(line)).encode() + b"\n")
                await writer.drain()
        except (OSError, ValueError, TimeoutError) as error:
            log.info("control conversation ended error=%s", error)
        finally:
            writer.close()

    def _reply(self, line: bytes) -> dict[str, Any]:
        try:
            asked = json.loads(line)
        except ValueError:
            return {"error": "not a JSON line"}
        if not isinstance(asked, dict):
            return {"error": "not a JSON object"}
        try:
            return self._answer(asked)
        except Exception as error:
            log.exception("control request failed")
            return {"error": f"{type(error).__name__}: {error}"}


def _is_ours(peer: Any) -> bool:
    raw = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    _, uid, _ = struct.unpack("3i", raw)
    return uid in (0, os.geteuid())


def ask(directory: Path, question: dict[str, Any]) -> dict[str, Any]:
    """Ask the agent of a run directory.

    Raises:
        MonarchError: there is no agent that answers.
    """
    try:
        fd = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise MonarchError(f"{directory}: {error.strerror}") from error
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as peer:
            peer.settimeout(PATIENCE_S)
            peer.connect(f"/proc/self/fd/{fd}/{SOCKET}")
            peer.sendall(json.dumps(question).encode() + b"\n")
            with peer.makefile("rb") as lines:
                answer = json.loads(lines.readline())
    except (OSError, ValueError) as error:
        raise MonarchError(f"{directory}: no agent answers ({error})") from error
    finally:
        os.close(fd)
    if not isinstance(answer, dict):
        raise MonarchError(f"{directory}: the agent's answer makes no sense")
    return answer
