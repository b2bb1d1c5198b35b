"""Indexes of pack files: the next job finds them, and damage is found."""

# ruff: noqa: F811

import os
import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import xxhash

from monarch import native
from monarch.codec import Codec
from monarch.native import (
    NO_FILE,
    Packing,
    codec_library,
    is_frame_right,
    names_of,
    packing_id,
    read_index,
)
from support.processes import wait_until
from unit.test_native_packs import (  # noqa: F401
    TIER,
    ZSTD,
    Node,
    Wanted,
    make,
    spoil,
    text,
)

TAIL = struct.Struct("<QIIQQ")
MAGIC, VERSION = 0x4B43415048435241, 2
ENTRY_BYTES = 40
FILES = 30

pytestmark = pytest.mark.skipif(codec_library(ZSTD) is None, reason="no libzstd")
Make = Callable[..., Node]


@pytest.fixture
def contents() -> list[bytes]:
    return [text(20_000 + n, n) for n in range(FILES)]


def leave(node: Node) -> Path:
    """End the engine of a job that retains its Tiers; return its pack file."""
    node.engine.close()
    (segment,) = [path for path in node.segments if path.stat().st_size]
    return segment


def adopt(node: Node, left: Path, name: str = "segment-000000.pack") -> int:
    """Let another job take over a pack file of Files that have its names."""
    place = node.job.tier / name
    place.write_bytes(left.read_bytes())
    index = read_index(place)
    count = 0 if index is None else len(index)
    return node.engine.adopt_pack(TIER, name, wanted(node, index, count))


def wanted(node: Node, index: Any, count: int) -> npt.NDArray[np.uint32]:
    if index is None:
        return np.zeros(count, np.uint32)
    files = {
        bytes.fromhex(node.job.replica(file).name): file
        for file in range(len(node.job.states))
    }
    found = [files.get(name, NO_FILE) for name in names_of(index)]
    return np.array(found, np.uint32)


def again(node: Node, wanted: Wanted, start: Make, contents: list[bytes]) -> Node:
    """A later job over the same Files: its Replicas have the same names."""
    return start(contents, replace(wanted, origin=node.job.origin))


# -- written entries are found --------------------------------------------------------


@pytest.mark.parametrize("name", ["none", "lz4", "zstd:3"])
def test_later_job_adopts_all_frames_and_reads_nothing(
    make: Make,
    contents: list[bytes],
    name: str,
) -> None:
    how = Wanted(Codec.parse(name), retains=True)
    first = make(contents, how)
    first.fill(*range(FILES))
    used = first.used_bytes
    left = leave(first)
    assert left.stat().st_size == used + FILES * ENTRY_BYTES + TAIL.size

    later = again(first, how, make, contents)
    assert adopt(later, left) == FILES

    assert later.packed(*range(FILES))
    assert later.used_bytes == used == later.segments[0].stat().st_size
    later.bring(*range(FILES))
    assert [later.plain(file) for file in range(FILES)] == contents
    tally = later.tally
    assert tally["origin_read_bytes"] == 0
    assert tally["adopted_files"] == tally["unpacked_files"] == FILES
    assert tally["adopted_bytes"] == sum(map(len, contents))


def test_index_has_names_and_sizes_and_frames_are_verified(
    make: Make,
    contents: list[bytes],
) -> None:
    node = make(contents, Wanted(retains=True))
    node.fill(*range(FILES))
    left = leave(node)

    index = read_index(left)

    assert index is not None
    packing = Packing(TIER, ZSTD)
    assert set(index["id"].tolist()) == {packing_id(packing)}
    names = {bytes.fromhex(node.job.replica(n).name): n for n in range(FILES)}
    found = [names[name] for name in names_of(index)]
    assert sorted(found) == list(range(FILES))
    assert index["plain"].tolist() == [len(contents[file]) for file in found]
    assert all(is_frame_right(left, row, packing) for row in index)
    spoil(left, int(index["offset"][4]) + 300, b"\x55" * 8)
    wrong = [n for n, row in enumerate(index) if not is_frame_right(left, row, packing)]
    assert wrong == [4]


