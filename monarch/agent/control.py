"""The two channels of an agent: the pipe to its launcher, and the control socket."""

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

SOCKET: Final = "control"
LINE_BYTES_MAX: Final = 64 << 10
TIMEOUT_S: Final = 5.0

log = logging.getLogger("monarch.agent")

Answer = Callable[[dict[str, Any]], dict[str, Any]]


# -- the pipe to the launcher ---------------------------------------------------------


class Notifier:
    """Writes lines to the launcher; never blocks, never fails if it has gone."""

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
        """Let the program start with staging."""
        self._write("ready", text)

    def late(self, text: str) -> None:
        """Let the program start before there is a Catalog."""
        self._write("late", text)

    def plain(self, text: str) -> None:
        """Send that there will be no Catalog, and why."""
        self._write("plain", text)

    def fail(self, code: int, text: str) -> None:
        """Send why there is no agent, and an exit code: 2 is a usage error."""
        for line in text.splitlines() or ["unknown error"]:
            self._write(f"fail {code}", line)

    def say(self, text: str) -> None:
        """Send lines to be printed as they are."""
        for line in text.splitlines():
            self._write("say", line)

    def done(self) -> None:
        """Send that another node prints the report."""
        self._write("done", "")

    def has_reader(self) -> bool:
        """Return whether the launcher still has the pipe open."""
        if not self.lost:
            poll = select.poll()
            poll.register(self._fd, 0)
            self.lost = bool(poll.poll(0))
        return not self.lost

    def close(self) -> None:
        """Close the pipe, which tells the launcher that the agent has finished."""
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
    """Answers requests of this user and of root: one JSON line in, one out."""

    def __init__(self, directory: Path, answer: Answer) -> None:
        self._directory = directory
        self._answer = answer
        self._server: asyncio.Server | None = None

    async def open(self) -> None:
        """Listen; the address by /proc stays short if the directory's path is long."""
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
            if not _may_ask(writer.get_extra_info("socket")):
                return
            async with asyncio.timeout(TIMEOUT_S):
                line = await reader.readline()
                writer.write(json.dumps(self._reply(line)).encode() + b"\n")
                await writer.drain()
        except (OSError, ValueError, TimeoutError) as error:
            log.info("control connection ended error=%s", error)
        finally:
            writer.close()

    def _reply(self, line: bytes) -> dict[str, Any]:
        try:
            request = json.loads(line)
        except ValueError:
            return {"error": "not a JSON line"}
        if not isinstance(request, dict):
            return {"error": "not a JSON object"}
        try:
            return self._answer(request)
        except Exception as error:
            log.exception("control request failed")
            return {"error": f"{type(error).__name__}: {error}"}


def _may_ask(peer: Any) -> bool:
    raw = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    _, uid, _ = struct.unpack("3i", raw)
    return uid in (0, os.geteuid())


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
