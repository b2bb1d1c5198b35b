"""The report of one node as bytes, which it sends to the merging node."""

import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, Final, TypeVar

from monarch import __version__
from monarch.errors import printable
from monarch.report.model import (
    OTHERS,
    Elsewhere,
    ErrorCount,
    FillFigures,
    JobFigures,
    LoaderFigures,
    Moment,
    PeerFigures,
    ProcessFigures,
    ShareFigures,
    SlowCopy,
    Snapshot,
    TierFigures,
    Unstaged,
    WaitBucket,
    WaitTotal,
    plain,
    types_of,
)
from monarch.report.series import thinned

FORMAT: Final = 3
NODE_REPORT_BYTES_MAX: Final = 1 << 20
# The limit on pairs of nodes in a report; in larger jobs each node lists fewer peers.
PAIRS_MAX: Final = 16384
PEERS_MIN: Final = 16
POINTS_MAX: Final = 128
"""Samples that a node sends; the merging node has a denser grid."""
TEXT_MAX: Final = 4096
_ROWS_MAX: Final = (256, 64, 16, 4, 0)
_LISTS: Final = {
    "tiers": TierFigures,
    "processes": ProcessFigures,
    "waits": WaitBucket,
    "wait_totals": WaitTotal,
    "unstaged": Unstaged,
    "lacking": Unstaged,
    "moments": Moment,
    "slowest": SlowCopy,
    "errors": ErrorCount,
    "elsewhere": Elsewhere,
}

_WANTED: Final = {
    *("number", "run", "counters", "tally", "unslotted"),
    *("share", "fill", "failures", "loader"),
    *(
        "pool_capacity_bytes",
        "pool_used_bytes",
        "changed",
        "passed_roots",
        "peers",
        *_LISTS,
    ),
}

_TUPLES: Final[dict[Any, Any]] = {tuple[str, ...]: str, tuple[int, ...]: int}

Row = TypeVar("Row")


class NodeReportError(ValueError):
    """The bytes of a node are not a valid report, for the reason in the text."""


def encode_node_report(snapshot: Snapshot) -> bytes:
    """Return the report of a node in at most NODE_REPORT_BYTES_MAX bytes.

    The end of a long list is summed in one row, so that totals stay exact.
    """
    for rows_max in _ROWS_MAX:
        body = _encoded(_cut(snapshot, rows_max))
        if len(body) <= NODE_REPORT_BYTES_MAX:
            return body
    raise ValueError(f"a report of {len(body)} bytes")


def decode_node_report(body: bytes, number: int, like: Snapshot) -> Snapshot:
    """Return the figures in the report of another node.

    Args:
        number: the number of that node.
        like: the figures of this node, which have the same counters.

    Raises:
        NodeReportError: the bytes are not a valid report.
    """
    found = _document(body)
    if set(found["counters"]) != set(like.counters) or set(found["tally"]) != set(
        like.tally
    ):
        raise NodeReportError(_other_version(found))
    if found["number"] != number:
        raise NodeReportError("it is of another node")
    lists: dict[str, Any] = {
        name: _records(kind, found[name]) for name, kind in _LISTS.items()
    }
    snapshot = Snapshot(
        run=_record(JobFigures, found["run"]),
        counters=_counts(found["counters"]),
        tally=_counts(found["tally"]),
        unslotted=_checked(int, found["unslotted"]),
        pool_capacity_bytes=_checked(int, found["pool_capacity_bytes"]),
        pool_used_bytes=_checked(int, found["pool_used_bytes"]),
        changed=_checked(tuple[str, ...], found["changed"]),
        passed_roots=_checked(tuple[str, ...], found["passed_roots"]),
        share=_record(ShareFigures, found["share"]),
        fill=_record(FillFigures, found["fill"]),
        loader=_record(LoaderFigures, found["loader"]),
        failures=_checked(tuple[str, ...], found["failures"]),
        nodes=like.nodes,
        number=number,
        peers=_peers(found["peers"], number, like.nodes),
        **lists,
    )
    _check_samples(snapshot)
    if any(
        f"opens_hit_tier{n}" not in like.counters for n in range(len(snapshot.tiers))
    ):
        raise NodeReportError(f"it has {len(snapshot.tiers)} tiers")
    return snapshot


