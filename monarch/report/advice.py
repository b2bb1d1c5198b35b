"""Advice on a report: the change to make, and the figure that suggests it."""

import json
import math
import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from monarch.report.figures import Figure, figure, figure_of, get, with_headline
from monarch.report.format import ROOM_RATIO_MAX, many
from monarch.report.model import NO_ROOM, Report
from monarch.units import exact_size, format_count, format_size

ADVICE_MAX: Final = 3
# Below these shares a figure triggers no advice.
_OPENS_SHARE: Final = 0.01
_WAIT_SHARE: Final = 0.05
_READY_SHARE: Final = 0.9
_REREAD_MULTIPLE: Final = 1.2
_GIB: Final = 1 << 30


class Advice(NamedTuple):
    """One piece of advice.

    Attributes:
        text: one or two sentences: the problem and its remedy.
        label: the meaning of the figure.
        figure: the figure of the report that triggered the advice.
        line: the line of the configuration, or of the job script, to change.
    """

    text: str
    label: str
    figure: Figure
    line: str


def advise(report: Report, most: int = ADVICE_MAX) -> list[Advice]:
    """Return the advice that a report triggers, the most important first.

    A report may lack any section; unknown figures trigger nothing.
    """
    report = with_headline(report)
    if get(report, "run.plain"):
        return []  # nothing was staged: the report has the reason
    found = (rule(report) for rule in _RULES)
    return [advice for advice in found if advice is not None][:most]


def _number(report: Report, path: str) -> float:
    """Return a figure, 0 if it is missing or unknown."""
    value = get(report, path)
    return value if isinstance(value, int | float) else 0


def _nodes(report: Report) -> int:
    return max(1, len(report.get("nodes") or ()))


def _setting(report: Report, path: str) -> Any:
    return get(report, f"run.config.{path}")


def _inactive(report: Report) -> Advice | None:
    rows: Sequence[Mapping[str, Any]] = get(report, "coverage.inactive", ())
    count = sum(row["count"] for row in rows)
    if not count:
        return None
    program = rows[0]["program"] or "a program"
    return Advice(
        f"Monarch was not active in {many(count, 'processes')}, such as {program}, "
        "which read the origin. A dynamically linked program is covered if it gets "
        "the environment of the job, and sees /dev/shm of the node.",
        f"processes with Monarch active, of {get(report, 'coverage.processes'):,}",
        figure(report, "coverage.active"),
        "srun --export=ALL monarch run ...   # containers: bind /dev/shm, keep env",
    )


def _no_room(report: Report) -> Advice | None:
    left = _number(report, "share.partly_left_bytes")
    # A single node does not plan: it detects the lack of space during staging.
    left += sum(
        row["bytes"]
        for row in get(report, "unstaged", ())
        if row["reason"] == NO_ROOM and _nodes(report) == 1
    )
    lacking = left + _number(report, "share.unplaced_bytes")
    if not lacking:
        return None
    each = math.ceil(lacking * 1.05 / _nodes(report) / _GIB) * _GIB
    where = " on each node" if _nodes(report) > 1 else ""
    text = f"{format_size(lacking)} of the datasets had no room in any tier. "
    if _setting(report, "peers.mode") == "replicate" and _nodes(report) > 1:
        return Advice(
            f"{text}One copy in the job, instead of one on every node, needs less.",
            "without room",
            figure_of(lacking, "size", "" if left else "share.unplaced_bytes"),
            "peers: {mode: partition}",
        )
    return Advice(
        f"{text}Add {format_size(each)}{where}, such as a local SSD.",
        "without room",
        figure_of(lacking, "size", "" if left else "share.unplaced_bytes"),
        f"- {{name: ssd, kind: ssd, path: /local, capacity: {exact_size(each)}}}"
        "   # one more row of tiers",
    )


def _other_path(report: Report) -> Advice | None:
    if not _number(report, "counters.opens_elsewhere"):
        return None
    return Advice(
        "Programs opened files of a dataset by another path, such as a symbolic link "
        "or a bind mount, and read the origin. Name that path.",
        "opens by an unknown path, in a sample",
        figure(report, "counters.opens_elsewhere"),
        f"- {{path: {json.dumps(_dataset(report))}, aliases: [/OTHER/PATH]}}"
        "   # the row of datasets",
    )


def _dataset(report: Report) -> str:
    datasets = get(report, "run.datasets", ())
    return datasets[0] if datasets else "DATASET"


def _quoted(report: Report) -> str:
    return shlex.quote(_dataset(report))


def _for_writing(report: Report) -> Advice | None:
    name = "opens_for_writing" if "opens_for_writing" in report else ""
    count = _number(report, name) if name else 0
    opens = _number(report, "headline.opens")
    if count <= _OPENS_SHARE * (opens + count):
        return None
    return Advice(
        "Programs opened files of the datasets for writing, so they read the origin. "
        "Open files that are only read in read-only mode.",
        "opens for writing",
        figure(report, name),
        'open(path, "rb")   # in the program, instead of "r+b"; h5py: mode="r"',
    )


def _passed_root(report: Report) -> Advice | None:
    roots = report.get("passed_roots") or ()
    if not roots:
        return None
    return Advice(
        f"A program wrote in {roots[0]}, which was read from the origin from then on. "
        "Write results to another directory.",
        "datasets that became pass-through",
        figure_of(len(roots), "count"),
        f"# in the job script: write to a directory outside of {roots[0]}",
    )


