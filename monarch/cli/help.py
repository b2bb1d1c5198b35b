"""`monarch help TOPIC`: shows a verb, a page on a topic, or one entry of a page."""

import os
import re
import sys
from collections import Counter
from collections.abc import Iterator
from difflib import get_close_matches
from importlib.resources import files
from io import StringIO
from typing import Final

import click

from monarch.errors import UsageError

COLUMNS_MAX: Final = 100
REFERENCE: Final = ("configuration", "loader", "metrics", "report-fields")
"""The topics with an entry for each key."""
GENERATED: Final = ("metrics", "report-fields")
MENTIONS_MAX: Final = 6
# A link to another page or into a repository, which a terminal cannot follow.
_PAGE_LINK: Final = re.compile(r"\[([^]]+)\]\((?!\w+:)[^)]*\)")
_HEADING: Final = re.compile(r"## (\S+)")
_ENTRY: Final = re.compile(r"(?:- |\| )`([^`]+)`")


@click.command("help")
@click.argument("topic", nargs=-1)
def help_command(topic: tuple[str, ...]) -> None:
    """Show the help of a verb, a page on a topic, or the meaning of one key.

    \b
    Examples:
      monarch help
      monarch help troubleshooting
      monarch help config show
      monarch help cold_open.wait_max
    """
    name = " ".join(topic)
    verb = _verb_text(topic) if name.strip() else _list_text()
    text = page(name)
    if verb is not None and text is not None:
        show(f"```text\n{verb}\n```\n\n{text}")
    elif verb is not None:
        click.echo(verb)
    elif text := text or "\n".join([*entries(name)] or mentions(name)):
        show(text)
    else:
        raise UsageError(f"no help on {name!r}{_nearest(name)}; see `monarch help`")


def topics() -> list[str]:
    """Return the topics that have a page."""
    found = (files("monarch") / "pages").iterdir()
    names = (path.name for path in found)
    return sorted(name.removesuffix(".md") for name in names if name.endswith(".md"))


def page(topic: str) -> str | None:
    """Return the page on a topic as Markdown, None for an unknown topic."""
    if topic not in topics():
        return None
    return (files("monarch") / "pages" / f"{topic}.md").read_text()


def entries(key: str) -> Iterator[str]:
    """Yield the entries of a key, of all that end with it, or of all keys below it."""
    key = re.sub(r"\[\d*\]", "", key)
    for topic in REFERENCE:
        for heading, name, text in _blocks(page(topic) or ""):
            plain = name.replace("[]", "")
            known = (heading, name, plain, plain.rpartition(".")[2])
            if key in known or plain.startswith(f"{key}."):
                yield text


def mentions(word: str) -> Iterator[str]:
    """Yield a heading, and a line for each page with the word, most mentions first."""
    word_alone = re.compile(rf"(?<![\w-]){re.escape(word)}s?(?![\w-])", re.IGNORECASE)
    found = Counter(
        {
            topic: len(word_alone.findall(page(topic) or ""))
            for topic in topics()
            if topic not in GENERATED
        }
    )
    if not any(found.values()):
        return
    yield f"No page is called {word!r}. These mention it (`monarch help TOPIC`):\n"
    for topic, count in found.most_common(MENTIONS_MAX):
        if count:
            yield f"- {topic}: {', '.join(_headings(page(topic) or '', word_alone))}"


def _headings(markdown: str, wanted: re.Pattern[str]) -> Iterator[str]:
    """Yield the headings of the sections of a page that mention a word."""
    title, *sections = re.split(r"^## ", markdown, flags=re.MULTILINE)
    if wanted.search(title):
        yield "the beginning"
    yield from (one.partition("\n")[0] for one in sections if wanted.search(one))


def show(markdown: str) -> None:
    """Print Markdown: formatted and paged on a terminal, unchanged elsewhere."""
    if not sys.stdout.isatty() or os.environ.get("TERM") == "dumb":
        click.echo(markdown.rstrip("\n"))
        return
    from rich.markdown import Markdown
    from rich.theme import Theme

    from monarch.cli.terminal import make_console

    terminal = make_console()
    width = min(terminal.width, COLUMNS_MAX)
    # The default is cyan on black, even where all else is black on white.
    theme = Theme({"markdown.code": "bold"})
    laid_out = make_console(
        file=StringIO(), force_terminal=True, width=width, theme=theme
    )
    laid_out.print(Markdown(_PAGE_LINK.sub(r"\1", markdown), hyperlinks=False))
    assert isinstance(laid_out.file, StringIO)
    text = laid_out.file.getvalue()
    if text.count("\n") < terminal.height:
        click.echo(text, nl=False)
    else:
        click.echo_via_pager(text)


def _verb_text(words: tuple[str, ...]) -> str | None:
    """Return the `--help` text of a verb, None for an unknown verb."""
    from monarch.cli import monarch

    command: click.Command = monarch
    ctx = click.Context(monarch, info_name="monarch", **monarch.context_settings)
    for word in words:
        below = (
            command.get_command(ctx, word) if isinstance(command, click.Group) else None
        )
        if below is None:
            return None
        command = below
        ctx = click.Context(command, ctx, word, **command.context_settings)
    return command.get_help(ctx)


def _list_text() -> str:
    from monarch.cli import VERBS

    formatter = click.HelpFormatter()
    formatter.write_usage("monarch help", "[TOPIC]")
    with formatter.section("Verbs"):
        formatter.write_dl([(name, verb.help) for name, verb in VERBS.items()])
    with formatter.section("Topics"):
        formatter.write_dl([(topic, _summary(topic)) for topic in topics()])
    formatter.write_paragraph()
    formatter.write_text(
        "A configuration key, a metric or a field of a report is a topic, too: "
        "monarch help cold_open.mode"
    )
    return formatter.getvalue().rstrip("\n")


def _summary(topic: str) -> str:
    """Return the first sentence of a page, which follows its title."""
    _, _, text = (page(topic) or "").partition("\n\n")
    return " ".join(text.split()).partition(". ")[0].removesuffix(".") + "."


def _blocks(markdown: str) -> Iterator[tuple[str, str, str]]:
    """Yield (section, key, text) of all entries; a section's own text has no key."""
    heading, name, lines = "", "", list[str]()
    for line in [*markdown.splitlines(), "## "]:
        entry = _ENTRY.match(line)
        if entry or line.startswith("## "):
            if lines:
                yield heading, name, "\n".join(lines).rstrip("\n")
            lines, name = [], entry[1] if entry else ""
        if found := _HEADING.match(line):
            heading = found[1]
        elif heading or entry:
            lines.append(_row(line) if line.startswith("|") else line)


def _row(line: str) -> str:
    """Return a row of a table as an entry of a list."""
    name, *facts, text = line.strip("| ").split(" | ")
    return f"- {name} ({', '.join(fact for fact in facts if fact != '-')}): {text}"


def _nearest(name: str) -> str:
    from monarch.cli import VERBS

    keys = [
        key for topic in REFERENCE for _, key, _ in _blocks(page(topic) or "") if key
    ]
    plain = [key.replace("[]", "") for key in keys]
    near = get_close_matches(name, [*VERBS, *topics(), *plain], n=1)
    return f"; did you mean {near[0]!r}?" if near else ""
