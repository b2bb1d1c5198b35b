"""Manual pages, in roff, made from the definition of the command line.

One page for `monarch` and one for each verb, which includes the verbs below it. Written
here because the generators on PyPI read neither verbs that are imported only when they
are used nor the examples below the options.
"""

import re
import textwrap
from collections.abc import Iterator
from inspect import cleandoc
from typing import Final

import click

from monarch import __version__
from monarch.cli import VERBS, monarch
from monarch.cli.command_tree import (
    below,
    command_of,
    context_of,
    records,
    summary_of,
)

COLUMNS: Final = 88
VERBATIM: Final = "\b"
"""In a text of click: the paragraph that follows keeps its lines."""
_HEADING: Final = re.compile(r"(\w+):")

TOPICS: Final = """\
`monarch help` lists pages on topics, such as the configuration and troubleshooting.
"""


def pages() -> dict[str, str]:
    """Return the text of each manual page by its file name."""
    found = {"monarch.1": _page((), monarch)}
    for name in VERBS:
        found[f"monarch-{name}.1"] = _page((name,), command_of(name))
    return found


def _page(words: tuple[str, ...], command: click.Command) -> str:
    name = "-".join(("monarch", *words))
    title = f'.TH {_quoted(name.upper())} 1 "" {_quoted(f"monarch {__version__}")} '
    summary = summary_of(words, command).removesuffix(".")
    lines = [title + _quoted("Monarch"), ".SH NAME", f"{_plain(name)} \\- "]
    lines[-1] += _plain(summary)
    lines += [".SH SYNOPSIS", *_synopsis(words, command)]
    lines += [".SH DESCRIPTION", *_text(command.help or summary)]
    if words:
        lines += [".SH OPTIONS", *_options(words, command)]
        for more, verb in below(words, command):
            lines += [f".SH {_quoted(' '.join(more).upper())}", *_synopsis(more, verb)]
            lines += [".PP", *_text(verb.help or ""), *_options(more, verb)]
    else:
        lines += [".SH VERBS", *_verbs(), ".PP", *_text(TOPICS)]
    lines += _epilog(command)
    others = [f"monarch-{verb}" for verb in VERBS if (verb,) != words]
    pages = [f".BR {_plain(page)} (1)" for page in (["monarch"] if words else others)]
    return "\n".join([*lines, ".SH SEE ALSO", *pages]) + "\n"


def _verbs() -> Iterator[str]:
    for name, verb in VERBS.items():
        yield from (".TP", f".BR {_plain(f'monarch-{name}')} (1)", _plain(verb.help))


def _synopsis(words: tuple[str, ...], command: click.Command) -> list[str]:
    ctx = context_of(words, command)
    pieces = " ".join(command.collect_usage_pieces(ctx))
    return [f".B {_plain(ctx.command_path)}", _plain(pieces)]


def _options(words: tuple[str, ...], command: click.Command) -> Iterator[str]:
    for option, meaning in records(context_of(words, command)):
        yield from (".TP", f".B {_plain(option)}", *_filled(meaning))


def _epilog(command: click.Command) -> Iterator[str]:
    """Yield the text below the options; a verbatim block may have its own heading."""
    pending = "NOTES"
    for block in _blocks(command.epilog or ""):
        first, _, rest = block.removeprefix(VERBATIM + "\n").partition("\n")
        heading = _HEADING.fullmatch(first)
        if block.startswith(VERBATIM) and heading:
            yield f".SH {heading[1].upper()}"
            yield from _verbatim(rest)
            pending = "NOTES"
            continue
        if pending:
            yield f".SH {pending}"
        pending = ""
        yield from (".PP", *_block(block))


def _text(text: str) -> Iterator[str]:
    for number, block in enumerate(_blocks(text)):
        if number:
            yield ".PP"
        yield from _block(block)


def _blocks(text: str) -> list[str]:
    return [block for block in re.split(r"\n\s*\n", cleandoc(text)) if block.strip()]


def _block(block: str) -> Iterator[str]:
    if block.startswith(VERBATIM):
        yield from _verbatim(block.removeprefix(VERBATIM + "\n"))
    else:
        yield from _filled(block)


def _verbatim(text: str) -> Iterator[str]:
    yield from (".nf", *map(_plain, text.splitlines()), ".fi")


def _filled(text: str) -> list[str]:
    """Return running text, with line breaks of its own."""
    lines = textwrap.wrap(
        " ".join(text.split()), COLUMNS, break_on_hyphens=False, break_long_words=False
    )
    return [_plain(line) for line in lines]


def _quoted(text: str) -> str:
    return f'"{_plain(text)}"'


def _plain(text: str) -> str:
    """Return text that roff prints as it is."""
    escaped = text.replace("\\", "\\e").replace("-", "\\-").replace("`", "\\(ga")
    return re.sub(r"^(?=[.'])", r"\\&", escaped)
