"""A sampler yields what it wraps and announces the files in that order."""

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from monarch.cluster import RUN_VARIABLE
from monarch.errors import UsageError
from monarch.integrations import sampler as module
from monarch.integrations.sampler import HintingSampler, path_of

PATHS = [f"/data/{number}" for number in range(10)]


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[list[Any]]:
    """The announced orders, as in a job."""
    orders: list[list[Any]] = []
    monkeypatch.setenv(RUN_VARIABLE, "/run/some")
    monkeypatch.setattr(module, "hint", lambda paths: orders.append(list(paths)))
    return orders


def test_an_order_is_announced_before_its_first_step(told: list[list[Any]]) -> None:
    steps = iter(HintingSampler([3, 1, 2], PATHS.__getitem__))

    assert next(steps) == 3
    assert told == [["/data/3", "/data/1", "/data/2"]]
    assert list(steps) == [1, 2]


def test_batches_and_samples_of_many_files_are_flattened(
    told: list[list[Any]],
) -> None:
    def pair(index: int) -> list[str]:
        return [PATHS[index], f"{PATHS[index]}.label"]

    assert list(HintingSampler([[1, 2], [3]], pair)) == [[1, 2], [3]]
    assert told == [[f"/data/{n}{end}" for n in (1, 2, 3) for end in ("", ".label")]]


def test_a_long_order_is_announced_in_parts_before_they_are_needed(
    told: list[list[Any]],
) -> None:
    given: list[int] = []

    def steps() -> Iterator[int]:
        for number in range(10):
            given.append(number)
            yield number

    for count, step in enumerate(HintingSampler(steps(), PATHS.__getitem__, ahead=4)):
        assert step == count
        assert PATHS[step] in [path for order in told for path in order]
        assert len(given) <= count + 5

    assert told[0] == PATHS[:4]
    assert told[-1][-1] == PATHS[9]


def test_an_infinite_order_is_not_read_to_its_end(told: list[list[Any]]) -> None:
    def steps() -> Iterator[int]:
        while True:
            yield 1

    found = iter(HintingSampler(steps(), PATHS.__getitem__, ahead=3))

    assert [next(found) for _ in range(20)] == [1] * 20
    assert max(map(len, told)) == 3


def test_nothing_is_announced_outside_a_job(
    told: list[list[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(RUN_VARIABLE)

    assert list(HintingSampler([1, 2], PATHS.__getitem__)) == [1, 2]
    assert told == []


@pytest.mark.parametrize("name", ["samples", "imgs"])
def test_a_dataset_with_a_list_of_paths_needs_no_function(name: str) -> None:
    files = SimpleNamespace(**{name: [(path, 0) for path in PATHS]})
    subset = SimpleNamespace(dataset=files, indices=[7, 5])

    assert path_of(files)(3) == PATHS[3]
    assert path_of(subset)(1) == PATHS[5]


def test_a_dataset_without_paths_is_refused() -> None:
    with pytest.raises(UsageError, match=r"SimpleNamespace has no list of paths"):
        HintingSampler([1], SimpleNamespace())
    with pytest.raises(UsageError, match="ahead=0 is less than 1"):
        HintingSampler([1], PATHS.__getitem__, ahead=0)


def test_epochs_and_the_length_are_those_of_the_sampler() -> None:
    class Sampler(list[int]):
        epoch = 0

        def set_epoch(self, epoch: int) -> None:
            self.epoch = epoch

    inner = Sampler([1, 2, 3])
    outer = SimpleNamespace(sampler=inner)

    HintingSampler(inner, PATHS.__getitem__).set_epoch(3)
    assert inner.epoch == 3
    HintingSampler(outer, PATHS.__getitem__).set_epoch(4)
    assert inner.epoch == 4
    assert len(HintingSampler(inner, PATHS.__getitem__)) == 3


def test_the_sampler_needs_no_library_of_others(tmp_path: Path) -> None:
    text = Path(module.__file__).read_text()

    assert "import torch" not in text
