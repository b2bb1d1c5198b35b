"""Parsing of whole bodies of CQL frames: errors, statements, rows.

Source: "CQL BINARY PROTOCOL v4", sections 3, 4.2.5 and 9.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

from monarch.records.stores.exchange import ExchangeError

ROWS, PREPARED = 2, 4
"""Kinds of results."""
HAS_MORE, NO_METADATA = 0x02, 0x04
_GLOBAL_TABLE: Final = 0x01
_INT: Final = struct.Struct(">i")
_SHORT: Final = struct.Struct(">H")
# Types of columns whose descriptions contain other types, and how many of them.
_NESTED: Final = {0x0020: 1, 0x0021: 2, 0x0022: 1}
_CUSTOM, _UDT, _TUPLE = 0x0000, 0x0030, 0x0031
_DEPTH_MAX: Final = 8


def result_of(body: bytes) -> int:
    """Return the kind of a result."""
    return _Reader(body).take_int()


def statement_of(body: bytes) -> bytes:
    """Return the id of a prepared statement."""
    reader = _Reader(body)
    reader.take_int()
    return reader.take_string()


def error_of(body: bytes) -> tuple[int, str]:
    """Return the code and the text of an error."""
    reader = _Reader(body)
    return reader.take_int(), reader.take_string().decode(errors="replace")


class _Reader:
    """Reads the parts of a body in order."""

    def __init__(self, body: bytes) -> None:
        self._body, self._at = body, 0

    def take_int(self) -> int:
        self._at += _INT.size
        value: int = _INT.unpack_from(self._body, self._at - _INT.size)[0]
        return value

    def take_short(self) -> int:
        self._at += _SHORT.size
        value: int = _SHORT.unpack_from(self._body, self._at - _SHORT.size)[0]
        return value

    def take(self, length: int) -> bytes:
        if not 0 <= length <= len(self._body) - self._at:
            raise ExchangeError("the body of a frame is not valid")
        self._at += length
        return self._body[self._at - length : self._at]

    def take_string(self) -> bytes:
        return self.take(self.take_short())

    def skip_type(self, depth: int = 0) -> None:
        """Skip the description of a type; see [option] in the specification."""
        if depth > _DEPTH_MAX:
            raise ExchangeError("a type of a column is nested too deeply")
        kind = self.take_short()
        nested = _NESTED.get(kind, 0)
        if kind == _CUSTOM:
            self.take_string()
        elif kind == _UDT:
            self.take_string(), self.take_string()
            for _ in range(self.take_short()):
                self.take_string()
                self.skip_type(depth + 1)
        elif kind == _TUPLE:
            nested = self.take_short()
        for _ in range(nested):
            self.skip_type(depth + 1)


def values(body: bytes) -> Iterator[bytes]:
    """Yield the first value of each row of a body that describes its columns."""
    reader = _Reader(body)
    if reader.take_int() != ROWS:
        return
    flags, columns = reader.take_int(), reader.take_int()
    if flags & HAS_MORE:
        reader.take(max(0, reader.take_int()))
    if not flags & NO_METADATA:
        if flags & _GLOBAL_TABLE:
            reader.take_string(), reader.take_string()
        for _ in range(columns):
            if not flags & _GLOBAL_TABLE:
                reader.take_string(), reader.take_string()
            reader.take_string()
            reader.skip_type()
    for _ in range(reader.take_int()):
        length = reader.take_int()
        if length >= 0:
            yield reader.take(length)
        for _ in range(columns - 1):
            reader.take(max(0, reader.take_int()))
