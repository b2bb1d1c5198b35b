"""The Records of TFRecord files and tar archives, found by their headers."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from xxhash import xxh3_64_intdigest

from monarch.records.headers import HeaderReader, Opens
from monarch.records.index import RecordIndex, units_of
from monarch.records.walking import NO_PAYLOAD, Damaged, Entries, Entry, Places

Numbers = npt.NDArray[Any]

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
    """Return the CRC-32C of some bytes, masked as in TFRecords."""
    crc = _crc(data)
    return ((crc >> 15 | crc << 17) + _CRC_DELTA) & 0xFFFFFFFF


def _crc(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (_CRC_POLYNOMIAL if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def crcs_at(data: bytes) -> npt.NDArray[np.uint32]:
    """Return `masked_crc` of the eight bytes at each offset that has eight."""
    read = np.frombuffer(data, np.uint8)
    count = max(0, len(read) - 7)
    crcs = np.zeros(count, np.uint32)
    for place, table in enumerate(_crc_tables()):
        crcs ^= table[read[place : place + count]]
    rotated = crcs >> np.uint32(15) | crcs << np.uint32(17)
    return rotated + np.uint32(_CRC_DELTA)


@cache
def _crc_tables() -> list[npt.NDArray[np.uint32]]:
    """Return the contribution of each value of each of eight bytes to their CRC-32C.

    The remainder of a sum of polynomials is the sum of their remainders; the first
    table includes the remainder of eight zero bytes.
    """
    tables = np.zeros((8, 256), np.uint32)
    zero = _crc(bytes(8))
    for place in range(8):
        for value in range(256):
            one = bytes(place) + bytes([value]) + bytes(7 - place)
            tables[place, value] = _crc(one) ^ (zero if place else 0)
    return list(tables)


class TFRecordWalk:
    """Steps from one TFRecord to the next."""

    is_free = True

    def step(self, file: Places, at: int, size: int) -> Entry:
        """Return the TFRecord that begins at an offset."""
        header = file.at(at, _LENGTH.size)
        begin = at + _LENGTH.size
        length = _LENGTH.unpack(header)[0] if len(header) == _LENGTH.size else 0
        end = begin + length + _TRAILER
        if len(header) < _LENGTH.size or end > size:
            raise Damaged("is truncated or damaged")
        return Entry(begin, length, 0, end)

    def starts(self, window: bytes, offset: int, size: int) -> Sequence[int]:
        """Return the offsets at which a length is followed by its checksum."""
        if len(window) < _LENGTH.size:
            return []
        crcs = crcs_at(window[: 8 - _LENGTH.size])
        told = np.lib.stride_tricks.sliding_window_view(
            np.frombuffer(window, np.uint8), _LENGTH.size
        )[:, 8:]
        found = np.flatnonzero(np.ascontiguousarray(told).view("<u4")[:, 0] == crcs)
        return [offset + int(place) for place in found]


def index_tfrecord(path: Path, opens: Opens = HeaderReader) -> RecordIndex:
    """Return the index of an uncompressed TFRecord file.

    Raises:
        RecordsError: it cannot be read, or is damaged.
    """
    with opens(str(path), drops_pages=True) as file:
        try:
            found = file.entries(TFRecordWalk)
        except Damaged as error:
            raise file.refuse(f"{error} at record {error.entry}") from error
        file.check_unchanged()
        units = units_of(found.begins, found.lengths, file.path)
        return RecordIndex("tfrecord", (file.object,), units)


# -- tar -------------------------------------------------------------------------------


def is_tar(start: bytes) -> bool:
    """Return whether a file begins with the header of a POSIX or GNU archive."""
    return start[257:262] == b"ustar"


def index_tar(path: Path, opens: Opens = HeaderReader) -> RecordIndex:
    """Return the index of an uncompressed archive, in which a Record is a sample.

    As in WebDataset, a sample consists of consecutive members whose names are equal up
    to the first dot of the last part. A Record is that part of the archive; `members()`
    splits it.

    Raises:
        RecordsError: it cannot be read, or is damaged.
    """
    with opens(str(path), drops_pages=True) as file:
        try:
            found = file.entries(TarWalk)
        except Damaged as error:
            raise file.refuse(f"{error}") from error
        file.check_unchanged()
        units = units_of(*_samples(found), file.path)
        return RecordIndex("tar", (file.object,), units)


def _samples(found: Entries) -> tuple[Numbers, Numbers]:
    """Return the start and the length of each sample."""
    ats, begins, lengths, keys = (
        np.frombuffer(column, np.uint64)
        for column in (found.ats, found.begins, found.lengths, found.keys)
    )
    files = np.flatnonzero(lengths != NO_PAYLOAD)
    is_first = np.ones(len(files), bool)
    is_first[1:] = keys[files[1:]] != keys[files[:-1]]
    first = np.flatnonzero(is_first)
    last = np.append(first[1:], len(files)) - 1 if len(first) else first
    starts = ats[files[first]]
    ends = (begins + lengths)[files[last]]
    return starts, ends - starts


def sample_key(name: str) -> str:
    """Return the part of a name that all members of its sample share."""
    folder, slash, last = name.rpartition("/")
    return f"{folder}{slash}{last.partition('.')[0]}"


def members(record: memoryview | bytes) -> Iterator[tuple[str, memoryview]]:
    """Yield the whole name and the bytes of each member of a Record of an archive.

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