def test_job_that_does_not_retain_writes_no_index(
    make: Make,
    contents: list[bytes],
) -> None:
    node = make(contents)
    node.fill(*range(FILES))

    assert read_index(leave(node)) is None


def test_files_that_are_written_or_have_changed_are_not_adopted(
    make: Make,
    contents: list[bytes],
) -> None:
    how = Wanted(retains=True)
    first = make(contents, how)
    first.fill(*range(FILES))
    flags: Any = first.job.board.flags
    flags[native.DTYPES["flags"].itemsize + 3] = 1
    left = leave(first)
    index = read_index(left)
    assert index is not None
    assert len(index) == FILES - 1
    os.utime(first.job.origin / "file7", ns=(5, 5))

    later = again(first, how, make, contents)

    assert adopt(later, left) == FILES - 2
    packed = later.table.packed()
    assert [file for file in range(FILES) if packed[file] < 0] == [3, 7]


# -- damage ----------------------------------------------------------------------------


def seal(path: Path, change: Callable[[Any], None]) -> None:
    """Change the entries of an index, and give it a right checksum again."""
    index = read_index(path)
    assert index is not None
    change(index)
    frames = path.read_bytes()[: -TAIL.size - index.nbytes]
    said = struct.pack("<QQQ", len(index), 0, VERSION)
    digest = xxhash.xxh3_64_intdigest(index.tobytes(), xxhash.xxh3_64_intdigest(said))
    tail = TAIL.pack(len(index), VERSION, 0, digest, MAGIC)
    path.write_bytes(frames + index.tobytes() + tail)


def put(field: str, row: int, value: int) -> Callable[[Any], None]:
    def change(index: Any) -> None:
        index[field][row] = value

    return change


def swap(index: Any) -> None:
    index[[2, 3]] = index[[3, 2]]


def tail(path: Path, at: int, change: bytes) -> None:
    spoil(path, path.stat().st_size - TAIL.size + at, change)


def cut(path: Path, count: int) -> None:
    os.truncate(path, path.stat().st_size - count)


def only_tail(path: Path) -> None:
    path.write_bytes(path.read_bytes()[-TAIL.size :])


DAMAGE: dict[str, Callable[[Path], None]] = {
    "truncated by a byte": lambda path: cut(path, 1),
    "without a tail": lambda path: cut(path, TAIL.size),
    "truncated to a tail": only_tail,
    "empty": lambda path: os.truncate(path, 0),
    "magic": lambda path: tail(path, 24, b"\0"),
    "version": lambda path: tail(path, 8, b"\x01"),
    "checksum": lambda path: tail(path, 16, b"\0\0"),
    "count": lambda path: tail(path, 0, b"\xff" * 8),
    "count of blocks": lambda path: tail(path, 12, b"\xff" * 4),
    "an extent of a small file": lambda path: seal(path, put("extent", 3, 1)),
    "blocks that are not there": lambda path: seal(path, put("blocks", 3, 1)),
    "fewer entries": lambda path: tail(path, 0, b"\x01"),
    "a bit of an entry": lambda path: spoil(
        path, path.stat().st_size - TAIL.size - 3 * ENTRY_BYTES, b"\xff"
    ),
    "overlapping": lambda path: seal(path, put("offset", 5, 10)),
    "not in order": lambda path: seal(path, swap),
    "beyond the frames": lambda path: seal(path, put("offset", FILES - 1, 1 << 27)),
    "wrapped around": lambda path: seal(path, put("offset", FILES - 1, 0xFFFFFF00)),
    "too many bytes": lambda path: seal(path, put("bytes", 0, 1 << 20)),
    "no bytes": lambda path: seal(path, put("bytes", 0, 0)),
    "a plain size of 0": lambda path: seal(path, put("plain", 0, 0)),
    "a plain size that is large": lambda path: seal(path, put("plain", 0, 1 << 30)),
}


