"""The part of a text report about the nodes of a job: a table, and problems."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from monarch.errors import UsageError
from monarch.report.format import (
    WIDTH,
    Part,
    Table,
    fitted,
    listed,
    many,
    percent,
    short_names,
)
from monarch.report.model import Report
from monarch.units import format_count, format_size

# With more nodes, the table shows those with the extremes of each column.
ROWS_MAX: Final = 16
NAMES_MAX: Final = 4
LINES_MAX: Final = 8

Row = Mapping[str, Any]


class Column(NamedTuple):
    """One column of a table, with the values that determine the extremes."""

    title: str
    width: int
    value: Callable[[Row], float]
    text: Callable[[float], str]


def _of(name: str) -> Callable[[Row], float]:
    return lambda row: row[name]


def _share(part: str, whole: str) -> Callable[[Row], float]:
    return lambda row: row[part] / row[whole] if row[whole] else 0.0


def _count(value: float) -> str:
    """Return a count, in millions if it does not fit its column."""
    whole = format_count(int(value))
    return whole if value < 1e9 else f"{format_count(round(value / 1e6))} M"


_NODES: Final = (
    Column("opens", 11, _of("opens"), _count),
    Column("ready", 7, _share("hit_opens", "opens"), percent),
    Column("peers", 7, _share("peer_hit_opens", "opens"), percent),
    Column("origin", 11, _of("origin_read_bytes"), format_size),
    Column("fetched", 11, _of("fetched_bytes"), format_size),
    Column("served", 11, _of("served_bytes"), format_size),
    Column("full", 7, _share("used_bytes", "capacity_bytes"), percent),
)
# The figures that are summed over all nodes.
_SUMMED: Final = (
    *("opens", "hit_opens", "peer_hit_opens", "origin_read_bytes"),
    *("fetched_bytes", "served_bytes", "used_bytes", "capacity_bytes"),
)
_PEERS: Final = (
    Column("fetched", 12, _of("fetched_bytes"), format_size),
    Column("served", 12, _of("served_bytes"), format_size),
    Column("failed", 9, _of("fetch_failures"), _count),
    Column("suspended", 11, _of("breaker_opened"), _count),
)


def node_parts(report: Report) -> list[Part]:
    """Return the part about the nodes of a job; it is empty for one node."""
    nodes = _named(report.get("nodes", ()))
    if not nodes:
        return []
    rows = [row for row in nodes if row["reported"]]
    return [
        *_table("node", rows, _NODES, total=True),
        *_exchange(report, nodes),
        *missing_lines(nodes),
        *_plain(rows),
        *_breakers(report, nodes),
    ]


def find_node(report: Report, name: str) -> Row:
    """Return the row of a node in a job's report by name, with or without domain.

    Raises:
        UsageError: the report does not contain the node.
    """
    nodes: Sequence[Row] = report.get("nodes") or ()
    for row, short in zip(nodes, _named(nodes), strict=True):
        if name in (row["name"], short["name"]):
            return row
    raise UsageError(f"the report does not contain node {name!r}")


def missing_lines(nodes: Sequence[Row]) -> list[str]:
    """Return lines with the nodes without a report, by reason."""
    reasons: dict[str, list[Row]] = {}
    for row in nodes:
        if not row["reported"]:
            reasons.setdefault(row["why"], []).append(row)
    lines = []
    for why, rows in reasons.items():
        names = listed([row["name"] for row in rows], NAMES_MAX)
        line = f"no report from {names}: {why}"
        if size := sum(row["fetched_from_it_bytes"] for row in rows):
            line += f"; peers fetched {format_size(size)} from there"
        lines.append(line)
    return _limited(lines)


def peer_parts(report: Report) -> list[Part]:
    """Return the part about the peers of the reporting node."""
    rows = _named(report.get("peers", ()))
    if not rows:
        return []
    gone = [row for row in rows if row["standing"] != "joined"]
    return [
        *_table("peer", rows, _PEERS),
        *_limited([f"{row['name']}: {row['standing']}" for row in gone]),
    ]


def where(report: Report, applies: Callable[[Row], bool]) -> str:
    """Return the nodes to which a predicate applies, as `on n1 and n2`."""
    nodes = _named(report.get("nodes", ()))
    names = [row["name"] for row in nodes if row["reported"] and applies(row)]
    if len(names) > 1 and len(names) == sum(row["reported"] for row in nodes):
        return "on every node"
    return f"on {listed(names, NAMES_MAX)}" if names else ""


def extremes(
    rows: Sequence[Row], columns: Sequence[Column], rows_max: int
) -> Sequence[Row]:
    """Return all rows or, if too many, those with the extremes of each column."""
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


def _table(
    kind: str, rows: Sequence[Row], columns: Sequence[Column], *, total: bool = False
) -> list[Part]:
    shown = extremes(rows, columns, ROWS_MAX)
    cells = [_cells(row, columns) for row in shown]
    if total:
        sums = {name: sum(row[name] for row in rows) for name in _SUMMED}
        cells.append(_cells(sums, columns))
    table = Table(
        (kind, *(column.title for column in columns)),
        (_name_width(columns), *(column.width for column in columns)),
        tuple(cells),
    )
    rest = len(rows) - len(shown)
    if not rest:
        return [table]
    between = "are between these in each column" if shown else "are all alike"
    more = many(rest, f"more {kind}s" if shown else f"{kind}s")
    return [table, f"  ... {more} {between}; the JSON report has all"]


def _cells(row: Row, columns: Sequence[Column]) -> tuple[str, ...]:
    name = fitted(row.get("name", "all"), _name_width(columns))
    return (name, *(column.text(column.value(row)) for column in columns))


def _name_width(columns: Sequence[Column]) -> int:
    return WIDTH - 2 - sum(column.width for column in columns)


def served_amount(row: Row) -> str:
    """Return the amount served to peers: whole Files, and ranges of large Files."""
    files, ranges = row["served_files"], row.get("served_ranges", 0)  # older: none
    parts = [many(files, "files")] if files or not ranges else []
    parts += [f"{many(ranges, 'ranges')} of large files"] if ranges else []
    return ", ".join([*parts, format_size(row["served_bytes"])])


def _exchange(report: Report, nodes: Sequence[Row]) -> list[str]:
    exchange, imbalance = report["exchange"], report["imbalance"]
    if not exchange["served_bytes"]:
        return []
    name = nodes[imbalance["busiest"]]["name"]
    return _limited(
        [
            f"served to peers: {served_amount(exchange)}; most by {name} "
            f"({imbalance['served_max_over_mean']:.2f} x the mean)"
        ]
    )


def _plain(rows: Sequence[Row]) -> list[str]:
    """Return lines with the nodes that staged nothing, by reason."""
    reasons: dict[str, list[str]] = {}
    for row in rows:
        if row["plain"]:
            reasons.setdefault(row["plain"], []).append(row["name"])
    return _limited(
        [
            f"nothing was staged on {listed(names, NAMES_MAX)}: {why}"
            for why, names in reasons.items()
        ]
    )


def _breakers(report: Report, nodes: Sequence[Row]) -> list[str]:
    """Return a line for each node that peers suspended, the worst first."""
    opened, closed, by = Counter[int](), Counter[int](), Counter[int]()
    names = {row["number"]: row["name"] for row in nodes}
    for event in report["breakers"]:
        opened[event["peer"]] += event["opened"]
        closed[event["peer"]] += event["closed"]
        by[event["peer"]] += 1
    return _limited(
        [
            f"{names.get(number, 'other nodes')} suspended {many(times, 'times')} by "
            f"{many(by[number], 'nodes')}"
            + (f", resumed {many(closed[number], 'times')}" * bool(closed[number]))
            for number, times in opened.most_common()
        ]
    )


def _limited(lines: Sequence[str]) -> list[str]:
    """Return indented lines; a long list is shortened."""
    kept = list(lines)
    if len(kept) > LINES_MAX:
        rest = many(len(kept) - LINES_MAX + 1, "more lines")
        kept[LINES_MAX - 1 :] = [f"... {rest}; the JSON report has all"]
    return [f"  {line}" for line in kept]
