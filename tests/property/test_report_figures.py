"""For any counts of a job, the figures of its report agree with each other.

Each line of the text must be one that is known here, with the figures that it tells by
their names in the JSON: a line that is added to a report is added to LINES.
"""

import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from monarch.agent.live import opens_by_source
from monarch.metrics import AgentCounters
from monarch.native import COUNTERS
from monarch.report import (
    ProcessFigures,
    Snapshot,
    TierFigures,
    Unstaged,
    WaitBucket,
    WaitTotal,
    encode_node_report,
    merge,
    one_node_parts,
    report_parts,
    summarize,
)
from monarch.report.causes import CAUSES
from monarch.report.figures import find, kind_of, written
from monarch.report.format import Table, percent
from monarch.report.html import page
from monarch.units import format_count, format_size, parse_size
from support import pages
from support.figures import JOB, MIB, node

SEEDS = 60
NODES = (1, 1, 2, 5)
WAITED = ("origin", "peer", "blocks")
ROUNDED = 0.06  # 1.0 KiB is up to 1.05 KiB

# -- possible counters of a job ------------------------------------------------------


def some(rng: Random) -> int:
    """Return a count that is often nothing or little."""
    return rng.choice([0, 0, 1, 2, rng.randrange(10 ** rng.randrange(1, 7))])


def counters_of(rng: Random, tiers: int) -> dict[str, int]:
    """Return possible counts of programs on a node."""
    found = {spec.name: some(rng) for spec in COUNTERS}
    for number in range(8):
        found[f"opens_hit_tier{number}"] = some(rng) * (number <= tiers)
    for cause in CAUSES:
        found[cause.counter] = some(rng) * rng.choice([0, 0, 1])
    found["opens_origin"] = sum(found[cause.counter] for cause in CAUSES)
    found["origin_blocks"] = rng.randint(0, found["origin_large"])
    found["blocks_used"] = rng.choice([found["origin_blocks"], some(rng)])
    found["blocks_mapped"] = rng.choice([0, found["blocks_used"], some(rng)])
    names = [name.removeprefix("opens_") for name in found if name.startswith("opens_")]
    for name in names:
        if f"bytes_{name}" in found:
            found[f"bytes_{name}"] = found[f"opens_{name}"] * some(rng)
    found["bytes_blocks"] = found["origin_blocks"] * some(rng)
    direct = found["opens_origin"] - found["origin_blocks"]
    found["bytes_origin"] = found["bytes_blocks"] + direct * some(rng)
    found["whole_served"] = rng.randint(0, found["whole_waits"])
    return found


def figures_of(rng: Random, number: int, names: tuple[str, ...]) -> Snapshot:
    """Return possible counts of a node of a job."""
    tiers = tuple(
        TierFigures(f"t{n}", "ram", rng.randint(1, 2**40), some(rng), some(rng), True)
        for n in range(2)
    )
    tally = {name: some(rng) for name in AgentCounters().as_dict()}
    tally["origin_read_bytes"] += tally["tried_bytes"]
    programs = tuple(
        ProcessFigures(f"/bin/p{n}", rng.random() < 0.8, 1 + some(rng))
        for n in range(rng.randrange(4))
    )
    buckets = [
        WaitBucket(n * 10**6, (n + 1) * 10**6, some(rng), source)
        for n in range(3)
        for source in WAITED
    ]
    totals = tuple(
        WaitTotal(source, sum(b.count * b.to_ns for b in buckets if b.source == source))
        for source in WAITED
    )
    changes: dict[str, Any] = {
        "run": replace(
            JOB, node=names[number], bytes=some(rng) * MIB, read_calls_bytes=some(rng)
        ),
        "counters": counters_of(rng, len(tiers)),
        "tally": tally,
        "tiers": tiers,
        "processes": programs,
        "unslotted": some(rng),
        "waits": tuple(buckets),
        "wait_totals": totals,
        "unstaged": tuple(Unstaged(reason, some(rng), some(rng)) for reason in "ab"),
        "pool_capacity_bytes": some(rng),
        "nodes": names if len(names) > 1 else (),
    }
    peers = node(number, names).peers
    return replace(node(number, names, peers=peers), **changes)


