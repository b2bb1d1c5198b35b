"""Hashes, names, index blocks and words as Python calls them."""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

from monarch import native
from monarch.catalog.block import Block
from monarch.catalog.patterns import Patterns
from monarch.errors import MonarchError
from monarch.native import library
from support.trees import Tree

SEEDS = st.integers(0, 2**64 - 1)


@pytest.mark.parametrize("seed", [0, 1, 2**63, 2**64 - 1])
def test_hash_equals_the_xxhash_package_at_every_length(seed: int) -> None:
    noise = np.random.default_rng(seed).bytes(5000)

    for n in range(5001):
        piece = noise[:n]
        assert native.hash64(piece, seed) == xxhash.xxh3_64_intdigest(piece, seed)


@settings(max_examples=300)
@given(st.binary(max_size=20_000), SEEDS)
def test_hash_equals_the_xxhash_package(content: bytes, seed: int) -> None:
    assert native.hash64(content, seed) == xxhash.xxh3_64_intdigest(content, seed)


def test_hash_takes_any_contiguous_buffer() -> None:
    numbers = np.arange(100, dtype=np.uint64)
    expected = xxhash.xxh3_64_intdigest(numbers.tobytes())

    assert native.hash64(numbers) == expected
    assert native.hash64(memoryview(numbers.tobytes())) == expected
    assert native.hash64(bytearray(numbers.tobytes())) == expected
    with pytest.raises(ValueError, match="contiguous"):
        native.hash64(numbers[::2])


def make_block(paths: list[bytes]) -> npt.NDArray[np.uint8]:
    """An index block of a root directory and regular files with these paths."""
    entries = np.zeros(len(paths) + 1, native.DTYPES["entry"])
    attrs = np.zeros(2, native.DTYPES["attr"])
    attrs["mode"] = 0o40700, 0o100600
    starts = np.cumsum([0, *map(len, paths)])
    entries["target"] = np.arange(len(entries))
    entries["attr"][1:] = 1
    entries["file"][1:] = np.arange(len(paths))
    entries["size"][1:] = 1000 + np.arange(len(paths))
    entries["path"][1:] = [
        int(start) << 16 | len(path) for start, path in zip(starts, paths, strict=False)
    ]
    slots = np.zeros(2 * len(entries), native.DTYPES["slot"])
    inode_slots = np.zeros(2 * len(entries), native.DTYPES["slot"])
    first = np.arange(1, len(entries), dtype=np.uint32)
    arena = np.frombuffer(b"".join(paths), np.uint8)
    return join_block([entries, slots, inode_slots, attrs, first, arena])


def join_block(arrays: list[npt.NDArray[Any]]) -> npt.NDArray[np.uint8]:
    """The block that holds these arrays one after the other."""
    names = ("entries", "slots", "inode_slots", "attrs", "first_entry", "arena")
    parts = ("entry", "slot", "inode_slot", "attr", "file")
    head = np.zeros(1, native.DTYPES["index"])
    pieces, at = [], head.itemsize
    for name, array in zip(names, arrays, strict=True):
        head[name] = at
        raw = array.tobytes()
        pieces.append(raw + b"\0" * (-len(raw) % 8))
        at += len(pieces[-1])
    for part, array in zip(parts, arrays[:5], strict=True):
        head[f"{part}_count"] = len(array)
    head["dir_count"], head["name_count"] = 1, head["entry_count"]
    head["arena_bytes"] = len(arrays[5])
    head["seg"]["magic"] = b"MONARCH"
    head["seg"]["version"] = native.CONSTANTS["LAYOUT_VERSION"]
    head["seg"]["kind"] = native.SegmentKind.INDEX
    head["seg"]["length"] = at
    return np.frombuffer(bytearray(head.tobytes() + b"".join(pieces)), np.uint8)


def test_a_finished_block_finds_each_path_and_no_other() -> None:
    paths = [b"a", b"a/b", b"\xff\xfe", b"long/" * 40]
    block = make_block(paths)

    native.index_finish(block)

    native.index_check(block)
    assert [native.index_find(block, path) for path in paths] == [1, 2, 3, 4]
    assert native.index_find(block, b"") == 0
    assert native.index_find(block, b"a/") == -1


def test_a_path_that_occurs_twice_is_refused() -> None:
    with pytest.raises(FileExistsError):
        native.index_finish(make_block([b"same", b"same"]))


