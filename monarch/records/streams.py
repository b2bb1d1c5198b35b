"""The Records of TFRecord files and tar archives, found by their headers."""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from monarch.records.headers import HeaderReader, Opens
from monarch.records.index import RecordIndex, units_of

_CRC_POLYNOMIAL: Final = 0x82F63B78  # CRC-32C, RFC 3720 appendix B.4, reflected
_CRC_DELTA: Final = 0xA282EAD8  # of TensorFlow's masked checksums
_LENGTH: Final = struct.Struct("<QI")
_TRAILER: Final = 4

_BLOCK: Final = 512
_EMPTY: Final = bytes(_BLOCK)
_REGULAR: Final = b"\x000" + b"7"
_LONG_NAME, _LONG_LINK, _PAX, _PAX_GLOBAL, _SPARSE = b"LKxgS"
_LINKS: Final = b"123456"
_HEADER_NAMES_MAX: Final = 1 << 20


# -- TFRecord --------------------------------------------------------------------------


def is_tfrecord(start: bytes) -> bool:
    """Return whether a file begins with the header of a TFRecord.

    Its checksum makes a mistake improbable.
    """
    if len(start) < _LENGTH.size:
        return False
    _, checksum = _LENGTH.unpack_from(start)
    return bool(checksum == masked_crc(start[:8]))


