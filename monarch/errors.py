"""The errors that people see as one line and an exit code."""

from typing import ClassVar


class MonarchError(Exception):
    """Monarch cannot do its part; the program itself is not at fault."""

    exit_code: ClassVar[int] = 125


class UsageError(MonarchError):
    """What the user asked for cannot be meant: nothing is started."""

    exit_code: ClassVar[int] = 2


class ConfigError(UsageError):
    """The configuration is refused; its text holds one line for each fault."""

    def __init__(self, lines: tuple[str, ...]) -> None:
        super().__init__("\n".join(lines))
        self.lines = lines
