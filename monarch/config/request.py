"""The request to an agent, and the directories of its user.

The validation of a configuration is not imported here, because that takes longer than
the rest of an agent's start: it may run in another process, which passes the values.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, cast

from monarch.errors import UsageError

if TYPE_CHECKING:
    from monarch.config.schema import Config


class Values:
    """The values of a validated section, by the names of its keys; immutable."""

    def __init__(self, values: dict[str, Any]) -> None:
        self.__dict__.update(values)

    def __repr__(self) -> str:
        return f"Values({self.__dict__})"

    def __setattr__(self, name: str, _value: object) -> None:
        raise AttributeError(f"the value {name} of a configuration cannot be set")


@dataclass(frozen=True, slots=True)
class Request:
    """The request of `monarch run` to an agent.

    Attributes:
        config: the effective configuration.
        text: the same as canonical JSON.
        command: the program's argv.
        file: the user's configuration file, if any.
    """

    config: Config
    text: str
    command: tuple[str, ...]
    quiet: bool
    file: Path | None

    def detached(self) -> Self:
        """Return the request with plain values, which another process can read."""
        return replace(self, config=cast("Config", _values(self.config)))


def _values(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(map(_values, value))
    fields = getattr(type(value), "model_fields", None)
    if fields is None:
        return value
    computed = [
        name for name, one in vars(type(value)).items() if isinstance(one, property)
    ]
    return Values(
        {name: _values(getattr(value, name)) for name in [*fields, *computed]}
    )


# -- directories --------------------------------------------------------------------


def current_directory() -> Path:
    """Return the working directory; raise UsageError if it was removed."""
    try:
        return Path.cwd()
    except OSError as error:
        reason = f"cannot be used: {error.strerror}; change to another one"
        raise UsageError(f"the working directory {reason}") from error


def run_directory() -> Path:
    """Return the working directory for `monarch run`, whose program may not need it.

    A removed directory is replaced by a path that cannot exist, so that no relative
    path resolves, as in the kernel.
    """
    try:
        return Path.cwd()
    except OSError:
        return Path("/proc/the-removed-working-directory")


def state_directory(environ: Mapping[str, str]) -> Path:
    """Return the directory of files that Monarch keeps for this user between jobs."""
    state = environ.get("XDG_STATE_HOME", "")
    if not state.startswith("/"):
        state = os.path.join(environ.get("HOME") or Path.home(), ".local/state")
    return Path(state) / "monarch-staging"


def index_directory(environ: Mapping[str, str]) -> Path:
    """Return the directory of the indexes that scans leave for later jobs.

    It need not exist.
    """
    return state_directory(environ) / "indexes"