def job_of(rng: Random) -> tuple[list[Snapshot], dict[str, Any]]:
    """Return the counts of the nodes of a job, and its report as a file has it."""
    names = tuple(f"n{number}" for number in range(rng.choice(NODES)))
    parts = [figures_of(rng, number, names) for number in range(len(names))]
    sent = {part.number: encode_node_report(part) for part in parts}
    report = merge(parts[0], sent) if len(names) > 1 else summarize(parts[0])
    return parts, json.loads(json.dumps(report))


# -- figures in the text -------------------------------------------------------------

PATTERNS = {
    "count": r"[\d,]+",
    "size": r"[\d.,]+ (?:[KMGTPE]i)?B",
    "share": r"[\d.]+%",
    "multiple": r"[\d.,]+ x",
    "rate": r"[\d.,]+ (?:[KMGTPE]i)?B/s",
    "duration": r"[\d.,]+ (?:µs|ms|s|min|h|d)(?: \d+ (?:s|min|h))?",
}


def kind_named(name: str) -> str:
    return name if name in PATTERNS else DERIVED.get(name, (kind_of(name),))[0]


def line(text: str) -> re.Pattern[str]:
    """Return a pattern of a line: {NAME} is a figure, {KIND} one that is told once."""

    def found(match: re.Match[str]) -> str:
        name = match[1]
        pattern = PATTERNS[kind_named(name)]
        return (
            pattern if name in PATTERNS else f"(?P<{name.replace('.', '__')}>{pattern})"
        )

    return re.compile(re.sub(r"\{([\w.]+)\}", found, text.strip()))


def total(rows: Any, name: str) -> float:
    return float(sum(row[name] for row in rows or ()))


