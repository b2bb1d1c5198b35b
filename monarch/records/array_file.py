"""Files of arrays: a JSON header, then the aligned arrays, which readers map."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO, Final

import numpy as np
import numpy.typing as npt

from monarch.records.errors import RecordsError

Array = npt.NDArray[Any]

_MAGIC_BYTES: Final = 8
_ALIGN: Final = 64
_HEADER_MAX: Final = 1 << 30
_KINDS: Final = "biufV"


def write_arrays(
    out: BinaryIO, magic: bytes, header: Mapping[str, Any], arrays: Mapping[str, Array]
) -> None:
    """Write a header and arrays to an open file.

    Args:
        magic: 8 bytes that identify the kind of file.
        header: any JSON values.

    Raises:
        OSError: the file cannot be written.
    """
    text = header_text(header, arrays)
    padding = -(_MAGIC_BYTES + 8 + len(text)) % _ALIGN
    out.write(magic + (len(text) + padding).to_bytes(8, "little"))
    out.write(text + b" " * padding)
    for array in arrays.values():
        raw = raw_bytes(array)
        out.write(raw)
        out.write(bytes(-len(raw) % _ALIGN))


def load_arrays(
    file: Path, magic: bytes, kind: str, version: int
) -> tuple[dict[str, Any], dict[str, Array]]:
    """Return the header of a file and its mapped arrays.

    Args:
        kind: kind of the file, for messages, such as "a record index".
        version: the `version` that its header must have.

    Raises:
        OSError: the file cannot be read.
        RecordsError: it is of another kind or version, or is incomplete.
    """
    with file.open("rb") as opened:
        start = opened.read(_MAGIC_BYTES + 8)
        length = int.from_bytes(start[_MAGIC_BYTES:], "little")
        if start[:_MAGIC_BYTES] != magic or length > _HEADER_MAX:
            raise RecordsError(f"{file} is not {kind}")
        text = opened.read(length)
    try:
        header = json.loads(text)
        if header["version"] != version:
            raise RecordsError(f"{file} is {kind} of another version")
        return header, _mapped(file, header["arrays"], len(start) + length)
    except (KeyError, TypeError, ValueError) as error:
        raise RecordsError(f"{file} is not {kind}: {error}") from error


def header_text(header: Mapping[str, Any], arrays: Mapping[str, Array]) -> bytes:
    """Return a header with the types and shapes of the arrays, as JSON."""
    rows = [[name, _type_of(one), list(one.shape)] for name, one in arrays.items()]
    return json.dumps({**header, "arrays": rows}, sort_keys=True).encode()


def raw_bytes(array: Array) -> memoryview:
    """Return the bytes of an array."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


def _type_of(array: Array) -> Any:
    return array.dtype.str if array.dtype.names is None else array.dtype.descr


def _mapped(file: Path, rows: Any, at: int) -> dict[str, Array]:
    # A plain array over the mapping: each access to a memmap costs a Python call.
    whole = np.asarray(np.memmap(file, np.uint8, "r") if rows else [], np.uint8)
    arrays = {}
    for name, given, shape in rows:
        dtype = np.dtype(given if isinstance(given, str) else [*map(tuple, given)])
        if dtype.kind not in _KINDS or dtype.hasobject:
            raise ValueError(f"an array of type {given}")
        size = dtype.itemsize * int(np.prod(shape, dtype=np.int64))
        if not 0 <= size <= len(whole) - at:
            raise RecordsError(f"{file} is incomplete")
        arrays[name] = whole[at : at + size].view(dtype).reshape(shape)
        at += size + -size % _ALIGN
    if at != len(whole) and rows:
        raise RecordsError(f"{file} is incomplete")
    return arrays
