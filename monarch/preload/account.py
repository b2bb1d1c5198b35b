"""What came of staging before a job, on each node and altogether."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from monarch.units import format_count, format_duration, format_size


@dataclass(frozen=True, slots=True)
class NodeAccount:
    """What one node holds at the end, and where it is from.

    Attributes:
        kept_files: what it was to hold.
        lacking: of these, how many it does not hold, by the reason.
        faults: what went wrong with some Files, in words.
    """

    node: str
    kept_files: int
    held_files: int
    held_bytes: int
    adopted_files: int
    origin_files: int
    origin_bytes: int
    received_files: int
    received_bytes: int
    lacking: dict[str, int] = field(default_factory=dict)
    faults: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Account:
    """What all nodes hold together.

    Args:
        copies_short: how many more copies the mode asks for than were placed.
        unplaced_files: those for which no node has room.
    """

    files: int
    total_bytes: int
    unplaced_files: int
    unplaced_bytes: int
    copies_short: int
    seconds: float
    nodes: tuple[NodeAccount, ...]

    @property
    def complete(self) -> bool:
        """Whether every File lies where it is wanted."""
        lacking = any(node.lacking for node in self.nodes)
        return not (lacking or self.unplaced_files or self.copies_short)


def render(account: Account) -> str:
    """Return the account as lines for people."""
    nodes = account.nodes
    lines = [_headline(account)]
    if len(nodes) > 1:
        lines += [f"  {_of_node(node)}" for node in nodes]
    lines += _shortfalls(account)
    return "\n".join(lines)


def _headline(account: Account) -> str:
    nodes = account.nodes
    where = "this node" if len(nodes) == 1 else f"{len(nodes)} nodes"
    parts = [f"{format_size(_sum(nodes, 'origin_bytes'))} read from the origin"]
    if received := _sum(nodes, "received_bytes"):
        parts.append(f"{format_size(received)} passed between nodes")
    if adopted := _sum(nodes, "adopted_files"):
        were = "was" if adopted == 1 else "were"
        parts.append(f"{_files(adopted)} {were} there already")
    time = format_duration(account.seconds)
    return f"staged {_what(account)} on {where} in {time}: {', '.join(parts)}"


def _what(account: Account) -> str:
    held = _sum(account.nodes, "held_files")
    text = f"{_files(account.files)}, {format_size(account.total_bytes)}"
    if held == account.files:
        return text
    return (
        f"{format_count(held)} {'of' if held < account.files else 'copies of'} {text}"
    )


def _of_node(node: NodeAccount) -> str:
    return (
        f"{node.node}: {_files(node.held_files)}, {format_size(node.held_bytes)} "
        f"({format_count(node.origin_files)} from the origin, "
        f"{format_count(node.received_files)} from other nodes, "
        f"{format_count(node.adopted_files)} there already)"
    )


def _shortfalls(account: Account) -> list[str]:
    lines = []
    if account.unplaced_files:
        lines.append(
            f"{_files(account.unplaced_files)}, {format_size(account.unplaced_bytes)}, "
            "stay at the origin: no node has room for them"
        )
    if account.copies_short:
        lines.append(
            f"{format_count(account.copies_short)} of the copies that the mode asks "
            "for have no room"
        )
    for node in account.nodes:
        prefix = f"{node.node}: " if len(account.nodes) > 1 else ""
        lines += [
            f"{prefix}{_files(count)} not staged: {reason}"
            for reason, count in node.lacking.items()
        ]
        lines += [f"{prefix}{fault}" for fault in node.faults]
    return lines


def _files(count: int) -> str:
    return f"{format_count(count)} {'file' if count == 1 else 'files'}"


def _sum(nodes: Sequence[NodeAccount], name: str) -> int:
    return sum(getattr(node, name) for node in nodes)
