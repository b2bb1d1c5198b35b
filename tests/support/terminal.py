"""An interactive shell on a pseudo terminal, at which a test types."""

import os
import pty
import re
import select
import signal
import time


class Terminal:
    """An interactive bash on a pseudo terminal."""

    def __init__(self, environ: dict[str, str]) -> None:
        self.seen = ""
        self.pid, self.fd = pty.fork()
        if not self.pid:
            words = ["bash", "--norc", "--noprofile", "-i"]
            os.execvpe("bash", words, environ | {"PS1": "prompt> ", "TERM": "dumb"})
        self.expect("prompt> ")
        self.send("stty -echo; set +o history; bind 'set enable-bracketed-paste off'\n")
        self.expect("prompt> ")

    def send(self, text: str) -> None:
        """Types."""
        os.write(self.fd, text.encode())

    def expect(self, pattern: str, limit_s: float = 20) -> str:
        """Waits until the pattern has been printed; returns everything up to it."""
        end = time.monotonic() + limit_s
        while not (found := re.search(pattern, self.seen, re.DOTALL)):
            left = end - time.monotonic()
            ready, _, _ = select.select([self.fd], [], [], max(left, 0))
            assert ready, f"no {pattern!r} in {self.seen!r}"
            self.seen += os.read(self.fd, 65536).decode()
        text = self.seen[: found.end()]
        self.seen = self.seen[found.end() :]
        return text

    def close(self) -> None:
        """Hangs up."""
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self.fd)
