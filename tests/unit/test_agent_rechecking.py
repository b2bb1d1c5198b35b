"""An index saved by an earlier job is confirmed while the agent is nearly idle."""

import asyncio
import os
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pytest

from monarch.agent import rechecking
from monarch.agent.joining import Joining
from monarch.agent.namespace import Namespace
from monarch.agent.rechecking import Rechecking, unconfirmed
from monarch.catalog.inventory import MappedRoot
from monarch.catalog.patterns import Patterns
from monarch.native import DTYPES
from support.trees import Tree

FILES = 300


@pytest.fixture
def folders(tmp_path: Path) -> list[Path]:
    """Two datasets."""
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        for number in range(FILES):
            (tmp_path / name / f"{number:03}").write_bytes(b"x" * number)
    return [tmp_path / "one", tmp_path / "two"]


def published(folders: list[Path], *provisional: bool) -> Namespace:
    """What the comparison sees of a Namespace of these datasets."""
    head = np.zeros(1, DTYPES["catalog"])[0]
    head["roots"]["provisional"][: len(provisional)] = provisional
    blocks = [Tree.scan(folder, Patterns()).index.block for folder in folders]
    roots = [
        MappedRoot(os.fsencode(folder), (), block)
        for folder, block in zip(folders, blocks, strict=True)
    ]
    segments = SimpleNamespace(record=lambda name: head)
    made = SimpleNamespace(segments=segments, roots=roots, bases=(0, FILES))
    return cast("Namespace", made)


@dataclass
class Found:
    """The results of a comparison."""

    same: list[int] = field(default_factory=list)
    changed: list[int] = field(default_factory=list)

    def confirm(self, files: npt.NDArray[np.int64]) -> None:
        """Note unchanged Files."""
        self.same += files.tolist()

    def mark_written(self, file: int) -> None:
        """Note a File that is not."""
        self.changed.append(file)


def test_files_that_differ_are_marked_by_their_numbers_in_the_job(
    folders: list[Path],
) -> None:
    namespace = published(folders, False, True)
    found = Found()
    for folder in folders:
        (folder / "007").write_bytes(b"new")
        (folder / "299").unlink()

    async def compare() -> None:
        await Rechecking(namespace, found, lambda: 0).begin()

    asyncio.run(compare())

    assert found.changed == [FILES + 7, FILES + 299]
    others = set(range(FILES, 2 * FILES)) - set(found.changed)
    assert sorted(found.same) == sorted(others)


def test_nothing_is_compared_while_programs_wait(
    folders: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rechecking, "DEMAND_PAUSE_S", 0.01)
    namespace, answered = published(folders, True, False), [0]

    def answer() -> int:
        answered[0] += answered[0] < 1000
        return answered[0]

    async def watch() -> list[int]:
        comparing = Rechecking(namespace, Found(), answer)
        task = comparing.begin()
        await asyncio.sleep(0.2)
        waiting, answered[0] = comparing.left, 1000
        await task
        return [waiting, comparing.left]

    assert asyncio.run(watch()) == [FILES, 0]


def test_copies_of_earlier_jobs_are_doubted_below_provisional_roots_only(
    folders: list[Path],
) -> None:
    namespace = published(folders, True, False)
    for folder in folders:
        (folder / "003").write_bytes(b"new")

    assert unconfirmed(namespace, [1, 3, FILES + 3]) == {3}


@pytest.mark.parametrize(
    ("number", "first"), [(None, True), (0, True), (1, False)], ids=str
)
def test_one_node_compares_for_all(number: int | None, first: bool) -> None:
    bootstrap = SimpleNamespace(number=number)
    cluster: Any = None if number is None else SimpleNamespace(bootstrap=bootstrap)
    parts: Any = (None, None, cluster, None)

    assert Joining(*parts).is_first is first
