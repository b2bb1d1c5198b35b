"""The error of all code that reads Records."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from monarch.errors import UsageError, printable


class RecordsError(UsageError):
    """Records cannot be read as requested; the text names the path.

    Control characters in file names and in library messages are made printable.
    """

    def __init__(self, text: str) -> None:
        super().__init__(printable(text))


@contextmanager
def read_by_library(path: str | os.PathLike[str]) -> Iterator[None]:
    """Turn any exception of a library that reads a file into a one-line error.

    Raises:
        RecordsError: the library cannot read it.
    """
    try:
        yield
    except RecordsError:
        raise
    except Exception as error:
        told = " ".join(str(error).split())
        raise RecordsError(f"{path}: {told or type(error).__name__}") from error
