"""Counts, shares, names and tables as plain text of 80 columns."""

import re
from collections.abc import Sequence
from textwrap import wrap
from typing import Final, NamedTuple

from monarch.units import format_count, format_size

WIDTH: Final = 80
ROOM_RATIO_MAX: Final = 2
_UNIT: Final = re.compile(r"(?<=\d) (?=(?:[KMGTP]i)?B\b|(?:min|ms|s|µs)\b)")
_NO_BREAK: Final = "\N{NO-BREAK SPACE}"


class Table(NamedTuple):
    """A table of texts; the first column is aligned to the left, others to the right.

    Attributes:
        widths: widths of the columns in plain text.
    """

    titles: tuple[str, ...]
    widths: tuple[int, ...]
    rows: tuple[tuple[str, ...], ...]

    def lines(self) -> list[str]:
        """Return the table as plain text."""
        return [self._line(row) for row in (self.titles, *self.rows)]

    def _line(self, row: tuple[str, ...]) -> str:
        first, *others = zip(row, self.widths, strict=True)
        cells = "".join(f"{text:>{width}}" for text, width in others)
        return f"  {first[0]:<{first[1]}}{cells}"


Part = str | Table
"""A part of a text: one line, or a table."""


def plain_text(parts: Sequence[Part]) -> str:
    """Return lines and tables as plain text in at most 80 columns."""
    lines: list[str] = []
    for part in parts:
        lines += part.lines() if isinstance(part, Table) else folded(part)
    return "\n".join(lines) + "\n"


def many(count: int, units: str) -> str:
    """Return a count with its unit: `1 file`, `1,204 files`, `2 processes`."""
    if count != 1:
        return f"{format_count(count)} {units}"
    if units.endswith("ies"):
        return f"1 {units.removesuffix('ies')}y"
    if units.endswith("sses"):
        return f"1 {units.removesuffix('es')}"
    return f"1 {units.removesuffix('s')}"


def percent(part: float | None) -> str:
    """Return a share as a percentage; 100% only if it is complete."""
    if part is None:
        return "-"
    text = f"{100 * part:.1f}%"
    return "99.9%" if text == "100.0%" and part < 1 else text


def short_names(names: Sequence[str]) -> list[str]:
    """Return names of nodes without their domains, if they stay unique."""
    hosts = [name.partition(".")[0] for name in names]
    return hosts if len(set(hosts)) == len(set(names)) else list(names)


def fitted(name: str, width: int) -> str:
    """Return a name in at most `width` characters, with its middle elided."""
    if len(name) <= width:
        return name
    tail = (width - 1) // 2
    return f"{name[: width - 1 - tail]}…{name[len(name) - tail :]}"


def folded(line: str, width: int = WIDTH) -> list[str]:
    """Return a line as lines of at most `width` columns, with a hanging indent."""
    text = line.lstrip(" ")
    indent = line[: len(line) - len(text)]
    if len(line) <= width:
        return [line]
    lines = wrap(
        _UNIT.sub(_NO_BREAK, text),  # a number stays with its unit
        width,
        initial_indent=indent,
        subsequent_indent=f"{indent}  ",
        break_long_words=False,
        break_on_hyphens=False,
    )
    return [line.replace(_NO_BREAK, " ") for line in lines]


def room_advice(size: int, room: int) -> list[str]:
    """Return advice if files use far more space in the Tiers than their bytes."""
    if room <= ROOM_RATIO_MAX * size:
        return []
    return [
        f"  small files: {format_size(size)} use {format_size(room)} of the tiers, "
        "because "
        "files use whole pages; pack them into larger files (tar, LMDB, HDF5)"
    ]


def listed(names: Sequence[str], most: int) -> str:
    """Return `a, b and c`, or `a, b and 7 more`."""
    if len(names) > most:
        names = [*names[: most - 1], f"{format_count(len(names) - most + 1)} more"]
    return " and ".join([*filter(None, [", ".join(names[:-1])]), *names[-1:]])
