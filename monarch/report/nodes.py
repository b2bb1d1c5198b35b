"""What a report for people tells of the nodes of a job: a table, and troubles."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from monarch.errors import UsageError
from monarch.report.format import WIDTH, fitted, listed, many, percent, short_names
from monarch.report.model import Report
from monarch.units import format_count, format_size

# Of more nodes than this the table shows the least and the most of each column.
ROWS_MAX: Final = 16
NAMES_MAX: Final = 4
LINES_MAX: Final = 8

Row = Mapping[str, Any]


class Column(NamedTuple):
    """One column of a table; its values are compared to find the extremes."""

    title: str
    width: int
    value: Callable[[Row], float]
    text: Callable[[float], str]


def _of(name: str) -> Callable[[Row], float]:
    return lambda row: row[name]


def _share(part: str, whole: str) -> Callable[[Row], float]:
    return lambda row: row[part] / row[whole] if row[whole] else 0.0


def _count(value: float) -> str:
    """Return a count, in millions where it would not leave its column."""
    whole = format_count(int(value))
    return whole if value < 1e9 else f"{format_count(round(value / 1e6))} M"


_NODES: Final = (
    Column("opens", 11, _of("opens"), _count),
    Column("ready", 7, _share("hit_opens", "opens"), percent),
    Column("peers", 7, _share("peer_hit_opens", "opens"), percent),
    Column(
        "origin",
        11,
        lambda row: row["origin_read_bytes"] + row["origin_bytes"],
        format_size,
    ),
    Column("fetched", 11, _of("fetched_bytes"), format_size),
    Column("served", 11, _of("served_bytes"), format_size),
    Column("full", 7, _share("used_bytes", "capacity_bytes"), percent),
)
# What the figures of all nodes together are made of.
_SUMMED: Final = (
    *("opens", "hit_opens", "peer_hit_opens", "origin_read_bytes", "origin_bytes"),
    *("fetched_bytes", "served_bytes", "used_bytes", "capacity_bytes"),
)
_PEERS: Final = (
    Column("fetched", 12, _of("fetched_bytes"), format_size),
    Column("served", 12, _of("served_bytes"), format_size),
    Column("failed", 9, _of("fetch_failures"), _count),
    Column("given up", 10, _of("breaker_opened"), _count),
)


def node_lines(report: Report) -> list[str]:
    """Return the lines about the nodes of a job, none of a report of one node."""
    nodes = _named(report.get("nodes", ()))
    if not nodes:
        return []
    rows = [row for row in nodes if row["reported"]]
    return [
        *_table("node", rows, _NODES),
        _line({name: sum(row[name] for row in rows) for name in _SUMMED}, _NODES),
        *_exchange(report, nodes),
        *missing_lines(nodes),
        *_plain(rows),
        *_breakers(report, nodes),
    ]


def find_node(report: Report, name: str) -> Row:
    """Return what a job's report has of a node, by its name with or without domain.

    Raises:
        UsageError: there is no such node.
    """
    nodes: Sequence[Row] = report.get("nodes") or ()
    for row, short in zip(nodes, _named(nodes), strict=True):
        if name in (row["name"], short["name"]):
            return row
    raise UsageError(f"the report tells of no node {name!r}")


def missing_lines(nodes: Sequence[Row]) -> list[str]:
    """Name the nodes whose figures are in no total, those of one reason together."""
    reasons: dict[str, list[Row]] = {}
    for row in nodes:
        if not row["reported"]:
            reasons.setdefault(row["why"], []).append(row)
    lines = []
    for why, rows in reasons.items():
        line = f"no report of {listed([row['name'] for row in rows], NAMES_MAX)}: {why}"
        if size := sum(row["fetched_from_it_bytes"] for row in rows):
            line += f"; others had {format_size(size)} from there"
        lines.append(line)
    return _told(lines)


def peer_lines(report: Report) -> list[str]:
    """Return the lines about the peers of the one node that reports."""
    rows = _named(report.get("peers", ()))
    if not rows:
        return []
    gone = [row for row in rows if row["standing"] != "joined"]
    return [
        *_table("peer", rows, _PEERS),
        *_told([f"{row['name']}: {row['standing']}" for row in gone]),
    ]


def where(report: Report, holds: Callable[[Row], bool]) -> str:
    """Return on which nodes of a job something holds, for the end of a line."""
    nodes = _named(report.get("nodes", ()))
    names = [row["name"] for row in nodes if row["reported"] and holds(row)]
    if len(names) > 1 and len(names) == sum(row["reported"] for row in nodes):
        return " on every node"
    return f" on {listed(names, NAMES_MAX)}" if names else ""


def extremes(
    rows: Sequence[Row], columns: Sequence[Column], rows_max: int
) -> Sequence[Row]:
    """Return the rows, or of too many those with the least and the most of a column."""
    if len(rows) <= rows_max:
        return rows
    kept: set[int] = set()
    for column in columns:
        values = [column.value(row) for row in rows]
        if min(values) < max(values):
            kept |= {values.index(min(values)), values.index(max(values))}
    return [rows[place] for place in sorted(kept)]


def _named(rows: Sequence[Row]) -> list[Row]:
    names = short_names([row["name"] for row in rows])
    return [{**row, "name": name} for row, name in zip(rows, names, strict=True)]


def _table(kind: str, rows: Sequence[Row], columns: Sequence[Column]) -> list[str]:
    titles = "".join(f"{column.title:>{column.width}}" for column in columns)
    shown = extremes(rows, columns, ROWS_MAX)
    lines = [
        f"  {kind:<{_name_width(columns)}}{titles}",
        *(_line(row, columns) for row in shown),
    ]
    if rest := len(rows) - len(shown):
        between = "lie between these in each column" if shown else "are all alike"
        more = many(rest, f"more {kind}s" if shown else f"{kind}s")
        lines.append(f"  ... {more} {between}; the JSON report has all")
    return lines


def _line(row: Row, columns: Sequence[Column]) -> str:
    width = _name_width(columns)
    cells = (f"{column.text(column.value(row)):>{column.width}}" for column in columns)
    return f"  {fitted(row.get('name', 'all'), width):<{width}}{''.join(cells)}"


def _name_width(columns: Sequence[Column]) -> int:
    return WIDTH - 2 - sum(column.width for column in columns)


def _exchange(report: Report, nodes: Sequence[Row]) -> list[str]:
    exchange, imbalance = report["exchange"], report["imbalance"]
    if not exchange["served_bytes"]:
        return []
    name = nodes[imbalance["busiest"]]["name"]
    return _told(
        [
            f"served to peers: {many(exchange['served_files'], 'files')}, "
            f"{format_size(exchange['served_bytes'])}; the most by {name}, "
            f"{imbalance['served_max_over_mean']:.2f} x the mean"
        ]
    )


def _plain(rows: Sequence[Row]) -> list[str]:
    """Name the nodes that staged nothing, those of one reason together."""
    reasons: dict[str, list[str]] = {}
    for row in rows:
        if row["plain"]:
            reasons.setdefault(row["plain"], []).append(row["name"])
    return _told(
        [
            f"nothing was staged on {listed(names, NAMES_MAX)}: {why}"
            for why, names in reasons.items()
        ]
    )


def _breakers(report: Report, nodes: Sequence[Row]) -> list[str]:
    """Tell of each node that others gave up for a while, the worst first."""
    opened, closed, by = Counter[int](), Counter[int](), Counter[int]()
    names = {row["number"]: row["name"] for row in nodes}
    for event in report["breakers"]:
        opened[event["peer"]] += event["opened"]
        closed[event["peer"]] += event["closed"]
        by[event["peer"]] += 1
    return _told(
        [
            f"breaker of {names.get(number, 'other nodes')} opened "
            f"{many(times, 'times')} on {many(by[number], 'nodes')}"
            + (f", closed again {many(closed[number], 'times')}" * bool(closed[number]))
            for number, times in opened.most_common()
        ]
    )


def _told(lines: Sequence[str]) -> list[str]:
    """Return sentences as indented lines, but not too many of them."""
    told = list(lines)
    if len(told) > LINES_MAX:
        rest = many(len(told) - LINES_MAX + 1, "more such lines")
        told[LINES_MAX - 1 :] = [f"... {rest}; the JSON report has all"]
    return [f"  {line}" for line in told]
