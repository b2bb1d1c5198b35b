"""Shared segments read and written by tests, by the layout of the product."""

import struct
from pathlib import Path
from typing import Any

import numpy as np

from monarch.native import CONSTANTS, DTYPES, ProcessState, SegmentKind

UNSIGNED = {1: "B", 2: "H", 4: "I", 8: "Q"}
"""The format of struct for an unsigned integer of so many bytes."""

Places = dict[str, tuple[int, str]]


def places(name: str) -> Places:
    """Offset and format of each field of a struct, by its name: "seg.kind"."""
    return _places(DTYPES[name], 0, "")


def _places(dtype: np.dtype[Any], start: int, prefix: str) -> Places:
    found: Places = {}
    for name, field in (dtype.fields or {}).items():
        inner, offset = field[0], start + int(field[1])
        if inner.fields:
            found |= _places(inner, offset, f"{prefix}{name}.")
        elif inner.kind == "u":
            found[prefix + name] = (offset, f"={UNSIGNED[inner.itemsize]}")
        elif inner.kind == "S":
            found[prefix + name] = (offset, f"={inner.itemsize}s")
    return found


def write_field(path: Path, field: str, value: int | bytes) -> None:
    """Overwrite a field in the head of a segment, which is any of them: "seg.kind"."""
    offset, form = places("catalog")[field]
    with path.open("r+b") as segment:
        segment.seek(offset)
        segment.write(struct.pack(form, value))


def described() -> dict[str, Any]:
    """The layout for a program without numpy to make and read segments, for JSON."""
    process = DTYPES["counters"].fields["process"]  # type: ignore[index]
    return {
        "version": CONSTANTS["LAYOUT_VERSION"],
        "launcher": int(ProcessState.LAUNCHER),
        "first_process": int(process[1]),
        "process_bytes": DTYPES["process"].itemsize,
        "process": places("process"),
        "segments": {
            name: {
                "kind": int(SegmentKind[name.upper()]),
                "bytes": DTYPES[name].itemsize,
                "fields": places(name),
            }
            for name in ("requests", "counters")
        },
    }
