"""A report as text: one headline sentence, then tables and lines of 80 columns."""

from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from monarch.codec import PLAIN
from monarch.metrics import UNITS
from monarch.report.figures import many_writing, unmeasured, with_headline
from monarch.report.format import (
    Part,
    Table,
    listed,
    many,
    percent,
    plain_text,
    room_advice,
)
from monarch.report.large import block_opens, large_lines, large_phrases
from monarch.report.loaders import loader_lines
from monarch.report.model import BLOCKS, POOL, Report, ratio
from monarch.report.node_table import (
    find_node,
    missing_lines,
    node_parts,
    peer_parts,
    served_amount,
    where,
)
from monarch.report.packed import packed_lines
from monarch.units import format_count, format_duration, format_rate, format_size

_INACTIVE_MAX: Final = 10
_CHANGED_MAX: Final = 10
SAVED_MIN_S: Final = 0.1
"""A shorter saved time is not printed: it is within the error of the estimate."""
_NOTE: Final = (
    "  Programs may read less, or more, than the size of the files that they open.",
    "  Bytes that Monarch staged and read from the origin are exact.",
)
_ANSWERS: Final = {
    "hit": "ready on the node",
    "peer_hit": "a peer, while the open waited",
    "packed": "decoded while the open waited",
    "miss": "staged while the open waited",
    "origin": "origin",
}
"""The sources of opens by their names in a node's row; together all of its opens."""


def render(report: Report) -> str:
    """Return the report as plain text, which depends on the report alone."""
    return plain_text(report_parts(report))


def report_parts(report: Report) -> list[Part]:
    """Return the lines and tables of a report."""
    return [
        headline(report),
        *_inactive(report),
        *_late(report["run"]),
        *_ended(report["run"]),
        _sources(report),
        *_lines(report),
        *tier_lines(report),
        *room_advice(report["run"]["bytes"], report["run"].get("room_bytes", 0)),
        *node_parts(report),
        *peer_parts(report),
        *unstaged_lines(report),
        *_passed(report),
        *fallback_lines(report),
        *large_lines(report),
        *_written(report),
        *_errors(report),
        *_elsewhere(report),
        *loader_lines(report),
        *survived_lines(report),
        *_NOTE,
    ]


def headline(report: Report) -> str:
    """Return the sentence that summarizes the report."""
    run, cover, hits = report["run"], report["coverage"], report["hits"]
    start = f"monarch: active in {format_count(cover['active'])} of "
    start += f"{many(cover['processes'], 'processes')}{_extent(report)}; "
    if run["plain"]:
        return f"{start}nothing was staged: {run['plain']}."
    if not hits["opens"] and not block_opens(report):
        how = " for reading" if report.get("opens_for_writing") else ""
        return f"{start}no file of {', '.join(run['datasets'])} was opened{how}."
    found = with_headline(report)["headline"]
    parts = [*_ready(found), *large_phrases(report), _given(found)]
    if writing := many_writing(report):
        parts.append(f"{many(writing, 'opens')} for writing read it, too")
    saved = (found["time_saved"] or {}).get("seconds")
    if saved is not None and saved >= SAVED_MIN_S:
        parts.append(f"about {format_duration(saved)} saved (estimate)")
    return f"{start}{'; '.join(parts)}."


def _ready(found: Mapping[str, Any]) -> list[str]:
    """Return the share of opens that were ready without waiting."""
    if not found["opens"]:
        return []
    share = percent(found["ready_share"])
    verb = "was" if found["opens"] == 1 else "were"
    return [f"{share} of {many(found['opens'], 'opens')} {verb} ready without waiting"]


def _given(found: Mapping[str, Any]) -> str:
    """Return the bytes read from the origin, as a multiple of the dataset if known."""
    times = found["origin_multiple"]
    text = f"{format_size(found['origin_bytes'])} read from the origin"
    if times is not None:
        return f"{text} ({times:.2f} x the dataset)"
    if found["origin_opened_bytes"]:
        direct = found.get("origin_opens")  # unknown in reports of schema 1
        opens = many(direct, "opens") if direct else "some opens"
        text += f", and {opens} read it directly"
    elif found.get("origin_unseen_bytes"):
        text += " and unseen reads"
    return text


