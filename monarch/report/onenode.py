"""What the report of a job tells of one of its nodes, and of that one's peers."""

from collections.abc import Mapping
from typing import Any, Final

from monarch.report.format import folded, many, percent
from monarch.report.model import Report
from monarch.report.nodes import find_node, missing_lines, peer_lines
from monarch.report.summarize import ratio
from monarch.report.text import (
    fallback_lines,
    survived_lines,
    tier_lines,
    unstaged_lines,
)
from monarch.units import format_count, format_size

Row = Mapping[str, Any]

_ANSWERS: Final = {
    "hit": "ready on the node",
    "peer_hit": "a peer, while the open waited",
    "miss": "staged while the open waited",
    "origin": "origin",
}


def render_node(report: Report, name: str) -> str:
    """Return the text about one node of a job.

    Raises:
        UsageError: the job had no such node.
    """
    row = find_node(report, name)
    lines = _lines(row) if row["reported"] else missing_lines([row])
    return "\n".join(part for line in lines for part in folded(line)) + "\n"


def _lines(row: Row) -> list[str]:
    return [
        _headline(row),
        f"  {'source':<30}{'opens':>12}{'':>8}{'opened bytes':>15}",
        *(_source(row, kind, words) for kind, words in _ANSWERS.items()),
        f"  staged: {_amount(row, 'staged')}; from peers: {_amount(row, 'fetched')}",
        f"  served to peers: {_amount(row, 'served')}",
        f"  origin: {format_size(row['origin_read_bytes'])} read by Monarch, "
        f"{format_size(row['origin_bytes'])} opened by programs",
        *tier_lines(row),
        *peer_lines(row),
        *unstaged_lines(row),
        *fallback_lines(row),
        *survived_lines(row),
    ]


def _headline(row: Row) -> str:
    start = f"monarch: active in {format_count(row['active'])} of "
    start += f"{many(row['processes'], 'processes')} on {row['name']}"
    return f"{start}; nothing was staged: {row['plain']}." if row["plain"] else start


def _source(row: Row, kind: str, words: str) -> str:
    opens, size = row[f"{kind}_opens"], format_size(row[f"{kind}_bytes"])
    share = percent(ratio(opens, row["opens"]))
    return f"  {words:<30}{format_count(opens):>12}{share:>8}{size:>15}"


def _amount(row: Row, what: str) -> str:
    files, size = row[f"{what}_files"], row[f"{what}_bytes"]
    return f"{many(files, 'files')}, {format_size(size)}"
