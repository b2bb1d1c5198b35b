"""Tables and progress: with rich on a terminal, else as plain text of 80 columns.

Importing rich takes 40 to 150 ms and 430 file-system calls, so it is imported only if
the output is a terminal.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, TextIO

import click

from monarch.errors import printable
from monarch.origins.progress import Advance, ScanRate
from monarch.report.format import WIDTH, Part, Table, folded, percent, plain_text
from monarch.units import format_count, format_duration, format_rate, format_size

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.progress import Progress, TaskID

QUIET_SECONDS: Final = 1.0
"""A step that takes less time shows no progress."""
LINE_SECONDS: Final = 10.0
"""The interval of lines if lines of stderr cannot be replaced."""
COLUMNS_MIN: Final = 20
"""A terminal that reports less, such as 0, does not know its width."""


def print_parts(parts: Sequence[Part]) -> None:
    """Print lines and tables to stdout; the first line is the headline."""
    clean = [_printable(part) for part in parts]
    if not is_terminal(sys.stdout):
        click.echo(plain_text(clean), nl=False)
        return
    print_rich(clean, make_console())


def print_lines(lines: Sequence[str]) -> None:
    """Print lines to stdout: folded between words on a terminal, else as they are."""
    if is_terminal(sys.stdout):
        print_parts(lines)
        return
    for line in lines:
        click.echo(printable(line))


def make_console(**options: Any) -> Console:
    """Return a rich console for plain texts; with NO_COLOR it is without bold, too."""
    from rich.console import Console

    system = None if os.environ.get("NO_COLOR") else "auto"
    plain = {"highlight": False, "markup": False, "emoji": False}
    return Console(**{"color_system": system, **plain, **options})


def print_rich(parts: Sequence[Part], console: Console) -> None:
    """Print lines and tables with a rich console."""
    for part in rich_parts(parts, console.width):
        console.print(part)


def rich_parts(parts: Sequence[Part], width: int) -> list[RenderableType]:
    """Return lines and tables as rich prints them in `width` columns."""
    from rich import box
    from rich.padding import Padding
    from rich.table import Table as RichTable
    from rich.text import Text

    found: list[RenderableType] = []
    for number, part in enumerate(parts):
        if isinstance(part, str):
            text = "\n".join(folded(part, width))
            found.append(Text(text, style="" if number else "bold"))
            continue
        table = RichTable(
            box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, header_style="bold"
        )
        for column, title in enumerate(part.titles):
            table.add_column(
                title, justify="right" if column else "left", overflow="fold"
            )
        for row in part.rows:
            table.add_row(*row)
        found.append(Padding(table, (0, 0, 0, 2)))
    return found


def print_line(text: str, *, err: bool = True) -> None:
    """Print a line to stderr, or to stdout; on a terminal it is wrapped at words."""
    stream = sys.stderr if err else sys.stdout
    if stream is not None and is_terminal(stream):
        text = "\n".join(folded(text, _columns(stream)))
    click.echo(text, err=err)


def is_terminal(stream: TextIO) -> bool:
    """Return whether a user watches a stream.

    MPI connects its ranks to terminals, whose output then goes to a file or with a
    label to another terminal.
    """
    if not stream.isatty():
        return False
    from monarch.cluster import launched_by_mpi

    return not launched_by_mpi(os.environ)


def can_replace(stream: TextIO) -> bool:
    """Return whether a stream is a terminal on which lines can be replaced."""
    return is_terminal(stream) and os.environ.get("TERM", "dumb") not in ("", "dumb")


def _columns(stream: TextIO) -> int:
    """Return the width of a terminal, as the launcher does."""
    columns = os.get_terminal_size(stream.fileno()).columns
    return columns if columns > COLUMNS_MIN else WIDTH


def _printable(part: Part) -> Part:
    """Return a part without control characters, which a report file may contain."""
    if isinstance(part, str):
        return printable(part)
    rows = tuple(tuple(map(printable, row)) for row in part.rows)
    return Table(part.titles, part.widths, rows)


# -- progress ----------------------------------------------------------------------


class StepProgress:
    """Shows the progress of one step once it takes longer than a second.

    Args:
        text: what the step does, such as `scanning /data`.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self._began = self._shown = time.monotonic()
        self._is_live = can_replace(sys.stderr)
        self._has_lines = False
        self._live: tuple[Progress, TaskID] | None = None

    @property
    def seconds(self) -> float:
        """Return the time since the start of the step."""
        return time.monotonic() - self._began

    def show(self, state: str, done: float = 0, total: float | None = None) -> None:
        """Show the state of the step, and the part that is done if it is known."""
        interval = QUIET_SECONDS
        if self._has_lines:
            interval = LINE_SECONDS
        if self._live is None and time.monotonic() - self._shown < interval:
            return
        self._shown = time.monotonic()
        if self._is_live:
            self._show_live(state, done, total)
        else:
            click.echo(f"monarch: {self._text}: {state}", err=True)
            self._has_lines = True

    def close(self) -> None:
        """Remove the progress from the terminal."""
        if self._live is not None:
            self._live[0].stop()
            self._live = None

    def _show_live(self, state: str, done: float, total: float | None) -> None:
        if self._live is None:
            progress = _live_progress()
            progress.start()
            text = f"monarch: {self._text}"
            self._live = progress, progress.add_task(text, total=total, state=state)
        progress, task = self._live
        progress.update(task, completed=done, total=total, state=state)


def _live_progress() -> Progress:
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=20),
        TextColumn("{task.fields[state]}", markup=False),
        TimeElapsedColumn(),
        console=make_console(stderr=True),
        transient=True,
        refresh_per_second=4,
    )


class ScanProgress(StepProgress):
    """Shows the progress of a scan."""

    def __init__(self, path: str) -> None:
        super().__init__(f"scanning {path}")
        self._rate = ScanRate(time.monotonic)

    def __call__(self, advance: Advance) -> None:
        """Show the names or directories so far."""
        state = self._rate.describe(advance)
        self.show(state, advance.done, advance.total or None)


class RecordsProgress(StepProgress):
    """Shows how many records or objects were listed, indexed, written or verified."""

    def __call__(self, step: str, done: int, count: int) -> None:
        """Show how many are done, and how many in total; 0: unknown."""
        if count:
            state = f"{format_count(done)} of {format_count(count)} {step}"
        else:
            state = f"{format_count(done)} {step}"
        self.show(state, done, count or None)


class StagingProgress(StepProgress):
    """Shows how much of a node's share is staged."""

    def __call__(
        self, size: int, total: int, rate: float | None, left_s: float | None
    ) -> None:
        """Show the bytes so far and in total; the rate and the time left, if known."""
        share = percent(size / total if total else None)
        parts = [f"{share} of {format_size(total)}"]
        if rate is not None:
            parts.append(format_rate(rate))
        if left_s and rate:
            parts.append(f"{format_duration(left_s)} left")
        self.show(", ".join(parts), size, total)