def _extent(report: Report) -> str:
    """Return the number of nodes in the report, empty for one node."""
    if nodes := report.get("nodes"):
        reported = sum(row["reported"] for row in nodes)
        missing = f"{format_count(reported)} of " if reported < len(nodes) else ""
        return f" on {missing}{many(len(nodes), 'nodes')}"
    node = report.get("node", {"nodes": 1})
    if node["nodes"] == 1:
        return ""
    return f" on {node['name']}, one of {many(node['nodes'], 'nodes')}"


def _inactive(report: Report) -> list[str]:
    rows = report["coverage"]["inactive"]
    lines = [
        f"  not active in {row['program'] or 'an unknown program'} "
        f"({format_count(row['count'])}): "
        "static, setuid, excluded, disabled, without /proc or with other privileges"
        for row in rows[:_INACTIVE_MAX]
    ]
    if len(rows) > _INACTIVE_MAX:
        rest = many(len(rows) - _INACTIVE_MAX, "more programs")
        lines.append(f"  not active in {rest}")
    if unslotted := report["coverage"]["unslotted"]:
        lines.append(
            f"  {many(unslotted, 'more processes')} could not be tracked; their opens "
            "are counted"
        )
    return lines


def _ended(run: Mapping[str, Any]) -> list[str]:
    """Return the line about a program that has failed."""
    status = run.get("exit_status")
    return [f"  the program ended with exit status {status}"] if status else []


def _late(run: Mapping[str, Any]) -> list[str]:
    """Return the line about programs that started before the Catalog was ready."""
    if not run.get("late_s") or run["plain"]:
        return []
    return [
        f"  programs started {format_duration(run['late_s'])} before the datasets "
        "were indexed"
    ]


def _sources(report: Report) -> Table:
    rows = []
    for row in report["sources"]:
        if row["source"] == POOL and not row["opens"]:
            continue
        size = format_size(row["opened_bytes"])
        if row["kind"] == "outside":
            size = "-"
        rows.append((str(row["source"]), format_count(row["opens"]), size))
    return Table(("source", "opens", "size of files"), (30, 12, 15), tuple(rows))


def _lines(report: Report) -> list[str]:
    metadata = report["metadata"]
    lines = [*_hits(report["hits"]), *_waits(report["waits"])]
    lines += _whole(report["waits"])
    lines += _staged(report["staging"], " per node" if "nodes" in report else "")
    lines.append(_origin(report))
    if metadata["ratio"] is not None:
        lines.append(
            "  stat calls answered without the origin: "
            f"{format_count(metadata['answered'])} ({percent(metadata['ratio'])})"
        )
    return lines


def _hits(hits: dict[str, Any]) -> list[str]:
    if not hits["opens"]:
        return []
    opens = many(hits["opens"], "opens")
    line = f"  ready when opened: {percent(hits['by_opens'])} of {opens}"
    if hits["by_bytes"] is not None:
        line += f", {percent(hits['by_bytes'])} by the size of the files"
    lines = [line]
    if hits.get("peer_by_opens"):
        line = f"  ready on a peer: {percent(hits['peer_by_opens'])} of {opens}"
        if hits["peer_by_bytes"] is not None:
            line += f", {percent(hits['peer_by_bytes'])} by the size of the files"
        lines.append(line)
    return lines


def _waits(waits: dict[str, Any]) -> list[str]:
    total = format_duration(waits["total_s"])
    if waits["count"] < 2:
        return [f"  1 wait for a copy took {total}"] * waits["count"]
    sources = waits.get("by_source", ())
    reads = sum(row["count"] for row in sources if row["source"] == "blocks")
    of_reads = f", {format_count(reads)} of them for parts of large files" * bool(reads)
    parts = [f"p{part} {format_duration(waits[f'p{part}_s'])}" for part in (50, 95, 99)]
    return [
        f"  {many(waits['count'], 'waits')} for copies{of_reads}: {', '.join(parts)}, "
        f"{total} in total"
    ]


def _whole(waits: Mapping[str, Any]) -> list[str]:
    """Return the line about large Files that were staged whole first, if any."""
    opens = waits.get("whole", 0)
    if not opens:
        return []
    line = f"  {many(opens, 'opens')} waited until a large file was staged whole"
    rest = opens - waits["whole_served"]
    return [f"{line}; {format_count(rest)} then read the origin" if rest else line]


