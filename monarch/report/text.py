"""A report for people: one headline sentence, then tables that fit a terminal."""

from typing import Any

from monarch.metrics import UNITS
from monarch.report.model import Report
from monarch.units import format_count, format_duration, format_rate, format_size

_INACTIVE_MAX = 10
_CHANGED_MAX = 10
_NOTE = (
    "  Opens are counted with the sizes of the files opened; reads on them are not "
    "seen.\n  Bytes staged and read from the origin by Monarch are exact."
)


def render(report: Report) -> str:
    """Return the report as text; the same report gives the same text."""
    parts = [
        headline(report),
        *_inactive(report),
        _sources(report),
        *_lines(report),
        *_tiers(report),
        *_unstaged(report),
        *_fallbacks(report),
        *_survived(report),
        _NOTE,
    ]
    return "\n".join(parts) + "\n"


def headline(report: Report) -> str:
    """Return the one sentence that says whether it worked."""
    run, cover, hits = report["run"], report["coverage"], report["hits"]
    start = f"monarch: active in {_n(cover['active'])} of {_n(cover['processes'])} "
    start += "process; " if cover["processes"] == 1 else "processes; "
    if run["plain"]:
        return f"{start}nothing was staged: {run['plain']}."
    if not hits["opens"]:
        return f"{start}no file of {', '.join(run['datasets'])} was opened."
    names = [tier["name"] for tier in report["tiers"]]
    share = hits["local_by_bytes"]
    part = f"{_percent(share)} of {format_size(hits['opened_bytes'])}"
    if share is None:
        part = f"{_percent(hits['local_by_opens'])} of {_n(hits['opens'])} opens"
    read = format_size(report["origin"]["agent_read_bytes"])
    return f"{start}{part} came from {' and '.join(names)}, staged by reading {read}."


def _inactive(report: Report) -> list[str]:
    rows = report["coverage"]["inactive"]
    lines = [
        f"  not active in {row['program'] or 'an unknown program'} "
        f"({_n(row['count'])}): static, set-uid, or with a cleared environment"
        for row in rows[:_INACTIVE_MAX]
    ]
    if len(rows) > _INACTIVE_MAX:
        lines.append(f"  not active in {_n(len(rows) - _INACTIVE_MAX)} more programs")
    if report["coverage"]["unslotted"]:
        lines.append(
            f"  {_n(report['coverage']['unslotted'])} more processes found no slot; "
            "their opens are counted, they are not"
        )
    return lines


def _sources(report: Report) -> str:
    lines = [f"  {'source':<30}{'opens':>12}{'opened bytes':>15}"]
    for row in report["sources"]:
        size = format_size(row["opened_bytes"])
        if row["kind"] == "outside":
            size = "-"
        lines.append(f"  {row['source']:<30}{_n(row['opens']):>12}{size:>15}")
    return "\n".join(lines)


def _lines(report: Report) -> list[str]:
    hits, waits, staging = report["hits"], report["waits"], report["staging"]
    origin, metadata = report["origin"], report["metadata"]
    lines = []
    if hits["opens"]:
        lines.append(
            f"  ready when opened: {_percent(hits['by_opens'])} of opens, "
            f"{_percent(hits['by_bytes'])} of bytes"
        )
    if waits["count"]:
        lines.append(
            f"  cold opens waited: p50 {format_duration(waits['p50_s'])}, "
            f"p95 {format_duration(waits['p95_s'])}, "
            f"p99 {format_duration(waits['p99_s'])}, "
            f"{format_duration(waits['total_s'])} in all"
        )
    lines.append(_staged(staging))
    lines.append(
        f"  origin: {format_size(origin['agent_read_bytes'])} read by Monarch, "
        f"{format_size(origin['programs_opened_bytes'])} opened by programs, "
        f"{_signed_size(origin['avoided_bytes'])} avoided"
    )
    if metadata["ratio"] is not None:
        lines.append(
            f"  stat calls answered without the origin: {_n(metadata['answered'])} "
            f"({_percent(metadata['ratio'])})"
        )
    return lines


def _staged(staging: dict[str, Any]) -> str:
    line = f"  staged: {_n(staging['files'])} files, {format_size(staging['bytes'])}"
    if staging["bytes_per_s"]:
        line += f" at {format_rate(staging['bytes_per_s'])}"
    if staging["adopted_files"]:
        line += (
            f"; taken over from an earlier job: {_n(staging['adopted_files'])} files, "
            f"{format_size(staging['adopted_bytes'])}"
        )
    return line


def _tiers(report: Report) -> list[str]:
    return [
        f"  tier {tier['name']}: {format_size(tier['used_bytes'])} of "
        f"{format_size(tier['capacity_bytes'])} used by {_n(tier['files'])} "
        f"{_one(tier['files'], 'files')}"
        + ("" if tier["in_service"] else "; lost, out of service")
        for tier in report["tiers"]
    ]


def _unstaged(report: Report) -> list[str]:
    return [
        f"  not staged: {_n(row['files'])} files, {format_size(row['bytes'])}: "
        f"{row['reason']}"
        for row in report["unstaged"]
    ]


def _fallbacks(report: Report) -> list[str]:
    return [
        f"  {_n(row['opens'])} {_one(row['opens'], 'opens')}"
        f"{row['text'].removeprefix('opens')}"
        for row in report["fallbacks"]
    ]


def _survived(report: Report) -> list[str]:
    shown = {row["cause"] for row in report["fallbacks"]}
    lines = [
        f"  survived: {_n(row['count'])} {_one(row['count'], UNITS[row['what']])} "
        f"{row['text']}"
        for row in report["survived"]
        if row["what"] not in shown
    ]
    lines += [f"  changed: {path}" for path in report["changed"][:_CHANGED_MAX]]
    return lines


def _n(count: int) -> str:
    return format_count(count)


def _one(count: int, units: str) -> str:
    return units.removesuffix("s") if count == 1 else units


def _percent(part: float | None) -> str:
    """Never 100% of what is not all."""
    if part is None:
        return "-"
    text = f"{100 * part:.1f}%"
    return "99.9%" if text == "100.0%" and part < 1 else text


def _signed_size(size: int) -> str:
    return f"-{format_size(-size)}" if size < 0 else format_size(size)