class TarWalk:
    """Steps from one file of an archive to the next."""

    def __init__(self) -> None:
        self._globals: dict[str, str] = {}

    @property
    def is_free(self) -> bool:
        """Whether no global header determines the names or sizes of later files."""
        return self._globals.keys().isdisjoint(("path", "size"))

    def step(self, file: Places, at: int, size: int) -> Entry | None:
        """Return the file or link whose first header is at an offset."""
        names = _Names(self._globals)
        while at < size:
            header = file.at(at, _BLOCK)
            if header == _EMPTY:
                return None
            try:
                kind, length = _kind_and_size(header)
                taken = names.take(header, length) if kind in _REGULAR else ("", length)
            except ValueError as error:
                raise Damaged(f"is damaged at byte {at}: {error}") from error
            name, length = taken
            data = at + _BLOCK
            end = data + length + -length % _BLOCK
            if kind in _REGULAR:
                if data + length > size:
                    raise Damaged(f"is truncated in {name}")
                return Entry(data, length, _key_number(name), end)
            if kind in _LINKS:
                return Entry(data, NO_PAYLOAD, 0, end)
            if kind == _SPARSE:
                raise Damaged("has sparse files, which are not supported")
            if length > _HEADER_NAMES_MAX:
                raise Damaged(f"is damaged at byte {at}: a name of {length} bytes")
            try:
                names.note(kind, file.at(data, length))
            except ValueError as error:
                raise Damaged(f"is damaged at byte {at}: {error}") from error
            self._globals = names.globals
            at = end
        return None

    def starts(self, window: bytes, offset: int, size: int) -> Sequence[int]:
        """Return the offsets of headers with a correct checksum."""
        found = []
        for begin in range(-offset % _BLOCK, len(window) - _BLOCK + 1, _BLOCK):
            if window[begin + 257 : begin + 262] != b"ustar":
                continue
            with suppress(ValueError):
                _kind_and_size(window[begin : begin + _BLOCK])
                found.append(offset + begin)
        return found


def _key_number(name: str) -> int:
    """Return a number that is equal for all names of a sample."""
    return xxh3_64_intdigest(sample_key(name).encode(errors="surrogateescape"))


def _kind_and_size(header: bytes) -> tuple[int, int]:
    """Return the type and the size in a header.

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
    # Links and directories have no data, whatever size the header has.
    return kind, 0 if kind in _LINKS else size


class _Names:
    """Attributes of the next file from extra headers: a long name, or pax fields."""

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
