"""The page on the loader: prose with examples, and tables made from the code."""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Iterator
from dataclasses import MISSING, fields
from importlib.resources import files
from typing import Any, Final

from monarch.cli.schema_page import COLUMNS

_ENTRY: Final = re.compile(r" {4}(?P<names>[a-z_]+(?:, [a-z_]+)*): (?P<text>.*)")
_ATTRIBUTES: Final = "Attributes:\n"


def loader_page() -> str:
    """Return the page."""
    from monarch.loader.figures import FIGURES

    text = (files("monarch.loader") / "page.md").read_text()
    return text.replace("{arguments}", "\n".join(_arguments())).replace(
        "{figures}", "\n".join(_entry(f"`{name}`", FIGURES[name]) for name in FIGURES)
    )


def _arguments() -> Iterator[str]:
    """Yield an entry for each argument of a loader."""
    from monarch.loader.options import Options

    meanings = described(inspect.getdoc(Options) or "")
    for field in fields(Options):
        name = f"`{field.name}` ({_default(field.default)})"
        yield _entry(name, meanings[field.name])


def _default(value: Any) -> str:
    """Return the text on the default of an argument."""
    if value is MISSING:
        return "required"
    return "default " + ('"' + value + '"' if isinstance(value, str) else f"{value}")


def described(docstring: str) -> dict[str, str]:
    """Return the text on each attribute in a docstring, by its name."""
    found: dict[str, str] = {}
    names: list[str] = []
    for line in docstring.partition(_ATTRIBUTES)[2].splitlines():
        if entry := _ENTRY.fullmatch(line):
            names = entry["names"].split(", ")
            found |= dict.fromkeys(names, entry["text"])
        elif line.strip():
            found |= {name: f"{found[name]} {line.strip()}" for name in names}
    return found


def _entry(name: str, text: str) -> str:
    return textwrap.fill(
        f"- {name}: {text}",
        COLUMNS,
        subsequent_indent="  ",
        break_long_words=False,
        break_on_hyphens=False,
    )
