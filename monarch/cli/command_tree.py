"""The verbs with their options as values, for manual pages and completion."""

from collections.abc import Iterator
from dataclasses import dataclass
from inspect import cleandoc
from typing import Final

import click

from monarch.cli import VERBS, monarch

PATH_METAVARS: Final = ("FILE", "PATH", "DIR")
"""The names of values that are paths, in the help of options."""

Called = tuple[tuple[str, ...], click.Command]
"""A command, with the words after `monarch` that call it."""


@dataclass(frozen=True, slots=True)
class Verb:
    """The properties of a command for completion.

    Args:
        words: the words after `monarch` that call it.
        wanted: the words that may follow; empty: paths.
    """

    words: tuple[str, ...]
    summary: str
    options: tuple["Option", ...]
    wanted: tuple[str, ...]

    @property
    def name(self) -> str:
        """Return the words as one text."""
        return " ".join(self.words)


@dataclass(frozen=True, slots=True)
class Option:
    """One option: its names, its meaning, and its values."""

    names: tuple[str, ...]
    meaning: str
    takes_value: bool
    takes_path: bool
    repeats: bool
    choices: tuple[str, ...]


def verbs() -> Iterator[Verb]:
    """Yield all commands, each verb before the commands below it."""
    for name in VERBS:
        stack: list[Called] = [((name,), command_of(name))]
        while stack:
            words, command = stack.pop(0)
            inner = list(below(words, command))
            stack = [*inner, *stack]
            yield _verb(words, command, tuple(more[-1] for more, _ in inner))


def _verb(
    words: tuple[str, ...], command: click.Command, inner: tuple[str, ...]
) -> Verb:
    wanted = inner
    for parameter in command.params:
        if isinstance(parameter, click.Argument):
            wanted = _choices(parameter) or wanted
    options = tuple(map(_option, options_of(context_of(words, command))))
    return Verb(words, summary_of(words, command), options, wanted)


def _option(option: click.Option) -> Option:
    names = (*option.opts, *option.secondary_opts)
    takes = not (option.is_flag or option.count)
    metavar = option.metavar or ""
    is_path = metavar.startswith(PATH_METAVARS) or isinstance(option.type, click.Path)
    meaning = " ".join((option.help or "").split()).partition(". ")[0]
    choices = _choices(option)
    repeats = option.multiple
    return Option(
        names, meaning.removesuffix("."), takes, takes and is_path, repeats, choices
    )


def _choices(parameter: click.Parameter) -> tuple[str, ...]:
    kind = parameter.type
    return tuple(map(str, kind.choices)) if isinstance(kind, click.Choice) else ()


def global_options() -> tuple[Option, ...]:
    """Return the options before a verb."""
    return tuple(map(_option, options_of(context_of((), monarch))))


def command_of(name: str) -> click.Command:
    """Return the command of a verb of the table."""
    command = monarch.get_command(click.Context(monarch), name)
    assert command is not None
    return command


def context_of(words: tuple[str, ...], command: click.Command) -> click.Context:
    """Return a context in which a command has its whole name."""
    settings = monarch.context_settings
    parent = click.Context(monarch, info_name="monarch", **settings)
    if not words:
        return parent
    name = " ".join(words)
    return click.Context(command, parent, name, **command.context_settings)


def summary_of(words: tuple[str, ...], command: click.Command) -> str:
    """Return the purpose of a command as one sentence."""
    if len(words) == 1:
        return VERBS[words[0]].help
    return command.short_help or cleandoc(command.help or "").partition("\n\n")[0]


def below(words: tuple[str, ...], command: click.Command) -> Iterator[Called]:
    """Yield the commands of a group, with the words that call them."""
    if isinstance(command, click.Group):
        ctx = click.Context(command)
        for name in command.list_commands(ctx):
            found = command.get_command(ctx, name)
            assert found is not None
            yield (*words, name), found


def records(ctx: click.Context) -> list[tuple[str, str]]:
    """Return the options of a command as users write them, with their meaning."""
    found = (parameter.get_help_record(ctx) for parameter in options_of(ctx))
    return [record for record in found if record]


def options_of(ctx: click.Context) -> list[click.Option]:
    """Return the options of a command that its help shows."""
    return [
        parameter
        for parameter in ctx.command.get_params(ctx)
        if isinstance(parameter, click.Option) and not parameter.hidden
    ]