# Figures of the text that are sums or shares of those in the JSON.
DERIVED: Mapping[str, tuple[str, Callable[[Any], float | None]]] = {
    "all_reads": (
        "count",
        lambda r: r["reads"]["local_reads"] + r["reads"]["origin_reads"],
    ),
    "reads_share": (
        "share",
        lambda r: (
            r["reads"]["local_reads"]
            / (r["reads"]["local_reads"] + r["reads"]["origin_reads"])
        ),
    ),
    "without_monarch": (
        "count",
        lambda r: r["coverage"]["processes"] - r["coverage"]["active"],
    ),
    "whole_left": (
        "count",
        lambda r: r["waits"]["whole"] - r["waits"]["whole_served"],
    ),
    "waits_of_reads": (
        "count",
        lambda r: next(
            row["count"] for row in r["waits"]["by_source"] if row["source"] == "blocks"
        ),
    ),
    "answered": ("count", lambda r: r["metadata"]["answered"]),
}
PHRASES = [
    line(text)
    for text in (
        r"monarch: active in {coverage.active} of {coverage.processes} process(?:es)?"
        r"(?: on \d nodes)?",
        r"no file of /pfs/imagenet was opened(?: for reading)?",
        "{headline.ready_share} of {headline.opens} opens? (?:was|were) ready without "
        "waiting",
        r"{reads.opens} opens? read large files by block"
        r"(?:, {reads.unseen_opens} of them \({reads.unseen_share}\) by unseen reads)?",
        "{reads_share} of {all_reads} reads? of large files came from copies",
        r"{headline.origin_bytes} read from the origin"
        r"(?: \({headline.origin_multiple} the dataset\)"
        "|, and {headline.origin_opens} opens? read it directly| and unseen reads)?",
        "{opens_for_writing} opens? for writing read it, too",
        r"about {headline.time_saved.seconds} saved \(estimate\)",
    )
]
FALLBACK = "|".join(
    re.escape(cause.whole_text.removeprefix("opens")) for cause in CAUSES
)
LINES = [
    line(text)
    for text in (
        r"  not active in \S+ \({count}\): .*",
        "  {coverage.unslotted} more process(?:es)? could not be tracked; their opens "
        "are counted",
        "  ready when opened: {hits.by_opens} of {hits.opens} opens?"
        "(?:, {hits.by_bytes} by the size of the files)?",
        "  ready on a peer: {hits.peer_by_opens} of {hits.opens} opens?"
        "(?:, {hits.peer_by_bytes} by the size of the files)?",
        "  {waits.count} wait for a copy took {waits.total_s}",
        "  {waits.count} waits for copies"
        "(?:, {waits_of_reads} of them for parts of large files)?: p50 {waits.p50_s}, "
        "p95 {waits.p95_s}, p99 {waits.p99_s}, {waits.total_s} in total",
        "  {waits.whole} opens? waited until a large file was staged whole"
        "(?:; {whole_left} then read the origin)?",
        "  staged: {staging.files} files?, {staging.bytes}"
        "(?: at {staging.bytes_per_s}(?: per node)?)?"
        "(?:; from peers: {staging.peer_files} files?, {staging.peer_bytes})?"
        "(?:; linked from another job: {staging.shared_files} files?, "
        "{staging.shared_bytes})?"
        "(?:; adopted from an earlier job: {staging.adopted_files} files?, "
        "{staging.adopted_bytes})?",
        "  copied at {staging.bytes_per_s}(?: per node)?",
        "  read ahead by hints: {staging.hinted_files} files?, {staging.hinted_bytes}",
        "  origin: {origin.agent_read_bytes} read by Monarch"
        "(?:, {agent.tried_bytes} of it to choose codecs)?"
        "(?:, {reads.origin_bytes} read by programs of large files)?"
        "(?:; plus, not counted: "
        r"(?:{headline.origin_opens} opens? by programs \(files of "
        r"{headline.origin_opened_bytes}\))?(?:, | and )?"
        r"(?:{headline.origin_unseen_opens} opens? by unseen reads \(files of at most "
        r"{headline.origin_unseen_bytes}\))?(?:, | and )?"
        "(?:{opens_for_writing} opens? for writing)?(?:, | and )?"
        "(?:{without_monarch} process(?:es)? without Monarch)?)?",
        r"  stat calls answered without the origin: {answered} \({metadata.ratio}\)",
        r"  tier \w+: {size} of {size} used by {count} (?:files?|replicas?)",
        r"  packed: {packed.files} files?, {packed.bytes} in {packed.stored_bytes} "
        r"\([\d.]+ x\)(?:, of large files in {packed.pieces} pieces?)?"
        "(?:, {packed.raw_files} of them as they are)?; compressed in {packed.pack_s} "
        "of a processor",
        "  decoded: (?:{packed.decoded_files} files?, )?{packed.decoded_bytes} in "
        r"{packed.decode_s} of a processor, [\d.]+ times each"
        "(?:; {packed.dropped_files} files? (?:was|were) damaged)?",
        "  transit pool of {transit.capacity_bytes}: {transit.files} files?, "
        "{transit.bytes}",
        "  small files: {run.bytes} use {run.room_bytes} of the tiers, .*",
        r"  served to peers: .*, {exchange.served_bytes}; most by \w+ \(.*\)",
        "  not staged: {count} files?, {size}: [ab]",
        "  {reads.local_reads} reads? of large files came from copies on the node, "
        "{reads.local_bytes}; {reads.origin_reads} from the origin",
        "  unseen reads: {reads.unseen_share} of {reads.opens} opens? of large files; "
        "(?:{reads.mapped_opens} opens? mapped the file, {reads.local_maps} mappings? "
        "showed the copy and {reads.origin_maps} the origin's file)?(?:; )?"
        "(?:{reads.unused_opens} opens? read the origin by a stream or another call "
        "that Monarch does not see, or read nothing)?",
        f"  {{count}} opens?(?:{FALLBACK})",
        "  {counters.opens_elsewhere} opens? in a sample used an unknown path of a "
        "dataset; .*",
        "  {opens_for_writing} opens? were for writing .*",
        # No other line repeats these.
        r"  {count} [\w ]+? (?:of|from|a|in|taken|failed|without|disappeared|evicted|"
        "changed|read|left|fetched|closed|began|that).*",
        "  Programs may read less, or more, .*",
        "  Bytes that Monarch staged and read from the origin are exact.",
    )
]


