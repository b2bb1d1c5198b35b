"""The findings of `monarch doctor`: facts about this node, each with a fix."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from enum import Enum
from textwrap import wrap
from typing import Any, Final

from monarch.report.format import WIDTH, many

SCHEMA: Final = 1
_MARK: Final = 10


class Level(Enum):
    """The severity of a finding."""

    PREVENTS = "prevents"
    WARNING = "warning"
    NOTE = "note"
    OK = "ok"


@dataclass(frozen=True, slots=True)
class Finding:
    """One fact.

    Args:
        check: what was examined, such as `tiers[0]`.
        text: the fact, and its consequence for jobs.
        fix: the remedy in one line; "" if none is needed.
    """

    level: Level
    check: str
    text: str
    fix: str = ""


def ok(check: str, text: str) -> Finding:
    """Return a finding that needs no attention."""
    return Finding(Level.OK, check, text)


def note(check: str, text: str, fix: str = "") -> Finding:
    """Return a finding that costs something only in some jobs."""
    return Finding(Level.NOTE, check, text, fix)


def warning(check: str, text: str, fix: str) -> Finding:
    """Return a finding that makes jobs slower, or serves less of them."""
    return Finding(Level.WARNING, check, text, fix)


def prevents(check: str, text: str, fix: str) -> Finding:
    """Return a finding that prevents staging until it is fixed."""
    return Finding(Level.PREVENTS, check, text, fix)


def is_healthy(findings: Iterable[Finding]) -> bool:
    """Return whether none of the findings prevents staging."""
    return not any(one.level is Level.PREVENTS for one in findings)


def as_json(findings: Sequence[Finding], node: str) -> dict[str, Any]:
    """Return the findings of a node as values for JSON."""
    return {
        "schema": SCHEMA,
        "node": node,
        "healthy": is_healthy(findings),
        "findings": [asdict(one) | {"level": one.level.value} for one in findings],
    }


def as_lines(findings: Sequence[Finding], node: str) -> list[str]:
    """Return the findings of a node as lines of text, the summary first."""
    counts = {level: sum(f.level is level for f in findings) for level in Level}
    grave, light = counts[Level.PREVENTS], many(counts[Level.WARNING], "warnings")
    lines = [f"{node}: Monarch can stage here; {light}"]
    if grave:
        verb = "prevents" if grave == 1 else "prevent"
        found = f"{many(grave, 'findings')} {verb} it, {light}"
        lines = [f"{node}: Monarch cannot stage here: {found}"]
    for one in findings:
        lines += _wrapped(one.level.value, f"{one.check}: {one.text}")
        if one.fix:
            lines += _wrapped("", f"fix: {one.fix}")
    return lines


def _wrapped(mark: str, text: str) -> list[str]:
    """Return a text beside a mark, in lines of 80 columns that do not break words."""
    return wrap(
        text,
        WIDTH,
        initial_indent=f"{mark:<{_MARK}}",
        subsequent_indent=" " * (_MARK + 2),
        break_long_words=False,
        break_on_hyphens=False,
    )
