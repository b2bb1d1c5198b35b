"""A plan as JSON and as text for people: one headline, then tables for a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypeAlias

from monarch.placement import Forecast, Share
from monarch.report.format import room_advice
from monarch.units import format_count, format_size

Description: TypeAlias = dict[str, Any]

NODES_SHOWN: Final = 16
"""A larger cluster shows its first nodes and says how the others differ."""
SCHEMA: Final = 1


def describe(
    datasets: Sequence[str], found: Forecast, mode: str, copies: int, epochs: int
) -> Description:
    """Return a plan as it is printed with --json.

    Args:
        copies: how many were wanted.
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
        "left_at_origin": {
            "files": found.files - found.held_files,
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
    }


def render(plan: Description) -> str:
    """Return a plan as text."""
    parts = [
        _headline(plan),
        *room_advice(plan["bytes"], plan["room_bytes"]),
        *_nodes(plan["nodes"]),
        _left(plan),
        *_origin_table(plan),
        _loss(plan),
    ]
    return "\n".join(parts) + "\n"


def _node(share: Share) -> Description:
    return {
        "name": share.name,
        "files": share.held_files,
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
        f"{_many(count, 'nodes', 'node')}, {plan['mode']}: {wanted} wanted."
    )


def _all_held(plan: Description) -> bool:
    return not plan["left_at_origin"]["files"]


def _nodes(nodes: Sequence[Description]) -> list[str]:
    shown = nodes if len(nodes) <= NODES_SHOWN else nodes[: NODES_SHOWN - 1]
    width = max(16, *(len(node["name"]) for node in shown))
    lines = [
        f"  {'node':<{width}}{'files':>12}{'bytes':>12}{'capacity':>12}{'used':>8}"
    ]
    lines += [
        f"  {node['name']:<{width}}{_n(node['files']):>12}"
        f"{format_size(node['bytes']):>12}{format_size(node['capacity_bytes']):>12}"
        f"{_percent(node['used']):>8}"
        for node in shown
    ]
    if rest := nodes[len(shown) :]:
        least = min(node["bytes"] for node in rest)
        most = max(node["bytes"] for node in rest)
        lines.append(
            f"  and {_n(len(rest))} more nodes with {format_size(least)} to "
            f"{format_size(most)} each (all of them with --json)"
        )
    return lines


def _left(plan: Description) -> str:
    if _all_held(plan):
        spread = f"{plan['copies']:.1f}".removesuffix(".0")
        many = "one copy" if spread == "1" else f"{spread} copies on the average"
        return f"  every file is held: {many}"
    left = plan["left_at_origin"]
    share = _percent(_ratio(left["bytes"], plan["bytes"]))
    return (
        "  left at the origin for want of room: "
        f"{_many(left['files'], 'files', 'file')}, "
        f"{format_size(left['bytes'])} ({share})"
    )


def _origin_table(plan: Description) -> list[str]:
    origin = plan["origin"]
    epochs = _many(origin["epochs"], "epochs", "epoch")
    title = f"bytes from the origin in {epochs}"
    lines = [f"  {title:<40}{'with Monarch':>14}{'without':>14}"]
    rows = {"sharded": "each node reads its share of the files"}
    if len(plan["nodes"]) > 1:
        rows["everything"] = "each node reads every file"
    else:
        rows["sharded"] = "the node reads every file"
    for key, text in rows.items():
        bytes_with, bytes_without = origin[key].values()
        lines.append(
            f"  {text:<40}{format_size(bytes_with):>14}{format_size(bytes_without):>14}"
        )
    return lines


def _loss(plan: Description) -> str:
    if len(plan["nodes"]) == 1:
        return "  if its agent is lost: every file is read from the origin"
    loss = plan["loss"]
    return (
        f"  if a node is lost: at most {_many(loss['files_moved'], 'files', 'file')} "
        f"({_percent(loss['moved'])}) get another owner,\n"
        f"    {_again(loss['bytes_read_again'])}"
    )


def _again(size: int) -> str:
    if not size:
        return "and other nodes hold copies of all of them"
    return f"and up to {format_size(size)} are read from the origin again"


def _n(count: int) -> str:
    return format_count(count)


def _many(count: int, many: str, one: str) -> str:
    return f"{_n(count)} {one if count == 1 else many}"


def _percent(part: float) -> str:
    """Never 100% of what is not all, nor 0% of what is something."""
    text = f"{100 * part:.1f}%"
    if text == "100.0%" and part < 1:
        return "99.9%"
    return "<0.1%" if text == "0.0%" and part > 0 else text
