"""The options of one `monarch run`, and how its agent reads them.

The launcher refuses invalid options before it starts an agent. So the agent reads the
words without the library that explains options to users.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Final

from monarch.errors import UsageError


@dataclass(frozen=True, slots=True)
class RunOptions:
    """The options of one `monarch run`, as text.

    Args:
        settings: each `KEY=VALUE` of --set.
        tiers: each `KIND:CAPACITY[:PATH]` of --tier.
        hosts: the nodes of the job, as a list.
        wait: the launcher waits until the job has ended on this node.
    """

    config: str | None = None
    settings: tuple[str, ...] = ()
    data: tuple[str, ...] = ()
    tiers: tuple[str, ...] = ()
    job: str | None = None
    report: str | None = None
    index: str | None = None
    hosts: str | None = None
    secret_file: str | None = None
    strict: bool = False
    quiet: bool = False
    wait: bool = False

    def given(self) -> dict[str, tuple[str, ...]]:
        """Return the options that configure the agent, with their values, by name."""
        options = {
            "config": self.config,
            "data": self.data,
            "hosts": self.hosts,
            "index": self.index,
            "report": self.report,
            "secret-file": self.secret_file,
            "set": self.settings,
            "tier": self.tiers,
        }
        return {
            name: (value,) if isinstance(value, str) else value
            for name, value in options.items()
            if value is not None and value != ()
        }


_LETTERS: Final = {"c": "config", "q": "quiet"}
_PLURALS: Final = {"set": "settings", "tier": "tiers"}


def _key(name: str) -> str:
    """Return the field of RunOptions for the name of an option."""
    return _PLURALS.get(name, name.replace("-", "_"))


# False: a flag. None: one value. (): a value each time it is given.
_FORMS: Final[Mapping[str, Any]] = {
    field.name: field.default for field in fields(RunOptions)
}


def parse_run_argv(argv: Sequence[str]) -> tuple[RunOptions, list[str]]:
    """Return the options and the program's argv of a `monarch run` command line.

    Args:
        argv: the arguments after `run`.

    Raises:
        UsageError: an option is not valid, or no program is given.
    """
    given: dict[str, Any] = {}
    rest = list(argv)
    while rest and len(rest[0]) > 1 and rest[0].startswith("-"):
        word = rest.pop(0)
        if word == "--":
            break
        for name, value in _options_of(word):
            _set_option(given, name, value, rest)
    if not rest:
        raise UsageError("no program given: monarch run [OPTIONS] -- PROGRAM [ARG]...")
    return RunOptions(**given), rest


def _options_of(word: str) -> Iterator[tuple[str, str | None]]:
    """Yield the names of the options in a word, with the value of the last one."""
    if word.startswith("--"):
        name, equals, value = word.removeprefix("--").partition("=")
        yield name, value if equals else None
        return
    for place, letter in enumerate(word[1:], 2):
        name = _LETTERS.get(letter, letter)
        if _FORMS.get(_key(name), False) is not False:
            yield name, word[place:] or None
            return
        yield name, None


def _set_option(
    given: dict[str, Any], name: str, value: str | None, rest: list[str]
) -> None:
    """Set one option; its value is the next word of the rest if it has none."""
    key = _key(name)
    if key not in _FORMS or name in _PLURALS.values():
        raise UsageError(f"no such option: {'-' if len(name) == 1 else '--'}{name}")
    form = _FORMS[key]
    if form is False:
        if value is not None:
            raise UsageError(f"option --{name} takes no value")
        given[key] = True
        return
    if value is None:
        if not rest:
            raise UsageError(f"option --{name} needs a value")
        value = rest.pop(0)
    given[key] = (*given.get(key, ()), value) if form == () else value