def _late_catalog(report: Report) -> Advice | None:
    early = _number(report, "counters.origin_early")
    opens = _number(report, "headline.opens")
    if early <= _OPENS_SHARE * opens:
        return None
    longer = math.ceil(_number(report, "run.late_s") + 10)
    return Advice(
        f"{format_count(int(early))} opens came before the datasets were indexed. "
        "Index them once before the job, or wait longer for the scan.",
        "opens before the datasets were indexed",
        figure(report, "counters.origin_early"),
        f"catalog: {{wait_max: {longer}s}}   # or: monarch index {_quoted(report)}",
    )


def _evicted(report: Report) -> Advice | None:
    if not _number(report, "agent.evicted_bytes"):
        return None
    tiers = [tier for tier in report.get("tiers") or () if "ram" in tier["kind"]]
    used = sum(tier["used_bytes"] for tier in tiers) // _nodes(report)
    fits = max(used // _GIB, 1) * _GIB
    return Advice(
        "Files were evicted from memory because the job came near its memory "
        "limit. A smaller RAM tier leaves that memory to the programs from the start.",
        "removed again",
        figure(report, "agent.evicted_bytes"),
        f"- {{name: ram, kind: ram, capacity: {exact_size(fits)}}}"
        "   # the row of tiers",
    )


def _reread(report: Report) -> Advice | None:
    multiple = _number(report, "headline.origin_multiple")
    if _nodes(report) < 2 or multiple <= _REREAD_MULTIPLE:
        return None
    off = _setting(report, "peers.mode") == "off"
    reason = (
        "every node reads for itself" if off else "nodes could not fetch all from peers"
    )
    return Advice(
        f"The origin was read {multiple:.2f} times, because {reason}.",
        "read from the origin, in sizes of the dataset",
        figure(report, "headline.origin_multiple"),
        "peers: {mode: auto}" if off else "peers: {interface: ib0, timeout: 5s}",
    )


def _large_through(report: Report) -> Advice | None:
    name = "fallbacks.origin_large.opens"
    count = _number(report, name)
    opens = _number(report, "headline.opens")
    if count <= _OPENS_SHARE * opens or _setting(report, "cold_open.mode") == "auto":
        return None
    return Advice(
        "Opens of files that were not staged yet read the origin instead of waiting.",
        "opens that did not wait",
        figure(report, name),
        "cold_open: {mode: auto}",
    )


def _mapped(report: Report) -> Advice | None:
    count = _number(report, "counters.origin_whole")
    if count <= _OPENS_SHARE * _number(report, "headline.opens"):
        return None
    return Advice(
        "Files that programs map into memory were larger than "
        "cold_open.wait_max_whole, so their first opens read the origin. Permit longer "
        "waits, or stage first.",
        "opens of mapped files that read the origin",
        figure(report, "counters.origin_whole"),
        "cold_open: {wait_max_whole: 64GiB}",
    )


def _waited(report: Report) -> Advice | None:
    waited = _number(report, "waits.total_s")
    processes = max(1, _number(report, "coverage.processes"))
    if waited <= _WAIT_SHARE * processes * _number(report, "run.seconds"):
        return None
    parts: tuple[str, str]
    if _setting(report, "fill.enabled") is False:
        parts = "Background fill is off: let it stage ahead.", "fill: {enabled: true}"
    elif _setting(report, "fill.bandwidth") not in (None, "unlimited"):
        parts = (
            "The rate of background fill is limited; raise it if the origin permits.",
            "fill: {bandwidth: unlimited}",
        )
    elif _setting(report, "fill.concurrency") not in (None, "auto"):
        parts = (
            "The number of copies at once is fixed; let Monarch find it.",
            "fill: {concurrency: auto}",
        )
    else:
        parts = (
            "Stage before the programs start, or keep the copies for the next job.",
            "retain: 7d   # and: monarch stage -c CONFIG, before the job",
        )
    return Advice(
        f"Programs waited for files that were not staged yet. {parts[0]}",
        "waited, all processes together",
        figure(report, "waits.total_s"),
        parts[1],
    )


def _one_pass(report: Report) -> Advice | None:
    passes = report.get("passes")
    share = get(report, "headline.ready_share")
    if not passes or len(passes) > 1 or share is None or share >= _READY_SHARE:
        return None
    if not _number(report, "staging.files"):
        return None
    return Advice(
        "The programs read the dataset only once: staged files served no second "
        "pass. Keep the copies for the next job on these nodes.",
        "opens ready without waiting",
        figure(report, "headline.ready_share"),
        "retain: 7d",
    )


def _slow_peers(report: Report) -> Advice | None:
    if not _number(report, "agent.breakers_opened"):
        return None
    return Advice(
        "Nodes stopped asking a peer for a while, because it failed or answered late. "
        "Check which network interface the nodes should use.",
        "times that a peer was suspended",
        figure(report, "agent.breakers_opened"),
        "peers: {interface: ib0, timeout: 5s}",
    )


def _small_files(report: Report) -> Advice | None:
    size, room = _number(report, "run.bytes"), _number(report, "run.room_bytes")
    if not size or room <= ROOM_RATIO_MAX * size:
        return None
    return Advice(
        f"{format_size(size)} of small files use {format_size(room)} of the tiers, "
        "because files use whole pages. Pack them into larger files (tar, LMDB, HDF5).",
        "space of the files in the tiers",
        figure(report, "run.room_bytes"),
        f"tar -cf DATASET.tar -C {_quoted(report)} .   # once, before the jobs",
    )


_RULES: Final[tuple[Callable[[Report], Advice | None], ...]] = (
    _inactive,
    _other_path,
    _passed_root,
    _no_room,
    _for_writing,
    _evicted,
    _reread,
    _late_catalog,
    _large_through,
    _mapped,
    _waited,
    _one_pass,
    _slow_peers,
    _small_files,
)
