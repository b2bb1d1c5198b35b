"""The sections about nodes, their peers, and the programs of the job."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from monarch.report.figures import Figure, figure, figure_of, get
from monarch.report.format import many, short_names
from monarch.report.html.blocks import (
    Bar,
    Block,
    Cell,
    Grid,
    Lines,
    Matrix,
    Paths,
    Section,
    short,
)
from monarch.report.model import Report

ROWS_MAX: Final = 32
MATRIX_MAX: Final = 16
_PROGRAMS_MAX: Final = 16
_NAME_MAX: Final = 32
_BUSY_MIN: Final = 1.1

Row = Mapping[str, Any]

# The figures of a node in its row: title, name in the report.
_COLUMNS: Final = (
    ("processes", "processes"),
    ("active", "active"),
    ("opens", "opens"),
    ("read from the origin", "origin_read_bytes"),
    ("from peers", "fetched_bytes"),
    ("to peers", "served_bytes"),
    ("in tiers", "used_bytes"),
    ("CPU time", "cpu_s"),
)


def nodes(report: Report) -> Section | None:
    """Return the section with a row for each node, and the transfers between them."""
    rows = report.get("nodes")
    if not rows:
        return _one_node(report)
    blocks: list[Block] = [_table(report, rows)]
    if matrix := _matrix(report, rows):
        blocks.append(matrix)
    elif len(rows) > MATRIX_MAX and get(report, "exchange.served_bytes"):
        sentence = f"which of {len(rows):,} nodes fetched how much from which."
        blocks.append(Lines((f"The JSON report lists {sentence}",)))
    busy = get(report, "imbalance.served_max_over_mean") or 1.0
    if busy > _BUSY_MIN:
        name = short_names([row["name"] for row in rows])[
            report["imbalance"]["busiest"]
        ]
        line = f"{short(name, _NAME_MAX)} served the most: {busy:.2f} x the mean."
        blocks.append(Lines((line,)))
    return Section("nodes", "Nodes", blocks)


def _table(report: Report, rows: Sequence[Row]) -> Grid:
    names = short_names([row["name"] for row in rows])
    columns = [
        (title, name)
        for title, name in _COLUMNS
        if any(row.get(name) is not None for row in rows)
    ]
    # If not all are shown, nodes without a report come first, then those that read
    # most from the origin.
    order = sorted(
        range(len(rows)),
        key=lambda place: (
            rows[place]["reported"],
            -(rows[place].get("origin_read_bytes") or 0),
        ),
    )
    shown = sorted(order[:ROWS_MAX])
    cells = tuple(
        (
            short(names[place], _NAME_MAX),
            *_ready(report, place),
            *(_cell(report, place, name) for _, name in columns),
        )
        for place in shown
    )
    note = ""
    if rest := len(rows) - len(shown):
        note = f"{many(rest, 'more nodes')} read as much from the origin, or less."
    titles = ("node", "ready", "", *(title for title, _ in columns))
    return Grid(titles, cells, note=note)


def _ready(report: Report, place: int) -> tuple[Cell, Cell]:
    """Return the share of opens that were ready on a node, and its bar."""
    row = report["nodes"][place]
    if not row["reported"]:
        return "no report", ""
    if row.get("ready_share") is not None:
        share = row["ready_share"]
        return figure(report, f"nodes.{place}.ready_share"), Bar(share, "ready")
    if not row["opens"]:
        return "no opens", ""
    share = row["hit_opens"] / row["opens"]
    return figure_of(share, "share"), Bar(share, "ready")


def _cell(report: Report, place: int, name: str) -> Cell:
    if report["nodes"][place].get(name) is None:
        return ""
    return figure(report, f"nodes.{place}.{name}")


def _matrix(report: Report, rows: Sequence[Row]) -> Matrix | None:
    """Return the bytes that each node has fetched from each other node."""
    if len(rows) > MATRIX_MAX:
        return None
    found = {
        (place, peer["number"]): (peer["fetched_bytes"], number)
        for place, row in enumerate(rows)
        for number, peer in enumerate(row.get("peers") or ())
    }
    most = max((size for size, _ in found.values()), default=0)
    if not most:
        return None

    def cell(place: int, peer: int) -> tuple[Figure, float] | None:
        if (place, peer) not in found:
            return None
        size, number = found[place, peer]
        name = f"nodes.{place}.peers.{number}.fetched_bytes"
        return figure_of(size, "size", name), size / most

    numbers = range(len(rows))
    names = short_names([row["name"] for row in rows])
    return Matrix(
        "Fetched by the node of the row from the node of the column",
        tuple(short(name, _NAME_MAX) for name in names),
        tuple(tuple(cell(place, peer) for peer in numbers) for place in numbers),
    )


def _one_node(report: Report) -> Section | None:
    """Return the section with the peers, for the report of a single node."""
    rows = report.get("peers")
    if not rows:
        return None
    names = short_names([row["name"] for row in rows])
    cells = tuple(
        (
            short(names[place], _NAME_MAX),
            short(rows[place]["standing"], 40),
            figure(report, f"peers.{place}.fetched_bytes"),
            figure(report, f"peers.{place}.served_bytes"),
            figure(report, f"peers.{place}.fetch_failures"),
            figure(report, f"peers.{place}.breaker_opened"),
        )
        for place in range(min(len(rows), ROWS_MAX))
    )
    titles = ("peer", "at the end", "from it", "to it", "failures", "times suspended")
    rest = len(rows) - len(cells)
    note = f"{many(rest, 'more peers')} are in the JSON report." if rest else ""
    grid = Grid(titles, cells, frozenset({0, 1}), note)
    return Section("nodes", "Peers of this node", [grid])


# -- programs -------------------------------------------------------------------------


def programs(report: Report) -> Section | None:
    """Return the section with the programs in which Monarch was not active."""
    rows = get(report, "coverage.inactive") or ()
    lines = []
    if unslotted := get(report, "coverage.unslotted"):
        lines.append(
            f"{many(unslotted, 'more processes')} could not be tracked; their opens "
            "are counted."
        )
    if untracked := get(report, "coverage.untracked"):
        lines.append(
            "Could not be tracked, and counted as not active: "
            f"{many(untracked, 'processes')}."
        )
    if not rows and not lines:
        return None
    cells = tuple(
        (
            Paths((short(row["program"] or "an unknown program"),)),
            figure(report, f"coverage.inactive.{place}.count"),
        )
        for place, row in enumerate(rows[:_PROGRAMS_MAX])
    )
    note = "Static, setuid, excluded, with other privileges, or disabled."
    if rest := len(rows) - len(cells):
        note += f" {many(rest, 'more programs')} are in the JSON report."
    blocks: list[Block] = []
    if cells:
        blocks.append(Grid(("program", "processes"), cells, note=note))
    if lines:
        blocks.append(Lines(tuple(lines)))
    return Section("programs", "Programs that were not covered", blocks)
