"""`monarch index --list` and `--forget`: indexes that scans leave for later jobs."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from monarch.catalog.patterns import Patterns
from monarch.errors import UsageError, printable, shown
from monarch.units import format_count, format_duration, format_size

if TYPE_CHECKING:
    from monarch.origins.saved_indexes import SavedIndex, SavedIndexes
    from monarch.report.format import Part


def print_saved(as_json: bool) -> None:
    """Print the saved indexes, the last used first."""
    found = _saved().listed()
    if as_json:
        click.echo(json.dumps({"indexes": [_described(one) for one in found]}))
        return
    from monarch.cli.terminal import print_parts

    print_parts(_parts(found))


def forget(paths: Sequence[str], everything: bool) -> None:
    """Remove the saved indexes of some datasets, or all.

    Raises:
        UsageError: no index of a path is saved, or one cannot be removed.
    """
    if everything == bool(paths):
        raise UsageError("--forget needs PATH, or --all")
    roots = [None] if everything else [os.path.realpath(os.fsencode(p)) for p in paths]
    saved, count = _saved(), 0
    for root in roots:
        try:
            removed = saved.forget(root)
        except OSError as error:
            raise UsageError(f"{error.filename}: {error.strerror}") from error
        if root is not None and not removed:
            raise UsageError(f"no index of {shown(root)} is saved; see --list")
        count += removed
    click.echo(f"removed {_indexes(count)}")


def _indexes(count: int) -> str:
    return "1 saved index" if count == 1 else f"{format_count(count)} saved indexes"


def _saved() -> SavedIndexes:
    from monarch.config.request import index_directory
    from monarch.origins.saved_indexes import SavedIndexes

    return SavedIndexes(index_directory(os.environ))


def _described(one: SavedIndex) -> dict[str, Any]:
    return {
        "file": os.fspath(one.file),
        "path": shown(one.summary.root),
        "patterns": asdict(one.summary.patterns),
        "files": one.summary.files,
        "bytes": one.bytes,
        "age_s": round(one.age_s, 3),
    }


def _parts(found: Sequence[SavedIndex]) -> list[Part]:
    from monarch.report.format import many

    if not found:
        return ["no index is saved"]
    total = format_size(sum(one.bytes for one in found))
    parts: list[Part] = [f"{_indexes(len(found))}, {total}"]
    for one in found:
        facts = (
            many(one.summary.files, "files"),
            f"an index of {format_size(one.bytes)}",
            f"scanned {format_duration(one.age_s)} ago",
        )
        parts.append(f"  {shown(one.summary.root)}: {', '.join(facts)}")
        parts += [f"    {line}" for line in _patterns(one.summary.patterns)]
    return parts


def _patterns(patterns: Patterns) -> list[str]:
    """Return the patterns that select some names only."""
    listed, plain = asdict(patterns), asdict(Patterns())
    return [
        f"{name}: {_shown_value(one)}"
        for name, one in listed.items()
        if one != plain[name]
    ]


def _shown_value(value: str | tuple[Any, ...]) -> str:
    """Return one word or several; for directories with own patterns, their paths."""
    words = (value,) if isinstance(value, str) else value
    return printable(" ".join(w if isinstance(w, str) else w[0] for w in words))
