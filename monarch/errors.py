"""Errors that end a command with one line, and names in the form for messages."""

from typing import ClassVar


class MonarchError(Exception):
    """Monarch cannot do its part; the program is not the cause."""

    exit_code: ClassVar[int] = 125


class UsageError(MonarchError):
    """The request is invalid; nothing was started."""

    exit_code: ClassVar[int] = 2


class ConfigError(UsageError):
    """The configuration is invalid; the text has one line for each fault."""

    def __init__(self, lines: tuple[str, ...]) -> None:
        super().__init__("\n".join(lines))
        self.lines = lines

    def __reduce__(self) -> tuple[type["ConfigError"], tuple[tuple[str, ...]]]:
        """Return the parts from which another process makes the same error."""
        return type(self), (self.lines,)


def printable(text: str) -> str:
    """Return a text as one line without control characters, which terminals obey."""
    return text if text.isprintable() else text.encode("unicode_escape").decode()


def shown(path: bytes) -> str:
    """Return a path as printable text; bytes that are not UTF-8 are escaped."""
    return printable(path.decode("utf-8", "backslashreplace"))
