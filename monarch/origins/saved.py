"""A saved index: the block of one root in a file, and what it was made from.

The file is the block as ``layout.h`` describes it, then two lines of text: a checksum
of the block's header and of the second line, which is a JSON object with the root's
path, the patterns and the counts of what was left out. The block's own digest covers
the rest.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from monarch import native
from monarch.atomic_file import whole_file
from monarch.catalog.block import Block
from monarch.catalog.layout import Bytes
from monarch.catalog.unmanaged import Patterns, Unmanaged
from monarch.errors import MonarchError
from monarch.origins.layout import LAYOUT

DESCRIPTION_BYTES_MAX = 1 << 20
READ_BYTES = 64 << 20
FORMAT = 1


class IndexUnusableError(MonarchError):
    """A saved index is broken or stale; the text says why in words."""


@dataclass(frozen=True, slots=True)
class RootIndex:
    """The index of one root and what it was made from.

    Attributes:
        root: the realpath of the root when it was scanned.
        unmanaged: names left to the origin, by reason.
    """

    block: Block
    root: bytes
    patterns: Patterns
    unmanaged: Mapping[Unmanaged, int] = field(default_factory=dict)


def save_index(file: Path, index: RootIndex) -> int:
    """Write an index, readable as the process's umask allows; return its bytes."""
    umask = os.umask(0o077)
    os.umask(umask)
    with whole_file(file, mode=0o666 & ~umask) as out:
        described = _described(index)
        out.write(index.block.memory.data)
        out.write(described)
    return len(index.block.memory) + len(described)


def read_index(file: Path) -> RootIndex:
    """Read an index that anyone may have written, and prove that it is whole.

    Raises:
        IndexUnusableError: it is not an index, or not as it was written.
    """
    try:
        with file.open("rb") as source:
            memory = _read_block(source)
            text = source.read(DESCRIPTION_BYTES_MAX + 1)
    except OSError as error:
        raise IndexUnusableError(error.strerror or "it cannot be read") from error
    described = _read_description(memory, text)
    try:
        native.index_check(memory)
    except native.BlockError as error:
        raise IndexUnusableError(str(error)) from error
    return RootIndex(
        block=Block(memory, LAYOUT),
        root=os.fsencode(described["root"]),
        patterns=Patterns(**{k: tuple(v) for k, v in described["patterns"].items()}),
        unmanaged={Unmanaged(k): int(v) for k, v in described["unmanaged"].items()},
    )


def _read_block(source: BinaryIO) -> Bytes:
    dtype = LAYOUT.dtypes["index"]
    head = source.read(dtype.itemsize)
    if len(head) < dtype.itemsize or not head.startswith(b"MONARCH\0"):
        raise IndexUnusableError("it is not a saved index")
    seg = np.frombuffer(head, dtype)[0]["seg"]
    if seg["version"] != LAYOUT.constants["LAYOUT_VERSION"]:
        raise IndexUnusableError("it was written by another version of Monarch")
    length = int(seg["length"])
    if not dtype.itemsize <= length <= os.fstat(source.fileno()).st_size:
        raise IndexUnusableError("it is damaged (incomplete)")
    memory = np.empty(length, np.uint8)
    memory[: len(head)] = np.frombuffer(head, np.uint8)
    rest = memory.data[len(head) :]
    while len(rest):
        count = source.readinto(rest[:READ_BYTES])  # type: ignore[attr-defined]
        if not count:
            raise IndexUnusableError("it is damaged (incomplete)")
        rest = rest[count:]
    return memory


def _described(index: RootIndex) -> bytes:
    description = {
        "format": FORMAT,
        "root": os.fsdecode(index.root),
        "patterns": asdict(index.patterns),
        "unmanaged": {str(reason): n for reason, n in index.unmanaged.items()},
    }
    line = json.dumps(description, sort_keys=True).encode() + b"\n"
    return _seal(index.block.memory, line) + line


def _seal(memory: Bytes, line: bytes) -> bytes:
    header = memory[: LAYOUT.dtypes["index"].itemsize].tobytes()
    return b"%016x\n" % native.hash64(header + line)


def _read_description(memory: Bytes, text: bytes) -> dict[str, Any]:
    seal, newline, line = text.partition(b"\n")
    if seal + newline != _seal(memory, line):
        raise IndexUnusableError("it is damaged (description)")
    described: dict[str, Any] = json.loads(line)
    if described.get("format") != FORMAT:
        raise IndexUnusableError("it was written by another version of Monarch")
    return described
