"""Saved indexes of scans: found by the same job, bounded, never in the way."""

import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from monarch import native
from monarch.catalog.patterns import Patterns
from monarch.catalog.survey import Unmanaged
from monarch.origins import saved_indexes
from monarch.origins.dataset import Dataset, Indexed, prepare_index
from monarch.origins.index_file import save_index
from monarch.origins.saved_indexes import SavedIndexes
from support.trees import Tree

LONG_AGO_S = 1_000_000_000


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A dataset of two folders."""
    folder = tmp_path / "root"
    for name in ("a", "b"):
        (folder / name).mkdir(parents=True)
        (folder / name / "x").write_bytes(b"1")
    return folder


@pytest.fixture
def saved(tmp_path: Path) -> SavedIndexes:
    """Saved indexes whose folder does not exist yet."""
    return SavedIndexes(tmp_path / "state" / "indexes")


def prepare(root: Path, saved: SavedIndexes | None, *never: str) -> Indexed:
    """Prepares an index as a job does, and saves it if it was made."""
    indexed = prepare_index(
        Dataset(str(root), Patterns(never=never), saved=saved), warn=pytest.fail
    )
    indexed.save()
    return indexed


def test_the_index_of_a_scan_is_loaded_by_the_next_job(
    root: Path, saved: SavedIndexes
) -> None:
    first = prepare(root, saved)

    second = prepare(root, saved)

    assert (first.provisional, first.scanned) == (False, True)
    assert (second.provisional, second.scanned) == (True, False)
    assert Tree(second.index).paths() == Tree(first.index).paths()
    [file] = saved.folder.iterdir()
    assert file.stat().st_mode & 0o777 == 0o600
    assert saved.folder.stat().st_mode & 0o777 == 0o700


def test_an_index_that_is_given_is_provisional_too(root: Path, tmp_path: Path) -> None:
    file = tmp_path / "x.index"
    save_index(file, Tree.scan(root).index)

    indexed = prepare_index(
        Dataset(str(root), Patterns(), index_file=file), warn=pytest.fail
    )

    assert indexed.provisional
    assert indexed.mapped().provisional


@pytest.mark.parametrize("place", ["", "a", "b"])
@pytest.mark.parametrize("way", ["added", "removed", "mode"])
def test_a_change_of_any_directory_leads_to_a_scan(
    root: Path, saved: SavedIndexes, place: str, way: str
) -> None:
    (root / "old").touch()
    prepare(root, saved)
    folder = root / place
    if way == "added":
        (folder / "new").touch()
    elif way == "removed":
        (folder / "x" if place else folder / "old").unlink()
    else:
        folder.chmod(0o711)

    indexed = prepare(root, saved)

    assert indexed.scanned
    assert (Tree(indexed.index).find(os.path.join(place, "new")) >= 0) == (
        way == "added"
    )
    assert not prepare(root, saved).scanned


def test_other_patterns_and_another_root_have_an_index_of_their_own(
    root: Path, saved: SavedIndexes
) -> None:
    for _ in range(2):
        found = [
            prepare(root, saved),
            prepare(root, saved, "a"),
            prepare(root / "a", saved),
        ]
    assert not any(one.scanned for one in found)
    assert [one.index.block.file_count for one in found] == [2, 1, 1]
    assert len(saved.listed()) == 3


def test_other_rights_have_an_index_of_their_own(
    root: Path, saved: SavedIndexes, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare(root, saved)
    mark = native.rights_mark() + 4
    monkeypatch.setattr(native, "rights_mark", lambda: mark)

    assert prepare(root, saved).scanned
    assert len(saved.listed()) == 2


def test_a_directory_that_was_replaced_by_one_of_the_same_path_is_scanned(
    root: Path, saved: SavedIndexes
) -> None:
    prepare(root, saved)
    root.rename(root.with_name("aside"))
    (root / "other").mkdir(parents=True)
    (root / "other" / "file").write_text("x")

    assert prepare(root, saved).scanned


def cut(file: Path) -> None:
    """A full disk has cut the file."""
    os.truncate(file, file.stat().st_size - 10)


def flip(file: Path) -> None:
    """A bit has changed."""
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


def age(file: Path) -> None:
    """Another version has written it."""
    content = bytearray(file.read_bytes())
    content[8] ^= 0xFF
    file.write_bytes(content)


def close(file: Path) -> None:
    """It is no file."""
    file.unlink()
    file.mkdir()


@pytest.mark.parametrize("harm", [cut, flip, age])
def test_a_damaged_index_is_replaced(
    root: Path, saved: SavedIndexes, harm: Callable[[Path], None]
) -> None:
    prepare(root, saved)
    [file] = saved.folder.iterdir()
    harm(file)

    assert prepare(root, saved).scanned
    assert not prepare(root, saved).scanned


@pytest.mark.parametrize("what", ["no folder", "taken"])
def test_an_index_that_cannot_be_saved_costs_only_the_next_scan(
    root: Path, saved: SavedIndexes, what: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG", "monarch.index")
    if what == "taken":
        prepare(root, saved)
        [file] = saved.folder.iterdir()
        close(file)
    else:
        saved.folder.parent.mkdir()
        saved.folder.touch()
    caplog.clear()

    assert prepare(root, saved).scanned
    assert prepare(root, saved).scanned
    lines = [one for one in caplog.records if "not saved" in one.message]
    assert len(lines) == 2
    assert {one.levelname for one in lines} == {"DEBUG"}


def test_a_scan_with_errors_is_not_taken_for_the_dataset(
    root: Path, saved: SavedIndexes
) -> None:
    """An unreadable directory may be readable in the next job."""
    index = Tree.scan(root).index

    assert saved.save(replace(index, unmanaged={Unmanaged.UNREADABLE: 1}))
    assert saved.forget(None) == 1
    assert not saved.save(replace(index, unmanaged={Unmanaged.FAILED: 1}))
    assert saved.listed() == []


def test_the_indexes_that_were_not_used_for_longest_are_dropped(
    root: Path, saved: SavedIndexes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(saved_indexes, "FILES_MAX", 2)
    for number, name in enumerate(("1", "2")):
        prepare(root, saved, name)
        newest = max(saved.listed(), key=lambda one: one.used_s)
        os.utime(newest.file, (LONG_AGO_S + number, LONG_AGO_S + number))
    assert not prepare(root, saved, "1").scanned  # and is used last

    prepare(root, saved, "3")

    kept = {one.summary.patterns.never for one in saved.listed()}
    assert kept == {("1",), ("3",)}


def test_the_bytes_of_all_indexes_are_bounded(
    root: Path, saved: SavedIndexes, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare(root, saved, "1")
    size = saved.listed()[0].bytes
    monkeypatch.setattr(saved_indexes, "BYTES_MAX", 2 * size + size // 2)
    for name in ("2", "3", "4"):
        prepare(root, saved, name)

    assert len(saved.listed()) == 2


def test_leftovers_of_other_versions_and_killed_jobs_are_removed(
    root: Path, saved: SavedIndexes
) -> None:
    prepare(root, saved, "1")
    [old] = saved.folder.iterdir()
    age(old)
    leftover, recent = (saved.folder / f".x.index.{n}" for n in range(2))
    for file in (leftover, recent):
        file.touch()
    os.utime(leftover, (LONG_AGO_S, LONG_AGO_S))

    prepare(root, saved, "2")

    [made] = [one.file for one in saved.listed()]
    assert set(saved.folder.iterdir()) == {made, recent}


def test_an_index_is_listed_with_its_age(root: Path, saved: SavedIndexes) -> None:
    prepare(root, saved)

    [one] = saved.listed()

    assert one.summary.root == os.fsencode(root)
    assert one.summary.files == 2
    assert 0 <= one.age_s < time.monotonic()
    assert one.bytes == one.file.stat().st_size


def test_nothing_is_saved_or_loaded_if_saving_is_off(
    root: Path, saved: SavedIndexes
) -> None:
    prepare(root, None)

    assert saved.listed() == []
    assert prepare(root, None).scanned