@pytest.mark.parametrize("what", DAMAGE)
def test_damaged_index_is_not_trusted(
    make: Make,
    contents: list[bytes],
    what: str,
) -> None:
    how = Wanted(retains=True)
    first = make(contents, how)
    first.fill(*range(FILES))
    left = leave(first)
    seal(left, lambda _: None)
    right = read_index(left)
    assert right is not None

    DAMAGE[what](left)

    assert read_index(left) is None
    later = again(first, how, make, contents)
    numbers = wanted(later, right, FILES)
    (later.job.tier / left.name).write_bytes(left.read_bytes())
    assert later.engine.adopt_pack(TIER, left.name, numbers) == 0
    assert later.used_bytes == 0
    later.fill(*range(FILES))
    assert later.tally["adopted_files"] == 0


HEADS: dict[str, tuple[int, bytes]] = {
    "magic": (0, b"X"),
    "plain size": (4, b"\0\0"),
    "codec": (12, b"\x01"),
    "name": (24, b"\0\0\0\0"),
    "length of a piece": (40, b"\xff\xff\xff"),
}


@pytest.mark.parametrize("what", HEADS)
def test_frame_with_a_wrong_head_is_not_adopted(
    make: Make,
    contents: list[bytes],
    what: str,
) -> None:
    how = Wanted(retains=True)
    first = make(contents, how)
    first.fill(*range(FILES))
    left = leave(first)
    index = read_index(left)
    assert index is not None
    at, change = HEADS[what]
    spoil(left, int(index["offset"][9]) + at, change)

    later = again(first, how, make, contents)

    assert adopt(later, left) == FILES - 1
    assert later.tally["adopted_files"] == FILES - 1


def test_adopted_frame_with_wrong_bytes_is_found_when_it_is_decoded(
    make: Make,
    contents: list[bytes],
) -> None:
    how = Wanted(Codec.parse("none"), retains=True)
    first = make(contents, how)
    first.fill(*range(FILES))
    left = leave(first)
    index = read_index(left)
    assert index is not None
    spoil(left, int(index["offset"][9]) + 5000, b"\x55" * 8)
    later = again(first, how, make, contents)
    assert adopt(later, left) == FILES
    file = int(wanted(later, index, FILES)[9])

    later.engine.demand(file)
    wait_until(lambda: later.tally["frames_dropped"] == 1, "it is found")
    assert not later.packed(file)


@pytest.mark.parametrize("other", ["lz4", "zstd:3+shuffle4", "dictionary"])
def test_frames_of_another_codec_are_not_adopted(
    make: Make,
    contents: list[bytes],
    other: str,
) -> None:
    import zstandard

    how = Wanted(retains=True)
    first = make(contents, how)
    first.fill(*range(FILES))
    left = leave(first)
    samples = [b'{"image": "n%08d.jpg", "label": %d}' % (n, n % 9) for n in range(600)]
    words = zstandard.train_dictionary(2048, list(samples)).as_bytes()
    changed = replace(how, codec=Codec.parse("zstd:3+dict"), dictionary=words)
    if other != "dictionary":
        changed = replace(how, codec=Codec.parse(other))

    later = again(first, changed, make, contents)

    assert adopt(later, left) == 0
    assert later.used_bytes == 0


def test_level_of_compression_makes_no_difference(
    make: Make,
    contents: list[bytes],
) -> None:
    first = make(contents, Wanted(retains=True))
    first.fill(*range(FILES))
    left = leave(first)

    later = again(first, Wanted(Codec.parse("zstd:9")), make, contents)

    assert adopt(later, left) == FILES


def test_pack_file_that_has_no_room_is_not_adopted(
    make: Make,
    contents: list[bytes],
) -> None:
    how = Wanted(retains=True)
    first = make(contents, how)
    first.fill(*range(FILES))
    left = leave(first)
    size = first.used_bytes

    later = again(first, replace(how, tier_bytes=size - 1), make, contents)

    assert adopt(later, left) == 0
    assert later.used_bytes == 0