def test_a_damaged_block_is_refused() -> None:
    block = make_block([b"x", b"y"])
    native.index_finish(block)
    block[-1] ^= 1

    with pytest.raises(native.BlockError, match="checksum"):
        native.index_check(block)
    with pytest.raises(native.BlockError, match="broken"):
        native.index_check(block[: len(block) // 2])
    with pytest.raises(native.BlockError, match="broken"):
        native.index_finish(np.zeros(4096, np.uint8))


def test_a_replica_name_stands_for_the_whole_identity() -> None:
    block = make_block([b"first", b"second"])
    entry = block[native.DTYPES["index"].itemsize :].view()[: 3 * 64]
    entries: Any = entry.view(native.DTYPES["entry"])
    root = xxhash.xxh3_64_intdigest(b"/root")
    identity = [xxhash.xxh3_64_intdigest(b"first"), 0, 1000, 0, 0, root]
    raw = np.array(identity, np.uint64).tobytes()

    name = native.replica_name(block, b"/root", 1)

    halves = [xxhash.xxh3_64_hexdigest(raw, seed) for seed in (0, 1)]
    assert name == "".join(halves)
    for field in ("ino", "size", "mtime_ns", "ctime_ns"):
        entries[field][1] += 1
        assert native.replica_name(block, b"/root", 1) != name
        entries[field][1] -= 1
    assert native.replica_name(block, b"/root", 1) == name
    assert native.replica_name(block, b"/root", 2) != name
    assert native.replica_name(block, b"/other", 1) != name


def test_words_are_stored_where_programs_read_them() -> None:
    requests: Any = np.zeros(1, native.DTYPES["requests"])
    before = time.monotonic_ns()

    native.agent_state_store(requests, native.AgentState.READY)
    native.beat(requests)

    assert requests["agent_state"][0] == native.AgentState.READY
    assert before <= requests["heartbeat_ns"][0] <= time.monotonic_ns()


def test_a_state_word_changes_only_while_it_has_the_seen_value() -> None:
    words = np.zeros(4, np.uint32)
    ready = native.state_word(native.ReplicaState.READY, 1)

    assert native.state_change(words, 3, 0, ready, wake=True)
    assert not native.state_change(words, 3, 0, 7, wake=True)

    assert words.tolist() == [0, 0, 0, 0x12]


def test_many_state_words_change_below_a_mask_and_keep_their_generations() -> None:
    unit, confirmed = native.CONSTANTS["STATE_FIXED"] + 1, 1 << 31
    busy = native.state_word(native.ReplicaState.ABSENT, reason=native.Reason.BUSY)
    words = np.array([busy + 5 * unit, busy + confirmed, 2, busy], np.uint32)

    changed = native.states_change(
        words, np.arange(3), (native.CONSTANTS["STATE_FIXED"], busy), 0
    )

    assert changed == 2
    assert words.tolist() == [5 * unit, confirmed, 2, busy]
    with pytest.raises(IndexError):
        native.states_change(words, np.array([4]), (0, 0), 0)


def test_a_missing_library_is_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(MonarchError, match=r"cannot load .*libmonarch\.so"):
        library.load(tmp_path / "libmonarch.so")


def test_a_library_without_the_functions_is_one_clear_error(tmp_path: Path) -> None:
    numpy_library = next(Path(np.__file__).parent.glob("_core/*umath*.so"))
    other = tmp_path / "libmonarch.so"
    shutil.copy(numpy_library, other)

    with pytest.raises(MonarchError, match="cannot load the data plane"):
        library.load(other)
    assert os.path.exists(library.LIB._name)


def test_scans_of_an_unchanged_tree_agree_about_identities() -> None:
    """A node that joins late scans for itself, after programs have read."""
    block = make_block([b"first", b"second"])
    found = Block(block)
    native.index_finish(block)
    digest, identity = found.digest, found.identity

    found.entries["atime_ns"] += 1
    found.entries["blocks"] += 1
    found.entries["mtime_ns"][0] += 1  # of the root, where programs create other names
    found.attrs["dev"] += 1
    found.attrs["blksize"] += 1
    native.index_finish(block)
    assert found.digest != digest
    assert found.identity == identity

    for field in ("ino", "size", "mtime_ns", "ctime_ns"):
        found.entries[field][2] += 1
        native.index_finish(block)
        assert found.identity != identity, field
        found.entries[field][2] -= 1
    native.index_finish(block)
    assert found.identity == identity

    found.header["identity"] ^= 1
    with pytest.raises(native.BlockError, match="checksum"):
        native.index_check(block)


def rights_told_to(*command: str) -> tuple[int, ...]:
    """The rights of a Python process that such a command has started."""
    script = (
        "import numpy as np; from monarch import native\n"
        "rights = np.zeros(1, native.DTYPES['rights']); native.rights_store(rights)\n"
        "print(*rights[0].tolist(), native.rights_mark())"
    )
    told = subprocess.check_output([*command, sys.executable, "-c", script], text=True)
    return tuple(map(int, told.split()))


@pytest.mark.root
def test_rights_distinguish_ids_groups_and_capabilities() -> None:
    ways = {
        "all": (),
        "no capabilities": ("setpriv", "--bounding-set=-all", "--inh-caps=-all"),
        "another group": ("setpriv", "--regid=7", "--keep-groups"),
        "groups": ("setpriv", "--groups=7,8"),
        "other groups": ("setpriv", "--groups=7,9"),
        "many groups": ("setpriv", "--groups=" + ",".join(map(str, range(100)))),
    }

    told = {name: rights_told_to(*way) for name, way in ways.items()}

    assert told["all"][:3] == (0, os.getegid(), 3)
    assert told["no capabilities"][2] == 0
    assert told["many groups"][3] == 100
    assert told["all"][-1] == rights_told_to()[-1]
    assert len({one[-1] for one in told.values()}) == len(ways)


@pytest.mark.root
@pytest.mark.parametrize(
    ("point", "covers"),
    [("a/file", True), ("a/b", True), ("a b", True), ("", False), ("excluded", False)],
)
def test_mounts_on_names_of_the_index_are_found(
    tmp_path: Path, point: str, covers: bool
) -> None:
    root, beside = tmp_path / "root", tmp_path / "root2"
    for folder in (root / "a" / "b", root / "a b", root / "excluded", beside):
        folder.mkdir(parents=True)
    (root / "a" / "file").write_bytes(b"x")
    block = Tree.scan(root, Patterns(exclude=("excluded",))).block.memory
    target = root / point

    assert not native.mounts_cover(block, os.fsencode(root))
    subprocess.run(["mount", "--bind", target, target], check=True)
    subprocess.run(["mount", "--bind", beside, beside], check=True)
    try:
        assert native.mounts_cover(block, os.fsencode(root)) == covers
    finally:
        subprocess.run(["umount", target, beside], check=True)