def _check_samples(snapshot: Snapshot) -> None:
    """Reject samples that no agent makes, and that would take long to add up."""
    moments = snapshot.moments
    if len(moments) > POINTS_MAX:
        raise NodeReportError(f"it has {len(moments)} samples")
    if any(len(moment.tiers) > len(snapshot.tiers) for moment in moments):
        raise NodeReportError("a sample has too many tiers")
    if any(one.at_s > later.at_s for one, later in pairwise(moments)):
        raise NodeReportError("its samples are not in order")


def _encoded(snapshot: Snapshot) -> bytes:
    lists = {
        name: [list(plain(one).values()) for one in getattr(snapshot, name)]
        for name in (*_LISTS, "peers")
    }
    whole = {
        "fragment": FORMAT,
        "version": __version__,
        "number": snapshot.number,
        "run": list(plain(snapshot.run).values()),
        "counters": dict(snapshot.counters),
        "tally": dict(snapshot.tally),
        "unslotted": snapshot.unslotted,
        "pool_capacity_bytes": snapshot.pool_capacity_bytes,
        "pool_used_bytes": snapshot.pool_used_bytes,
        "changed": snapshot.changed,
        "passed_roots": snapshot.passed_roots,
        "share": list(plain(snapshot.share).values()),
        "fill": list(plain(snapshot.fill).values()),
        "loader": list(plain(snapshot.loader).values()),
        "failures": snapshot.failures,
        **lists,
    }
    return json.dumps(whole, separators=(",", ":")).encode()


# -- cutting ----------------------------------------------------------------------


def _cut(snapshot: Snapshot, rows_max: int) -> Snapshot:
    """Return a snapshot with the same totals in shorter lists, without the command."""
    return replace(
        snapshot,
        run=replace(
            snapshot.run, command=(), datasets=(), plain=snapshot.run.plain[:TEXT_MAX]
        ),
        waits=tuple(bucket for bucket in snapshot.waits if bucket.count),
        processes=_cut_processes(snapshot.processes, rows_max),
        peers=shorter(snapshot.peers, min(listed_peers(snapshot), 16 * rows_max)),
        changed=_short_texts(snapshot.changed[:rows_max]),
        passed_roots=_short_texts(snapshot.passed_roots[:rows_max]),
        failures=_short_texts(snapshot.failures[:rows_max]),
        moments=thinned(snapshot.moments, POINTS_MAX if rows_max else 1),
        slowest=tuple(_short_path(one) for one in snapshot.slowest[:rows_max]),
        errors=tuple(
            replace(one, example=one.example[-TEXT_MAX:])
            for one in snapshot.errors[:rows_max]
        ),
        unstaged=tuple(_cut_examples(one, rows_max) for one in snapshot.unstaged),
        lacking=tuple(_cut_examples(one, rows_max) for one in snapshot.lacking),
    )


def _short_path(copy: SlowCopy) -> SlowCopy:
    return replace(copy, path=copy.path[-TEXT_MAX:])


def _cut_examples(one: Unstaged, rows_max: int) -> Unstaged:
    return replace(one, examples=_short_texts(one.examples[:rows_max]))


def _short_texts(texts: Sequence[str]) -> tuple[str, ...]:
    return tuple(text[-TEXT_MAX:] for text in texts)


def _cut_processes(
    processes: Sequence[ProcessFigures], rows_max: int
) -> tuple[ProcessFigures, ...]:
    """Shorten the list; programs without the Shim are kept first."""
    ranked = sorted(processes, key=lambda one: (one.active, -one.count))
    rest = ranked[rows_max:]
    kept = [replace(p, program=p.program[-TEXT_MAX:]) for p in ranked[:rows_max]]
    for active in (False, True):
        count = sum(p.count for p in rest if p.active is active)
        kept += [ProcessFigures("", active, count)] * bool(count)
    return tuple(kept)


