"""Prints the messages of an agent in the foreground on stderr."""

import sys
import time
from collections.abc import Callable

import click

from monarch.agent.control import Notifier
from monarch.cli.terminal import is_terminal, print_line

LINE_SECONDS = 10.0


class TerminalNotifier(Notifier):
    """Prints messages for this node, and on the first node those for all nodes.

    Args:
        node: the prefix of lines; "" if there is one node.
        begun: called when programs can find the agent, or when it has failed.
        first: whether this is the first node.
    """

    foreground = True

    def __init__(
        self, node: str, begun: Callable[[], None], *, first: bool, quiet: bool
    ) -> None:
        self.lost = False
        self._begun = begun
        self._prefix = f"monarch: {node}: " if node else "monarch: "
        self._first = first
        self._quiet = quiet
        self._terminal = is_terminal(sys.stderr)
        self._printed_s = 0.0
        self._open = False

    @property
    def is_first(self) -> bool:
        """Return whether this node prints messages that are the same on all nodes."""
        return self._first

    def progress(self, text: str) -> None:
        """Print the progress of a long step, on one line of a terminal."""
        now = time.monotonic()
        if not self._first or (
            not self._terminal and now - self._printed_s < LINE_SECONDS
        ):
            return
        self._printed_s = now
        self._line(self._prefix + text, lasting=not self._terminal)

    def warn(self, text: str) -> None:
        """Print a warning."""
        self._line(self._prefix + text)

    def ready(self, text: str) -> None:
        """Print the start line."""
        self._begun()
        if self._first and not self._quiet:
            self._line(f"monarch: {text}")

    def late(self, text: str) -> None:
        """Print that programs may start before the Catalog is ready."""
        self._begun()
        if self._first and not self._quiet:
            self._line(f"monarch: {text}")

    def plain(self, text: str) -> None:
        """Print the reason why the job has no Catalog."""
        self._line(f"{self._prefix}{text}; programs run without staging")

    def fail(self, code: int, text: str) -> None:
        """Print the reason why the agent cannot start."""
        for line in text.splitlines() or [f"failed with {code}"]:
            self._line(self._prefix + line)

    def say(self, text: str) -> None:
        """Print the summary."""
        self._line(text.rstrip("\n"))

    def done(self) -> None:
        """Print nothing: another node prints the report."""

    def has_reader(self) -> bool:
        """Return true: the agent in the foreground ends by a signal."""
        return True

    def close(self) -> None:
        """Clear the progress line."""
        self._begun()
        self._line("", lasting=False)

    def _line(self, text: str, *, lasting: bool = True) -> None:
        start = "\r\033[K" if self._open else ""
        self._open = not lasting and bool(text)
        if start or not lasting:
            click.echo(start if lasting else f"{start}{text}", err=True, nl=False)
        if text and lasting:
            for line in text.splitlines():
                print_line(line)
