"""An index of another node is used if the root has the same files on this node."""

import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from monarch.agent.job_spec import (
    GivenIndexes,
    Integrity,
    JobSpec,
    TierCodec,
    indexes_from_blocks,
    packed_footprints,
)
from monarch.catalog.patterns import Patterns
from monarch.catalog.presence import large_files
from monarch.errors import MonarchError
from monarch.origins.dataset import Dataset, prepare_index
from monarch.placement import Mode, Node, Units
from support.placements import EXTENT_BYTES, first_rows


def _dataset(root: Path) -> Dataset:
    return Dataset(str(root), Patterns())


def _block(root: Path) -> memoryview:
    """Returns the index of a root as another node sends it."""
    indexed = prepare_index(_dataset(root), warn=print)
    return memoryview(bytearray(indexed.index.block.memory.tobytes()))


def _given(
    *blocks: memoryview, provisional: tuple[bool, ...] = (False,)
) -> GivenIndexes:
    return GivenIndexes(blocks, provisional, "n0")


def _fill(root: Path, text: str) -> None:
    root.mkdir(exist_ok=True)
    for number in range(20):
        (root / f"{number}.txt").write_text(text)


def test_the_index_of_a_shared_root_is_taken(tmp_path: Path) -> None:
    root = tmp_path / "data"
    _fill(root, "shared")
    block = _block(root)
    (root / "10.txt").write_text("changed since")
    (root / "new.txt").write_text("new since")
    [found] = indexes_from_blocks([_dataset(root)], _given(block))
    assert found.index.block.file_count == 20


def test_another_tree_with_the_same_root_inode_is_refused(tmp_path: Path) -> None:
    """As where each node has mounted a file system of its own on the same path."""
    root = tmp_path / "data"
    _fill(root, "there")
    block, inode = _block(root), root.stat().st_ino
    for entry in root.iterdir():
        entry.unlink()
    copies = tmp_path / "copies"
    _fill(copies, "here!")
    for entry in copies.iterdir():
        shutil.copy2(entry, root)
    assert root.stat().st_ino == inode
    with pytest.raises(MonarchError, match="has different files on n0"):
        indexes_from_blocks([_dataset(root)], _given(block))


def test_a_root_of_another_inode_is_refused(tmp_path: Path) -> None:
    root = tmp_path / "data"
    _fill(root, "there")
    block = _block(root)
    root.rename(tmp_path / "moved")
    os.mkdir(root)
    with pytest.raises(MonarchError, match="a different directory on n0"):
        indexes_from_blocks([_dataset(root)], _given(block))


@pytest.mark.parametrize("provisional", [False, True])
def test_a_provisional_index_is_provisional_on_all_nodes(
    tmp_path: Path, provisional: bool
) -> None:
    root = tmp_path / "data"
    _fill(root, "shared")
    given = _given(_block(root), provisional=(provisional,))

    [found] = indexes_from_blocks([_dataset(root)], given)

    assert (found.provisional, found.scanned) == (provisional, False)
    assert found.mapped().provisional == provisional


def test_indexes_without_their_provisional_flags_are_refused(
    tmp_path: Path,
) -> None:
    root = tmp_path / "data"
    _fill(root, "shared")

    with pytest.raises(MonarchError, match="index blocks"):
        indexes_from_blocks([_dataset(root)], _given(_block(root), provisional=()))


@pytest.mark.parametrize(("above", "units"), [(0, 8), (EXTENT_BYTES, 8), (1 << 62, 3)])
def test_all_nodes_cut_large_files_as_the_spec_says(above: int, units: int) -> None:
    sizes = np.array([10, 6 * EXTENT_BYTES, 20], np.uint64)
    nodes = tuple(Node(f"n{number}", 4 * EXTENT_BYTES) for number in range(3))
    spec = JobSpec(nodes, Mode.PARTITION, 5, Integrity.CHECKSUM, above)

    found = JobSpec.from_payload(spec.payload()).place(sizes, first_rows(sizes))

    assert len(found.units) == units
    assert found.units.rows == 8
    assert found.placed.all() == (units == 8)
    assert found.nodes == nodes


MIB = 1 << 20


@pytest.mark.parametrize(
    ("pool", "above", "packed"),
    [
        (256 * MIB, 0, [True, True, True]),
        (31 * MIB, 0, [True, True, False]),
        (2 * MIB, 0, [True, False, False]),
        (0, 0, [False, False, False]),
        (256 * MIB, 1 << 62, [True, True, False]),
    ],
)
def test_needs_are_reduced_only_for_files_that_the_data_plane_packs(
    pool: int, above: int, packed: list[bool]
) -> None:
    """A node that expects too little of a File is given more than it can hold."""
    sizes = np.array([MIB // 2, 7 * MIB, 24 * MIB], np.uint64)
    units = Units.of(first_rows(sizes), large_files(sizes, above))

    needs = packed_footprints(sizes, units, [TierCodec(0, "zstd:1", 2.0)], pool)

    assert (needs < 1.1 * sizes / 2).tolist() == packed
    rest = ~np.array(packed)
    assert (needs[rest] == sizes[rest]).all()
    plain = packed_footprints(sizes, units, [], pool)
    assert (plain == sizes).all()