def listed_peers(snapshot: Snapshot) -> int:
    """Return the number of peers that a node lists, for PAIRS_MAX pairs in total."""
    return max(PEERS_MIN, PAIRS_MAX // max(1, len(snapshot.nodes)))


def shorter(peers: Sequence[PeerFigures], rows_max: int) -> tuple[PeerFigures, ...]:
    """Shorten the list; peers with problems are kept first, then by bytes."""
    if len(peers) <= rows_max:
        return tuple(peers)
    ranked = sorted(peers, key=lambda one: (not one.has_trouble, -one.moved_bytes))
    rest = ranked[rows_max:]
    sums = {
        name: sum(getattr(peer, name) for peer in rest)
        for name in [*types_of(PeerFigures)][3:]
    }
    others = PeerFigures(OTHERS, f"{len(rest)} other nodes", "joined", **sums)
    return (*sorted(ranked[:rows_max], key=lambda one: one.number), others)


# -- reading ----------------------------------------------------------------------


def _document(body: bytes) -> dict[str, Any]:
    """Return the JSON object, whose members are not verified yet."""
    if len(body) > NODE_REPORT_BYTES_MAX:
        raise NodeReportError("it is too long")
    try:
        found = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise NodeReportError("it is not JSON") from error
    if not isinstance(found, dict):
        raise NodeReportError("it is not an object")
    if found.get("fragment") != FORMAT:
        raise NodeReportError(_other_version(found))
    if lacking := sorted(_WANTED - set(found)):
        raise NodeReportError(f"{lacking[0]} is missing")
    for name in ("counters", "tally"):
        if not isinstance(found[name], dict):
            raise NodeReportError(f"{name} is not an object")
    return found


def _other_version(found: dict[str, Any]) -> str:
    version = found.get("version")
    if not isinstance(version, str) or version == __version__:
        return "it has other counters"
    return f"it is of version {printable(version[:40])}, not {__version__}"


def _counts(found: dict[str, Any]) -> dict[str, int]:
    return {name: _checked(int, value) for name, value in found.items()}


def _records(kind: type[Row], rows: Any) -> tuple[Row, ...]:
    if not isinstance(rows, list):
        raise NodeReportError("a list is missing")
    return tuple(_record(kind, row) for row in rows)


def _record(kind: type[Any], row: Any) -> Any:
    """Return a dataclass of a row of values, after checking their types."""
    wanted = types_of(kind)
    if not isinstance(row, list) or len(row) != len(wanted):
        raise NodeReportError(f"{kind.__name__} needs {len(wanted)} values")
    return kind(
        *(
            _checked(wanted[name], value, OTHERS if name == "number" else 0)
            for name, value in zip(wanted, row, strict=True)
        )
    )


def _checked(kind: Any, value: Any, least: int = 0) -> Any:
    """Return a value after checking its type and range."""
    if kind is int and type(value) is int and least <= value <= sys.maxsize:
        return value
    if kind is float and type(value) in (int, float) and 0 <= value <= sys.maxsize:
        return float(value)
    if kind is bool and isinstance(value, bool):
        return value
    if kind is str and isinstance(value, str) and len(value) <= TEXT_MAX:
        return printable(value)
    if kind in _TUPLES and isinstance(value, list):
        return tuple(_checked(_TUPLES[kind], one) for one in value)
    raise NodeReportError("a value is not valid")


def _peers(rows: Any, number: int, nodes: Sequence[str]) -> tuple[PeerFigures, ...]:
    """Return the peers of a node, with the names that this node uses."""
    known = {*range(len(nodes)), OTHERS} - {number}
    peers = []
    for peer in _records(PeerFigures, rows):
        if peer.number not in known:
            raise NodeReportError("it lists an unknown node")
        known.remove(peer.number)
        is_named = peer.number == OTHERS or peer.name == nodes[peer.number]
        peers.append(peer if is_named else replace(peer, name=nodes[peer.number]))
    return tuple(peers)
