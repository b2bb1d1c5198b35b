"""The top of the page: the verdict, the problems, and the large figures."""

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from monarch.report.figures import Figure, figure, figure_of, get, unmeasured
from monarch.report.format import listed, many
from monarch.report.html.blocks import Tile, short
from monarch.report.large import block_opens, large_phrases
from monarch.report.model import NO_ROOM, Report
from monarch.report.node_table import missing_lines
from monarch.report.staged import is_staging

_SIGNALLED: Final = 128


class Verdict(NamedTuple):
    """The verdict on a run.

    Attributes:
        level: good, fair or bad.
        parts: sentences and figures in their order.
        troubles: one line for each problem.
    """

    level: str
    parts: tuple[str | Figure, ...]
    troubles: tuple[str, ...]


def verdict(report: Report) -> Verdict:
    """Return the verdict on a report."""
    troubles = _troubles(report)
    level = "fair" if troubles else "good"
    if _failed(report) or get(report, "run.plain") or not _has_worked(report):
        level = "bad"
    return Verdict(level, (*_coverage(report), *_result(report)), tuple(troubles))


def _has_worked(report: Report) -> bool:
    """Return whether Monarch was active, or staged without programs."""
    return is_staging(report) or bool(get(report, "coverage.active"))


def _failed(report: Report) -> bool:
    return bool(get(report, "run.exit_status"))


def _coverage(report: Report) -> list[str | Figure]:
    if is_staging(report):
        return [
            "Staged ",
            figure(report, "share.ready_files"),
            " copies of ",
            figure(report, "run.files"),
            " files without programs. ",
        ]
    nodes = report.get("nodes")
    where = f" on {many(len(nodes), 'nodes')}" if nodes else ""
    return [
        "Active in ",
        figure(report, "coverage.active"),
        " of ",
        figure(report, "coverage.processes"),
        f" processes{where}. ",
    ]


def _result(report: Report) -> list[str | Figure]:
    if reason := get(report, "run.plain"):
        return [f"Nothing was staged: {short(reason)}."]
    parts: list[str | Figure] = []
    if get(report, "headline.opens"):
        parts += [
            figure(report, "headline.ready_share"),
            " of ",
            figure(report, "headline.opens"),
            " opens were ready without waiting. ",
        ]
    parts += [f"{phrase}. " for phrase in large_phrases(report)]
    parts += _origin(report)
    if saved := get(report, "headline.time_saved.seconds"):
        name = "headline.time_saved.seconds"
        parts += [
            " It saved about ",
            figure_of(saved, "duration", name),
            " (estimate).",
        ]
    return parts


def _origin(report: Report) -> list[str | Figure]:
    for name, most in (("origin_multiple", ""), ("origin_multiple_max", "at most ")):
        if get(report, f"headline.{name}") is not None:
            multiple = figure(report, f"headline.{name}")
            return [f"Read from the origin: {most}", multiple, " the dataset."]
    return ["Read from the origin: ", figure(report, "headline.origin_bytes"), "."]


def _troubles(report: Report) -> list[str]:
    found = [trouble for rule in _TROUBLES if (trouble := rule(report))]
    nodes = report.get("nodes") or ()
    found += [_sentence(line) for line in missing_lines(nodes)]
    return found


def _sentence(line: str) -> str:
    text = short(line.strip())
    return f"{text[:1].upper()}{text[1:]}."


def _exit(report: Report) -> str:
    status = get(report, "run.exit_status")
    if not status:
        return ""
    if status > _SIGNALLED:
        return f"The program was ended by signal {status - _SIGNALLED}."
    return f"The program ended with exit status {status}."


def _unopened(report: Report) -> str:
    if is_staging(report) or get(report, "run.plain"):
        return ""
    if not get(report, "run.files"):
        return "The datasets hold no file that is to be staged."
    if get(report, "headline.opens") or block_opens(report):
        return ""
    return (
        "No file of the datasets was opened. If the programs use another path of them, "
        "name it in aliases."
    )


def _inactive(report: Report) -> str:
    active, all_of = get(report, "coverage.active"), get(report, "coverage.processes")
    if not all_of or active == all_of:
        return ""
    return f"Monarch was not active in {many(all_of - active, 'processes')}."


def _cut(report: Report) -> str:
    if get(report, "run.complete", True):
        return ""
    return "The report was made before the job had ended."


def _short_of_room(report: Report) -> str:
    files = get(report, "share.unplaced_files", 0)
    if not report.get("nodes"):  # a single node does not plan
        left = (row for row in get(report, "unstaged", ()) if row["reason"] == NO_ROOM)
        files = max(files, sum(row["files"] for row in left))
    return f"No tier had room for {many(files, 'files')}." if files else ""


def _out_of_service(report: Report) -> str:
    lost = [
        short(tier["name"])
        for tier in report.get("tiers") or ()
        if not tier["in_service"]
    ]
    return f"Out of service: tier {' and '.join(lost)}." if lost else ""