def told_by(patterns: list[re.Pattern[str]], text: str) -> dict[str, str]:
    """Return the figures of a line by their names."""
    for pattern in patterns:
        if match := pattern.fullmatch(text.strip()):
            found = match.groupdict()
            return {n.replace("__", "."): t for n, t in found.items() if t is not None}
    raise AssertionError(f"add this line to LINES: {text!r}")


def told(report: Any) -> Iterator[tuple[str, str]]:
    """Yield all figures of a text with their names."""
    first, *parts = report_parts(report)
    assert isinstance(first, str)
    for phrase in first.removesuffix(".").split("; "):
        yield from told_by(PHRASES, phrase).items()
    for part in parts:
        if isinstance(part, str):
            yield from told_by(LINES, part).items()
        elif part.titles[0] == "source":
            yield from of_sources(report, part)
        elif part.titles[0] == "node":
            yield from of_nodes(part)


def of_sources(report: Any, table: Table) -> Iterator[tuple[str, str]]:
    names = [str(row["source"]) for row in report["sources"]]
    for name, opens, size in table.rows:
        place = names.index(name)
        yield f"sources.{place}.opens", opens
        if size != "-":
            yield f"sources.{place}.opened_bytes", size


def of_nodes(table: Table) -> Iterator[tuple[str, str]]:
    """Yield the figures of the row of all nodes; the last one."""
    name, opens, ready, peers, origin, fetched, served, _ = table.rows[-1]
    assert name == "all"
    yield from (("hits.opens", opens), ("origin.agent_read_bytes", origin))
    yield from (("exchange.fetched_bytes", fetched), ("exchange.served_bytes", served))
    if opens != "0":
        yield from (("hits.by_opens", ready), ("hits.peer_by_opens", peers))


def expected(report: Any, name: str) -> str:
    """Return how a figure of the JSON is written."""
    kind, value = kind_named(name), DERIVED.get(name)
    return written(value[1](report) if value else find(report, name), kind)


# -- the comparison ------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(SEEDS))
def test_no_figure_of_a_report_contradicts_another_one(seed: int) -> None:
    parts, report = job_of(Random(seed))
    texts: dict[str, set[str]] = defaultdict(set)
    for name, text in told(report):
        texts[name].add(text)

    for name, found in texts.items():
        assert found == {expected(report, name)}, name
    assert_same_in_json(report)
    assert_same_on_page(report, texts)
    for row in report.get("nodes", ()):
        assert_same_on_node(report, row)
    assert_same_in_top(parts, report)


