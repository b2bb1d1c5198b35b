"""The lines that the agent writes to the launcher which has started it."""

import os
import select


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
