"""The parts of a page: sections of tables, charts and lists, without any markup."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from monarch.errors import printable
from monarch.report.figures import Figure
from monarch.report.format import fitted

TEXT_MAX: Final = 240
"""The longest text in a cell; the middle of a longer one is elided."""


@dataclass(frozen=True, slots=True)
class Bar:
    """A bar in a cell of a table.

    Attributes:
        share: its length, from 0 to 1.
        style: the name of its colour.
    """

    share: float
    style: str


@dataclass(frozen=True, slots=True)
class Paths:
    """Paths in a cell of a table, one per line."""

    paths: tuple[str, ...]


Cell = str | Figure | Bar | Paths


@dataclass(frozen=True, slots=True)
class Grid:
    """A table.

    Attributes:
        titles: titles of the columns; those of bars are empty.
        words: the numbers of the columns that hold words, aligned to the left.
    """

    titles: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    words: frozenset[int] = frozenset({0})
    note: str = ""
    kind: str = "grid"


@dataclass(frozen=True, slots=True)
class Tick:
    """A mark of an axis: its position in percent, and its number."""

    at: float
    text: str


@dataclass(frozen=True, slots=True)
class Shape:
    """A path of a chart in the units of its drawing.

    Attributes:
        style: the name of its colour.
        is_line: whether it is drawn as a line instead of an area.
        title: the text that is shown when a pointer rests on it.
    """

    path: str
    style: str
    is_line: bool = False
    title: str = ""


@dataclass(frozen=True, slots=True)
class Chart:
    """A drawing with two axes.

    Attributes:
        text: a description for readers who cannot see it.
        rises: the title of the vertical axis, with its unit.
        runs: the title of the horizontal axis, with its unit.
        legend: the names of the colours, each with its meaning.
    """

    title: str
    text: str
    rises: str
    runs: str
    y_ticks: tuple[Tick, ...]
    x_ticks: tuple[Tick, ...]
    shapes: tuple[Shape, ...]
    legend: tuple[tuple[str, str], ...] = ()
    kind: str = "chart"


@dataclass(frozen=True, slots=True)
class Charts:
    """Charts side by side, if the screen is wide enough."""

    charts: tuple[Chart, ...]
    kind: str = "charts"


@dataclass(frozen=True, slots=True)
class Matrix:
    """A square of figures, the darker the larger.

    Attributes:
        names: names of the rows and of the columns.
        cells: the figures, each with its share of the largest; None: no figure.
    """

    title: str
    names: tuple[str, ...]
    cells: tuple[tuple[tuple[Figure, float] | None, ...], ...]
    kind: str = "matrix"


@dataclass(frozen=True, slots=True)
class Lines:
    """Sentences, one per line; or paths and other literal texts."""

    lines: tuple[str, ...]
    is_literal: bool = False
    kind: str = "lines"


@dataclass(frozen=True, slots=True)
class Words:
    """Words with their meanings."""

    rows: tuple[tuple[str, str], ...]
    kind: str = "words"


Block = Grid | Chart | Charts | Matrix | Lines | Words


@dataclass(frozen=True, slots=True)
class Section:
    """A part of the page with a title.

    Attributes:
        is_folded: whether it is opened by a click.
    """

    name: str
    title: str
    blocks: Sequence[Block] = field(default=())
    is_folded: bool = False


@dataclass(frozen=True, slots=True)
class Tile:
    """One of the large figures at the top, with its components."""

    label: str
    figure: Figure
    notes: tuple[str | Figure, ...] = ()


def short(text: object, most: int = TEXT_MAX) -> str:
    """Return a text shortened to a limit, because texts in a report file have none.

    It is escaped first, because an escape is longer than its character.
    """
    return fitted(printable(str(text)), most)


def after_count(text: str) -> str:
    """Return the text of an event without a leading "opens"."""
    return short(text).removeprefix("opens ")