def assert_same_in_json(report: Any) -> None:
    """Compare the figures that a report has under several names, or as sums."""
    by_kind: dict[str, list[Any]] = defaultdict(list)
    for row in report["sources"]:
        by_kind[row["kind"]].append(row)
    found, hits, reads = report["headline"], report["hits"], report["reads"]
    known = [r for r in report["sources"] if r["kind"] not in ("blocks", "outside")]
    opens, ready = total(known, "opens"), total(by_kind["hit"], "opens")
    assert found["opens"] == hits["opens"] == opens
    share = ready / opens if opens else None
    assert found["ready_share"] == hits["by_opens"] == share
    assert hits["opened_bytes"] == total(known, "opened_bytes")

    direct = total(by_kind["origin"], "opens")
    causes = [r for r in report["fallbacks"] if r["cause"] != "opens_elsewhere"]
    assert found["origin_opens"] == hits["origin_opens"] == direct
    assert direct == total(causes, "opens")
    opened = total(by_kind["origin"], "opened_bytes")
    assert found["origin_opened_bytes"] == hits["origin_opened_bytes"] == opened
    assert report["origin"]["programs_opened_bytes"] == opened
    read = report["origin"]["agent_read_bytes"] + reads["origin_bytes"]
    assert found["origin_bytes"] == read

    assert reads["opens"] == total(by_kind["blocks"], "opens")
    assert reads["unseen_opens"] == reads["mapped_opens"] + reads["unused_opens"]
    assert reads["unseen_opens"] <= reads["opens"]
    assert found["origin_unseen_opens"] == reads["origin_unseen_opens"]

    cover = report["coverage"]
    inactive = total(cover["inactive"], "count") + cover["unslotted"]
    assert cover["processes"] - cover["active"] == inactive
    assert report["waits"]["count"] == total(report["waits"]["by_source"], "count")
    waited = total(report["waits"]["by_source"], "total_s")
    assert report["waits"]["total_s"] == pytest.approx(waited)


def assert_same_on_page(report: Any, texts: Mapping[str, set[str]]) -> None:
    """Compare a page with the text, and the shares that it adds."""
    read = pages.read(page(report))
    for one in pages.figures(read):
        if one.path in texts:
            assert texts[one.path] == {one.text}
    opens = report["headline"]["opens"]
    for row in pages.rows(read.one("sources")):
        if row[2:] and row[2].endswith("%"):
            assert row[2] == percent(int(row[1].replace(",", "")) / opens)
    verdict = read.one("verdict").words()
    for phrase in ("opens", "unseen_opens"):
        if count := report["reads"][phrase]:
            assert format_count(count) in verdict
    nothing = "No file of the datasets was opened" in verdict
    assert nothing == (not opens and not report["reads"]["opens"])


def assert_same_on_node(report: Any, row: Mapping[str, Any]) -> None:
    """Compare the report of one node alone with its row in the report of all."""
    table = next(p for p in one_node_parts(report, row["name"]) if isinstance(p, Table))
    counts = {name: int(opens.replace(",", "")) for name, opens, _, _ in table.rows}
    blocks = counts.pop("large files, read by block", 0)
    assert blocks == row["block_opens"]
    assert sum(counts.values()) == row["opens"]
    if row["opens"]:
        assert table.rows[0][2] == percent(row["ready_share"])
    texts = [p for p in one_node_parts(report, row["name"]) if isinstance(p, str)]
    size = next(r[3] for r in table.rows if r[0] == "origin")
    origin = next(text for text in texts if text.startswith("  origin:"))
    assert origin.endswith(f", {size} opened by programs")
    causes = [f for f in row["fallbacks"] if f["cause"].startswith("origin_")]
    assert total(causes, "opens") == row["origin_opens"]


def assert_same_in_top(parts: list[Snapshot], report: Any) -> None:
    """Compare the counts of `monarch top` with those of the report."""
    counts = [opens_by_source(part.counters) for part in parts]
    known = ("ready", "waited", "origin")
    assert sum(row[name] for row in counts for name in known) == report["hits"]["opens"]
    assert total(counts, "blocks") == report["reads"]["opens"]
    for name in ("opens", "opened_bytes"):
        rows = report.get("nodes", ())
        assert not rows or total(rows, name) == report["hits"][name]


def test_sizes_are_rounded_alike() -> None:
    """Else two texts of one figure could differ."""
    for size in (0, 1, 1023, 1024, 1075, 10**9):
        assert parse_size(format_size(size)) == pytest.approx(size, rel=ROUNDED)