def _origin(report: Report) -> str:
    """Return the bytes read from the origin, and the reads that are not measured."""
    line = (
        f"  origin: {format_size(report['origin']['agent_read_bytes'])} read by Monarch"
    )
    if tried := report["agent"].get("tried_bytes"):
        line += f", {format_size(tried)} of it to choose codecs"
    if reads := report.get("reads", {}).get("origin_bytes"):
        line += f", {format_size(reads)} read by programs of large files"
    if others := unmeasured(with_headline(report)):
        line += f"; plus, not counted: {listed(others, len(others))}"
    return line


def _staged(staging: dict[str, Any], each: str) -> list[str]:
    """Return the lines about copies from the origin, from peers and earlier jobs."""
    files, size = many(staging["files"], "files"), format_size(staging["bytes"])
    line = f"  staged: {files}, {size}"
    rate = ""
    if staging["bytes_per_s"]:
        rate = f" at {format_rate(staging['bytes_per_s'])}{each}"
    adopted = ""
    kinds = ("shared", "linked from another"), ("adopted", "adopted from an earlier")
    for kind, text in kinds:
        if count := staging.get(f"{kind}_files"):
            size = format_size(staging[f"{kind}_bytes"])
            adopted += f"; {text} job: {many(count, 'files')}, {size}"
    found = _hinted(staging) + _concurrency(staging.get("concurrency"), each)
    if not staging.get("peer_files"):
        return [f"{line}{rate}{adopted}", *found]
    fetched = many(staging["peer_files"], "files")
    line += f"; from peers: {fetched}, {format_size(staging['peer_bytes'])}"
    return [f"{line}{adopted}", *[f"  copied{rate}"] * bool(rate), *found]


def _hinted(staging: Mapping[str, Any]) -> list[str]:
    """Return the line about Files named by hints, if any."""
    if not staging.get("hinted_files"):
        return []
    files, size = many(staging["hinted_files"], "files"), staging["hinted_bytes"]
    return [f"  read ahead by hints: {files}, {format_size(size)}"]


def _concurrency(fill: Mapping[str, Any] | None, each: str) -> list[str]:
    """Return the line about a concurrency found by measuring; none if it was set."""
    if not fill or not fill["found"]:
        return []
    least, most = fill["least"], fill["most"]
    count = many(most, "files") if least == most else f"{least} to {most} files"
    return [f"  fill: {count} at once{each}, found by measuring the origin"]


def tier_lines(report: Report) -> list[str]:
    """Return a line for each Tier, and for the pool if it was used.

    Several nodes may have a Replica of one File, so Replicas are counted.
    """
    unit = "replicas" if "nodes" in report else "files"
    lines = []
    for number, tier in enumerate(report["tiers"]):
        line = f"  tier {tier['name']}: {format_size(tier['used_bytes'])} of "
        line += f"{format_size(tier['capacity_bytes'])} used by "
        line += many(tier["files"], unit)
        if tier.get("codec", PLAIN) != PLAIN:
            expected = f"{tier['expected_ratio']:.2f} x expected"
            line += f", packed with {tier['codec']} ({expected})"
        if tier.get("lru_files"):
            line += f", {many(tier['lru_files'], unit)} evicted by lru"
        if not tier["in_service"]:
            nodes = where(report, partial(_has_lost, number))
            line += f"; out of service {nodes}".rstrip()
        lines.append(line)
    lines += packed_lines(report.get("packed"))
    transit = report.get("transit")
    if transit and transit["files"]:
        lines.append(
            f"  {POOL} of {format_size(transit['capacity_bytes'])}: "
            f"{many(transit['files'], 'files')}, {format_size(transit['bytes'])}"
        )
    return lines


def _has_lost(number: int, node: Mapping[str, Any]) -> bool:
    tiers = node["tiers"]
    return number < len(tiers) and not tiers[number]["in_service"]


def unstaged_lines(report: Report) -> list[str]:
    """Return the reasons for which Files were not staged."""
    return [
        f"  not staged: {many(row['files'], 'files')}, {format_size(row['bytes'])}: "
        f"{row['reason']}{_example(row)}"
        for row in report["unstaged"]
    ]


def _example(row: Mapping[str, Any]) -> str:
    paths = row.get("examples")
    return f", such as {paths[0]}" if paths else ""


def _passed(report: Report) -> list[str]:
    return [
        f"  {root} is pass-through: a program changed one of its directories, or "
        "thousands of files before they were indexed"
        for root in report["passed_roots"]
    ]