def masked_crc(data: bytes) -> int:
    """Return the CRC-32C of some bytes in the form that TFRecords have."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (_CRC_POLYNOMIAL if crc & 1 else 0)
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + _CRC_DELTA) & 0xFFFFFFFF


def index_tfrecord(path: Path, opens: Opens = HeaderReader) -> RecordIndex:
    """Return the index of an uncompressed TFRecord file.

    Raises:
        RecordsError: it cannot be read, or is damaged.
    """
    offsets, lengths = array("Q"), array("Q")
    with opens(str(path), drops_pages=True) as file:
        at = 0
        while at < file.size:
            header = file.at(at, _LENGTH.size)
            begin = at + _LENGTH.size
            length = _LENGTH.unpack(header)[0] if len(header) == _LENGTH.size else 0
            if len(header) < _LENGTH.size or begin + length + _TRAILER > file.size:
                raise file.refuse(f"is truncated or damaged at record {len(offsets)}")
            offsets.append(begin)
            lengths.append(length)
            at = begin + length + _TRAILER
        file.check_unchanged()
        units = units_of(offsets, lengths, file.path)
        return RecordIndex("tfrecord", (file.object,), units)


# -- tar -------------------------------------------------------------------------------


class Member(NamedTuple):
    """One file of an archive.

    Attributes:
        begin: where its first header begins.
        data: where its bytes begin.
        bytes: how many there are.
    """

    name: str
    begin: int
    data: int
    bytes: int


def is_tar(start: bytes) -> bool:
    """Return whether a file begins with the header of an archive of POSIX or GNU."""
    return start[257:262] == b"ustar"


def index_tar(path: Path, opens: Opens = HeaderReader) -> RecordIndex:
    """Return the index of an uncompressed archive, in which a Record is a sample.

    As in WebDataset, a sample are the members after each other whose names are the same
    up to the first dot of the last part. A Record is that part of the archive;
    `members()` splits it.

    Raises:
        RecordsError: it cannot be read, or is damaged.
    """
    begins, ends = array("Q"), array("Q")
    with opens(str(path), drops_pages=True) as file:
        last = None
        for member in _members(file):
            key = sample_key(member.name)
            if key != last:
                begins.append(member.begin)
                ends.append(0)
            ends[-1] = member.data + member.bytes
            last = key
        file.check_unchanged()
        lengths = [end - begin for begin, end in zip(begins, ends, strict=True)]
        units = units_of(begins, lengths, file.path)
        return RecordIndex("tar", (file.object,), units)


def sample_key(name: str) -> str:
    """Return what the members of a sample have in common."""
    folder, slash, last = name.rpartition("/")
    return f"{folder}{slash}{last.partition('.')[0]}"


def members(record: memoryview | bytes) -> Iterator[tuple[str, memoryview]]:
    """Return the name and the bytes of each member of a Record of an archive.

    Raises:
        ValueError: it is no Record of an archive.
    """
    view = memoryview(record)
    at, names = 0, _Names()
    while at < len(view):
        header = bytes(view[at : at + _BLOCK])
        kind, size = _kind_and_size(header)
        data = at + _BLOCK
        if kind in _REGULAR:
            name, size = names.take(header, size)
            yield name, view[data : data + size]
        elif kind not in _LINKS:
            names.note(kind, bytes(view[data : data + size]))
        at = data + size + -size % _BLOCK


def _members(file: HeaderReader) -> Iterator[Member]:
    """Return the regular files of an archive."""
    at = begin = 0
    names = _Names()
    while at < file.size:
        header = file.at(at, _BLOCK)
        if header == _EMPTY:
            return
        try:
            kind, size = _kind_and_size(header)
            name, size = names.take(header, size) if kind in _REGULAR else ("", size)
        except ValueError as error:
            raise file.refuse(f"is damaged at byte {at}: {error}") from error
        data = at + _BLOCK
        if kind in _REGULAR:
            if data + size > file.size:
                raise file.refuse(f"is truncated in {name}")
            yield Member(name, begin, data, size)
        elif kind == _SPARSE:
            raise file.refuse("has sparse files, which are not supported")
        elif kind not in _LINKS:
            if size > _HEADER_NAMES_MAX:
                raise file.refuse(f"is damaged at byte {at}: a name of {size} bytes")
            names.note(kind, file.at(data, size))
        at = data + size + -size % _BLOCK
        if kind in _REGULAR or kind in _LINKS:
            begin, names = at, _Names(names.globals)


def _kind_and_size(header: bytes) -> tuple[int, int]:
    """Return the type and the size that a header tells.

    Raises:
        ValueError: it is no header.
    """
    if len(header) < _BLOCK:
        raise ValueError("its end is missing")
    told = int(header[148:156].strip(b" \0") or b"0", 8)
    if told != sum(header) - sum(header[148:156]) + 8 * ord(" "):
        raise ValueError("the checksum of a header is wrong")
    field = header[124:136]
    if field[0] & 0x80:  # GNU: base 256
        size = int.from_bytes(field, "big") & ((1 << 95) - 1)
    else:
        size = int(field.strip(b" \0") or b"0", 8)
    if size < 0:
        raise ValueError("a size is negative")
    kind = header[156]
    # Links and directories have no data, whatever size they tell.
    return kind, 0 if kind in _LINKS else size


class _Names:
    """What headers have told of the next file: a long name, or fields of pax."""

    def __init__(self, known: dict[str, str] | None = None) -> None:
        self.globals = dict(known or {})
        self._fields: dict[str, str] = {}

    def note(self, kind: int, data: bytes) -> None:
        if kind == _LONG_NAME:
            self._fields["path"] = data.rstrip(b"\0").decode(errors="surrogateescape")
        elif kind == _PAX:
            self._fields |= _pax_fields(data)
        elif kind == _PAX_GLOBAL:
            self.globals |= _pax_fields(data)

    def take(self, header: bytes, size: int) -> tuple[str, int]:
        """Return the name and the size of the file of a header."""
        fields = self.globals | self._fields
        self._fields = {}
        name = header[:100].partition(b"\0")[0]
        prefix = header[345:500].partition(b"\0")[0]
        if prefix and header[257:263] == b"ustar\0":
            name = prefix + b"/" + name
        told = fields.get("path", name.decode(errors="surrogateescape"))
        size = int(fields.get("size", size))
        if size < 0:
            raise ValueError("a size is negative")
        return told, size


def _pax_fields(data: bytes) -> dict[str, str]:
    """Return the records `LENGTH KEY=VALUE` of an extended header (POSIX pax)."""
    found = {}
    while b" " in data:
        digits, _, _ = data.partition(b" ")
        length = int(digits) if digits.isdigit() else 0
        if not length:
            break
        key, _, value = data[len(digits) + 1 : length - 1].partition(b"=")
        found[key.decode(errors="replace")] = value.decode(errors="surrogateescape")
        data = data[length:]
    return found
