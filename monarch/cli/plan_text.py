"""A plan as JSON and as text: one headline, then tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypeAlias

from monarch.placement.forecast import Forecast, Share
from monarch.report.format import Part, Table, fitted, room_advice
from monarch.units import format_count, format_size

Description: TypeAlias = dict[str, Any]

NODES_SHOWN: Final = 16
"""The table of a larger cluster shows the first nodes, and a range for the others."""
NAME_WIDTH: Final = 34
SCHEMA: Final = 1


def describe(
    datasets: Sequence[str], found: Forecast, mode: str, copies: int, epochs: int
) -> Description:
    """Return a plan as plain JSON.

    Args:
        copies: the intended number of copies.
    """
    readers = len(found.shares)
    worst = max(found.shares, key=lambda share: share.owned_files)
    return {
        "schema": SCHEMA,
        "datasets": list(datasets),
        "files": found.files,
        "bytes": found.total_bytes,
        "room_bytes": found.room_bytes,
        "mode": mode,
        "copies_wanted": copies,
        "copies": round(found.copies, 3),
        "nodes": [_node(share) for share in found.shares],
        "partly_held_files": found.partly_held_files,
        "left_at_origin": {
            "files": found.files - found.held_files - found.partly_held_files,
            "bytes": found.left_bytes,
        },
        "origin": {
            "epochs": epochs,
            "sharded": _origin(found, epochs, 1),
            "everything": _origin(found, epochs, readers),
        },
        "loss": {
            "node": worst.name,
            "files_moved": worst.owned_files,
            "moved": _ratio(worst.owned_files, found.files),
            "bytes_read_again": max(s.only_here_bytes for s in found.shares),
        },
        "notes": [],
    }


def plan_parts(plan: Description) -> list[Part]:
    """Return the lines and tables of a plan."""
    return [
        _headline(plan),
        *room_advice(plan["bytes"], plan["room_bytes"]),
        *_nodes(plan["nodes"]),
        _left(plan),
        _origin_table(plan),
        _loss(plan),
        *(f"  {note}" for note in plan["notes"]),
    ]


def _node(share: Share) -> Description:
    return {
        "name": share.name,
        "files": share.held_files,
        "part_files": share.part_files,
        "bytes": share.held_bytes,
        "room_bytes": share.room_bytes,
        "capacity_bytes": share.capacity_bytes,
        "used": _ratio(share.room_bytes, share.capacity_bytes),
        "owned_files": share.owned_files,
        "only_here_bytes": share.only_here_bytes,
    }


def _origin(found: Forecast, epochs: int, readers: int) -> Description:
    return {
        "bytes": found.origin_bytes(epochs, readers),
        "bytes_without": epochs * readers * found.total_bytes,
    }


def _ratio(part: int, whole: int) -> float:
    return part / whole if whole else 0.0


def _headline(plan: Description) -> str:
    count = len(plan["nodes"])
    wanted = "one copy of each file"
    if plan["copies_wanted"] > 1:
        wanted = f"{_n(plan['copies_wanted'])} copies of each file"
    return (
        f"monarch: {', '.join(plan['datasets'])}: "
        f"{_many(plan['files'], 'files', 'file')}, {format_size(plan['bytes'])} "
        f"({format_size(plan['room_bytes'])} in tiers); "
        f"{_many(count, 'nodes', 'node')}, {plan['mode']}: {wanted}."
    )


def _all_staged(plan: Description) -> bool:
    return not (plan["left_at_origin"]["files"] or plan["partly_held_files"])


def _nodes(nodes: Sequence[Description]) -> list[Part]:
    shown = nodes if len(nodes) <= NODES_SHOWN else nodes[: NODES_SHOWN - 1]
    width = min(NAME_WIDTH, max(16, *(len(node["name"]) for node in shown)))
    columns = [
        ("node", width, [fitted(node["name"], NAME_WIDTH) for node in shown]),
        ("files", 12, [_n(node["files"]) for node in shown]),
        ("in part", 9, [_n(node["part_files"]) for node in shown]),
        ("bytes", 12, [format_size(node["bytes"]) for node in shown]),
        ("capacity", 12, [format_size(node["capacity_bytes"]) for node in shown]),
        ("used", 8, [_percent(node["used"]) for node in shown]),
    ]
    if not any(node["part_files"] for node in nodes):
        del columns[2]
    titles, widths, cells = zip(*columns, strict=True)
    parts: list[Part] = [Table(titles, widths, tuple(zip(*cells, strict=True)))]
    if rest := nodes[len(shown) :]:
        least = min(node["bytes"] for node in rest)
        most = max(node["bytes"] for node in rest)
        parts.append(
            f"  ... {_n(len(rest))} more nodes with {format_size(least)} to "
            f"{format_size(most)} each; --json lists all"
        )
    return parts


def _left(plan: Description) -> str:
    if _all_staged(plan):
        spread = f"{plan['copies']:.1f}".removesuffix(".0")
        many = "one copy" if spread == "1" else f"{spread} copies on average"
        return f"  every file is staged: {many}"
    left = plan["left_at_origin"]
    share = _percent(_ratio(left["bytes"], plan["bytes"]))
    what = []
    if left["files"]:
        what.append(_many(left["files"], "files", "file"))
    if parts := plan["partly_held_files"]:
        what.append(f"parts of {_many(parts, 'files', 'file')}")
    return (
        f"  left at the origin because no space is left: {' and '.join(what)}, "
        f"{format_size(left['bytes'])} ({share})"
    )


def _origin_table(plan: Description) -> Table:
    origin = plan["origin"]
    epochs = _many(origin["epochs"], "epochs", "epoch")
    rows = {"sharded": "each node reads its share of the files"}
    if len(plan["nodes"]) > 1:
        rows["everything"] = "each node reads every file"
    else:
        rows["sharded"] = "the node reads every file"
    cells = tuple(
        (text, *(format_size(size) for size in origin[key].values()))
        for key, text in rows.items()
    )
    titles = (f"bytes from the origin in {epochs}", "with Monarch", "without")
    return Table(titles, (40, 14, 14), cells)


def _loss(plan: Description) -> str:
    if len(plan["nodes"]) == 1:
        return "  if its agent is lost: every file is read from the origin"
    loss = plan["loss"]
    in_part = any(node["part_files"] for node in plan["nodes"])
    parts = ", or parts of them," if in_part else ""
    return (
        f"  if a node is lost: at most {_many(loss['files_moved'], 'files', 'file')} "
        f"({_percent(loss['moved'])}){parts} get another owner, "
        f"{_again(loss['bytes_read_again'])}"
    )


def _again(size: int) -> str:
    if not size:
        return "and other nodes have copies of all of them"
    return f"and up to {format_size(size)} are read from the origin again"


def _n(count: int) -> str:
    return format_count(count)


def _many(count: int, many: str, one: str) -> str:
    return f"{_n(count)} {one if count == 1 else many}"


def _percent(part: float) -> str:
    """Return a percentage; 100% only if complete, and 0% only if nothing."""
    text = f"{100 * part:.1f}%"
    if text == "100.0%" and part < 1:
        return "99.9%"
    return "<0.1%" if text == "0.0%" and part > 0 else text