def fallback_lines(report: Report) -> list[str]:
    """Return the reasons for which opens read the Origin."""
    return [
        f"  {many(row['opens'], 'opens')}{row['text'].removeprefix('opens')}"
        for row in report["fallbacks"]
    ]


def _written(report: Report) -> list[str]:
    """Return the line about opens for writing, if they are many."""
    if not (opens := many_writing(report)):
        return []
    return [
        f"  {many(opens, 'opens')} were for writing (such as mode r+b) and read the "
        "origin; open files that are only read in read-only mode"
    ]


def _errors(report: Report) -> list[str]:
    """Return the errors of copies, the most frequent first."""
    return [
        f"  {row['errno']} at {row['operation']} of {many(row['count'], 'copies')}, "
        f"such as {row['example']}"
        for row in report.get("errors", ())[:_CHANGED_MAX]
    ]


def _elsewhere(report: Report) -> list[str]:
    """Return the names to add to datasets, by which programs have opened files."""
    lines = [
        f"  add {row['alias']} to `aliases` of the dataset {row['dataset']}: its files "
        f"were opened by that name, such as {row['example']}"
        if row["alias"]
        else f"  {row['example']} is a file of {row['dataset']}; add the directory "
        "that programs know the dataset by to its `aliases`"
        for row in report.get("elsewhere", ())
    ]
    return list(dict.fromkeys(lines))


def _had_problem(what: str, node: Mapping[str, Any]) -> bool:
    return any(one["what"] == what for one in node["survived"])


def survived_lines(report: Report) -> list[str]:
    """Return the problems that Monarch has handled."""
    shown = {row["cause"] for row in report["fallbacks"]}
    lines = [
        f"  {many(row['count'], UNITS[row['what']])} {row['text']} "
        f"{where(report, partial(_had_problem, row['what']))}".rstrip()
        for row in report["survived"]
        if row["what"] not in shown
    ]
    lines += [f"  changed: {path}" for path in report.get("changed", ())[:_CHANGED_MAX]]
    return lines


# -- one node of a job ----------------------------------------------------------------


def one_node_parts(report: Report, name: str) -> list[Part]:
    """Return the lines and tables about one node of a job.

    Raises:
        UsageError: the report does not contain the node.
    """
    row = find_node(report, name)
    if not row["reported"]:
        return [*missing_lines([row])]
    return [
        _node_headline(row),
        Table(
            ("source", "opens", "", "size of files"),
            (30, 12, 8, 15),
            tuple(_node_source(row, kind) for kind in _ANSWERS) + _node_blocks(row),
        ),
        f"  staged: {_amount(row, 'staged')}; from peers: {_amount(row, 'fetched')}",
        f"  served to peers: {served_amount(row)}",
        f"  origin: {format_size(row['origin_read_bytes'])} read by Monarch, "
        f"{format_size(row['origin_bytes'])} opened by programs",
        *tier_lines(row),
        *peer_parts(row),
        *unstaged_lines(row),
        *fallback_lines(row),
        *survived_lines(row),
    ]


def _node_headline(row: Mapping[str, Any]) -> str:
    start = f"monarch: active in {format_count(row['active'])} of "
    start += f"{many(row['processes'], 'processes')} on {row['name']}"
    return f"{start}; nothing was staged: {row['plain']}." if row["plain"] else start


def _node_source(row: Mapping[str, Any], kind: str) -> tuple[str, ...]:
    opens = row.get(f"{kind}_opens", 0)  # packed ones are missing in older reports
    share = percent(ratio(opens, row["opens"]))
    size = format_size(row.get(f"{kind}_bytes", 0))
    return (_ANSWERS[kind], format_count(opens), share, size)


def _node_blocks(row: Mapping[str, Any]) -> tuple[tuple[str, ...], ...]:
    """Return the row of large files read by block, if a node opened any."""
    if not row.get("block_opens"):
        return ()
    opens, size = format_count(row["block_opens"]), format_size(row["block_bytes"])
    return ((BLOCKS, opens, percent(None), size),)


def _amount(row: Mapping[str, Any], what: str) -> str:
    files, size = row[f"{what}_files"], row[f"{what}_bytes"]
    return f"{many(files, 'files')}, {format_size(size)}"
