"""What a page is made of: sections of tables, charts and lists, without any markup."""

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
    """Paths in a cell of a table, one below the other."""

    paths: tuple[str, ...]


Cell = str | Figure | Bar | Paths


@dataclass(frozen=True, slots=True)
class Grid:
    """A table.

    Attributes:
        titles: of the columns; those of bars are empty.
        words: the numbers of the columns that hold words, aligned to the left.
    """

    titles: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    words: frozenset[int] = frozenset({0})
    note: str = ""
    kind: str = "grid"


@dataclass(frozen=True, slots=True)
class Tick:
    """A mark of an axis: where it is, in percent, and its number."""

    at: float
    text: str


@dataclass(frozen=True, slots=True)
class Shape:
    """A path of a chart in the units of its drawing.

    Attributes:
        style: the name of its colour.
        is_line: whether it is drawn as a line instead of an area.
        title: what is shown when a pointer rests on it.
    """

    path: str
    style: str
    is_line: bool = False
    title: str = ""


@dataclass(frozen=True, slots=True)
class Chart:
    """A drawing with two axes.

    Attributes:
        text: what it shows, for readers who cannot see it.
        rises: the title of the vertical axis, with its unit.
        runs: the title of the horizontal axis, with its unit.
        legend: the names of the colours, each with what has it.
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
    """Charts beside each other, where the screen is wide enough."""

    charts: tuple[Chart, ...]
    kind: str = "charts"


@dataclass(frozen=True, slots=True)
class Matrix:
    """A square of figures, the darker the larger.

    Attributes:
        names: of the rows and of the columns.
        cells: the figures, each with its share of the largest; None: there is none.
    """

    title: str
    names: tuple[str, ...]
    cells: tuple[tuple[tuple[Figure, float] | None, ...], ...]
    kind: str = "matrix"


@dataclass(frozen=True, slots=True)
class Lines:
    """Sentences, one below the other; or paths and other literal texts."""

    lines: tuple[str, ...]
    is_literal: bool = False
    kind: str = "lines"


@dataclass(frozen=True, slots=True)
class Words:
    """Words with what they mean."""

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
    """One of the large figures at the top, with what it is made of."""

    label: str
    figure: Figure
    notes: tuple[str | Figure, ...] = ()


def short(text: object, most: int = TEXT_MAX) -> str:
    """Return a text of limited length, which a report file does not promise.

    Escaped first: an escape is longer than its character.
    """
    return fitted(printable(str(text)), most)


def after_count(text: str) -> str:
    """Return what happened without the word at the top of the counts."""
    return short(text).removeprefix("opens ")
