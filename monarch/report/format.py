"""Counts, shares and names as reports print them."""

import re
from collections.abc import Sequence
from textwrap import wrap
from typing import Final

from monarch.units import format_count, format_size

WIDTH: Final = 80
ROOM_RATIO_MAX: Final = 2
_UNIT: Final = re.compile(r"(?<=\d) (?=(?:[KMGTP]i)?B\b|(?:min|ms|s|µs)\b)")
_TIED: Final = "\N{NO-BREAK SPACE}"


def many(count: int, units: str) -> str:
    """Return a count with its unit: `1 file`, `1,204 files`, `2 processes`."""
    if count != 1:
        return f"{format_count(count)} {units}"
    if units.endswith("sses"):
        return f"1 {units.removesuffix('es')}"
    return f"1 {units.removesuffix('s')}"


def percent(part: float | None) -> str:
    """Return a share: never 100% of what is not all."""
    if part is None:
        return "-"
    text = f"{100 * part:.1f}%"
    return "99.9%" if text == "100.0%" and part < 1 else text


def printable(text: str) -> str:
    """Return a line that does to a terminal only what text does."""
    return text if text.isprintable() else text.encode("unicode_escape").decode()


def short_names(names: Sequence[str]) -> list[str]:
    """Return names of nodes without their domains, where that leaves them apart."""
    hosts = [name.partition(".")[0] for name in names]
    return hosts if len(set(hosts)) == len(set(names)) else list(names)


def fitted(name: str, width: int) -> str:
    """Return a name in at most `width` places; its ends tell most about a node."""
    if len(name) <= width:
        return name
    tail = (width - 1) // 2
    return f"{name[: width - 1 - tail]}…{name[len(name) - tail :]}"


def folded(line: str) -> list[str]:
    """Return a line as lines that fit a terminal; what follows is indented deeper."""
    text = line.lstrip(" ")
    indent = line[: len(line) - len(text)]
    if len(line) <= WIDTH:
        return [line]
    lines = wrap(
        _UNIT.sub(_TIED, text),  # a number stays with its unit
        WIDTH,
        initial_indent=indent,
        subsequent_indent=f"{indent}  ",
        break_long_words=False,
        break_on_hyphens=False,
    )
    return [line.replace(_TIED, " ") for line in lines]


def room_advice(size: int, room: int) -> list[str]:
    """Return what to do about files that take far more of a Tier than their bytes."""
    if room <= ROOM_RATIO_MAX * size:
        return []
    return [
        f"  small files: {format_size(size)} take {format_size(room)} of the tiers, in "
        "whole pages;",
        "    packed into larger ones (tar, LMDB, HDF5) they take what they hold",
    ]


def listed(names: Sequence[str], most: int) -> str:
    """Return `a, b and c`, or `a, b and 7 more`."""
    if len(names) > most:
        names = [*names[: most - 1], f"{format_count(len(names) - most + 1)} more"]
    return " and ".join([*filter(None, [", ".join(names[:-1])]), *names[-1:]])