def _erred(report: Report) -> str:
    rows = report.get("errors") or ()
    count = sum(row["count"] for row in rows)
    return f"{many(count, 'errors')} of the origin; they are listed below." * bool(
        count
    )


def _through(report: Report) -> str:
    roots = report.get("passed_roots") or ()
    if not roots:
        return ""
    return f"{short(roots[0])} became pass-through: a program wrote in it."


_TROUBLES: Final[tuple[Callable[[Report], str], ...]] = (
    _exit,
    _inactive,
    _unopened,
    _cut,
    _short_of_room,
    _out_of_service,
    _erred,
    _through,
)


# -- the large figures ----------------------------------------------------------------


def tiles(report: Report) -> list[Tile]:
    """Return the six figures that summarize the run."""
    return [
        _ready(report),
        _from_origin(report),
        _saved(report),
        Tile("waited for files", figure(report, "waits.total_s"), _wait_notes(report)),
        Tile("staged", figure(report, "staging.bytes"), _staging_notes(report)),
        Tile("run time", figure(report, "run.seconds"), _run_notes(report)),
    ]


def _ready(report: Report) -> Tile:
    label, opens = "opens ready without waiting", figure(report, "headline.opens")
    blocks = block_opens(report)
    others = f"; {many(blocks, 'others')} read large files by block" * bool(blocks)
    if not opens.value:
        none = Figure("-", None, "headline.ready_share")
        return Tile(label, none, (opens, f" opens of dataset files{others}"))
    notes = ("of ", opens, f" opens of dataset files{others}")
    return Tile(label, figure(report, "headline.ready_share"), notes)


def _from_origin(report: Report) -> Tile:
    """Return the bytes read from the origin, or only the measured ones."""
    notes: list[str | Figure] = []
    for name, most in (("origin_multiple", ""), ("origin_multiple_max", "at most ")):
        if get(report, f"headline.{name}") is not None:
            notes += [most, figure(report, f"headline.{name}"), " the dataset of "]
            notes.append(figure(report, "run.bytes"))
            break
    others = unmeasured(report)
    if not others:
        value = figure(report, "headline.origin_bytes")
        return Tile("read from the origin", value, tuple(notes))
    if get(report, "reads.origin_bytes"):
        read = figure(report, "reads.origin_bytes")
        notes += ["; " * bool(notes), read, " by programs of large files"]
    notes += ["; " * bool(notes), f"plus, not counted: {listed(others, len(others))}"]
    value = figure(report, "origin.agent_read_bytes")
    return Tile("read from the origin by Monarch", value, tuple(notes))


def _saved(report: Report) -> Tile:
    saved: Mapping[str, Any] = get(report, "headline.time_saved") or {}
    name = "headline.time_saved"
    notes: tuple[str | Figure, ...] = (short(saved.get("reason") or "not measured"),)
    if saved.get("seconds") is not None:
        notes = (
            figure(report, f"{name}.avoided_bytes"),
            " not asked of the origin, at its ",
            figure(report, f"{name}.origin_bytes_per_s"),
            ", less ",
            figure(report, f"{name}.startup_s"),
            " of start-up and what ",
            figure(report, f"{name}.waits_s"),
            " of waits exceed the origin's own time",
        )
    path = f"{name}.seconds" if "seconds" in saved else ""
    value = figure_of(saved.get("seconds"), "duration", path)
    return Tile("saved (estimate)", value, notes)


def _wait_notes(report: Report) -> tuple[str | Figure, ...]:
    if not get(report, "waits.count"):
        return ("no open or read waited",)
    return (
        figure(report, "waits.count"),
        " waits for copies; half took less than ",
        figure(report, "waits.p50_s"),
        ", 99% less than ",
        figure(report, "waits.p99_s"),
    )


def _staging_notes(report: Report) -> tuple[str | Figure, ...]:
    notes: list[str | Figure] = [figure(report, "staging.files"), " files"]
    if get(report, "staging.bytes_per_s"):
        each = " per node" if report.get("nodes") else ""
        notes += [" at ", figure(report, "staging.bytes_per_s"), each]
    if get(report, "staging.peer_bytes"):
        notes += ["; ", figure(report, "staging.peer_bytes"), " from peers"]
    if get(report, "staging.adopted_bytes"):
        adopted = figure(report, "staging.adopted_bytes")
        notes += ["; ", adopted, " adopted from an earlier job"]
    return tuple(notes)


def _run_notes(report: Report) -> tuple[str | Figure, ...]:
    notes: list[str | Figure] = []
    for name, before, after in (
        ("run.startup_s", "", " of start-up"),
        ("run.agent_cpu_s", "", " CPU time of Monarch"),
        ("run.agent_rss_max_bytes", "", " of memory"),
    ):
        if get(report, name) is not None:
            notes += [", " if notes else before, figure(report, name), after]
    return tuple(notes)
