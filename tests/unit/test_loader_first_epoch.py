"""A first epoch that begins before the index is complete has each Record once."""

import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from monarch.errors import UsageError
from monarch.loader import Loader
from monarch.loader.figures import IndexProgress
from monarch.loader.legs import legs_of
from monarch.records import RecordsError, opening
from support.countfs import CountFs
from support.loaders import numbered, write_tar, write_tfrecord

SHARDS, COUNT = 5, 90
TOTAL = SHARDS * COUNT
SMALL: Any = {"group_bytes": 20_000, "groups_in_flight": 4}


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture
def paths(tmp_path: Path) -> list[str]:
    """Shards whose Records begin with their number among all."""
    values = numbered(TOTAL)
    folder = tmp_path / "source"
    folder.mkdir()
    return [
        str(
            write_tfrecord(
                folder / f"{n}.tfrecord", values[n * COUNT : (n + 1) * COUNT]
            )
        )
        for n in range(SHARDS)
    ]


def early(paths: list[str], **options: Any) -> Loader:
    return Loader(
        paths, options.pop("batch_size", 16), start="early", **SMALL, **options
    )


def numbers(batch: Any) -> list[int]:
    return [int.from_bytes(record[:8], "little") for record in batch.records]


def epoch(loader: Loader) -> list[list[int]]:
    return [numbers(batch) for batch in loader]


@pytest.mark.parametrize(
    ("remainder", "world", "shuffle"),
    [
        ("drop", 3, "group"),
        ("pad", 3, "group"),
        ("uneven", 3, "global"),
        ("uneven", 1, "none"),
    ],
)
def test_each_record_is_in_one_batch(
    paths: list[str], remainder: Any, world: int, shuffle: Any
) -> None:
    options = {"world_size": world, "remainder": remainder, "shuffle": shuffle}
    found, ids, counts = [], [], set()
    for rank in range(world):
        with early(paths, rank=rank, **options) as loader:
            batches = 0
            for batch in loader:
                found += numbers(batch)
                ids += batch.ids.tolist()
                batches += 1
            counts.add((batches, len(loader)))

    size = 16 * world
    assert len(counts) == 1
    assert len({*counts.pop()}) == 1
    whole = TOTAL // size * size
    expected = {"drop": whole, "uneven": TOTAL, "pad": -(-TOTAL // size) * size}
    assert len(found) == expected[remainder]
    assert len(set(found)) == min(TOTAL, expected[remainder])
    assert len({*zip(found, ids, strict=True)}) == len(set(found))


def test_the_order_follows_from_the_shards_and_the_seed(paths: list[str]) -> None:
    with early(paths, seed=3) as loader:
        first = epoch(loader)
    with early(paths, seed=3) as loader:  # its index exists by now
        again = epoch(loader)
        second = epoch(loader)
    with early(paths, seed=4) as loader:
        other = epoch(loader)
    with Loader(paths, 16, seed=3, **SMALL) as loader:
        loader.set_epoch(1)
        usual = epoch(loader)

    assert first == again != other
    assert second == usual != first


@pytest.mark.parametrize("given", [0, 5, 14, 28])
def test_an_early_epoch_resumes_from_a_state(paths: list[str], given: int) -> None:
    with early(paths) as loader:
        whole = epoch(loader)
        after = epoch(loader)
    with early(paths) as loader:
        batches = iter(loader)
        begun = [numbers(next(batches)) for _ in range(given)]
        state = json.loads(json.dumps(loader.state_dict()))
    with early(paths) as loader:
        loader.load_state_dict(state)
        rest = epoch(loader) if given < len(whole) else []
        behind = epoch(loader)

    assert begun + rest == whole
    assert behind == after


def test_an_interrupted_iteration_is_continued(paths: list[str]) -> None:
    with early(paths) as loader:
        whole = epoch(loader)
    with early(paths) as loader:
        found = []
        for batch in loader:
            found.append(numbers(batch))
            if len(found) == 7:
                break
        found += epoch(loader)

    assert found == whole


def test_an_iteration_interrupted_at_its_end_is_over(paths: list[str]) -> None:
    with early(paths) as loader:
        whole, after = epoch(loader), epoch(loader)
    with early(paths) as loader:
        batches = iter(loader)
        for _ in whole:
            next(batches)
        assert epoch(loader) == after


def test_another_epoch_ends_an_early_one(paths: list[str]) -> None:
    with early(paths) as loader:
        next(iter(loader))
        with pytest.raises(UsageError, match="-1 is negative"):
            loader.set_epoch(-1)
        loader.set_epoch(1)
        found = epoch(loader)
        stats = loader.stats()
    with early(paths) as loader:
        epoch(loader)
        assert found == epoch(loader)
    assert stats["batches"] == len(found)


def test_a_loader_that_is_closed_indexes_nothing_more(paths: list[str]) -> None:
    loader = early(paths)
    next(iter(loader))
    loader.close()

    with pytest.raises(UsageError, match="the loader is closed"):
        epoch(loader)


def test_the_length_is_not_known_before_the_index_is(paths: list[str]) -> None:
    with early(paths) as loader:
        with pytest.raises(TypeError, match="unknown until"):
            len(loader)
        batches = epoch(loader)
        assert len(loader) == len(batches)


def test_the_first_batch_waits_for_one_shard(
    paths: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    may_go_on = threading.Event()
    made: list[str] = []
    real = opening._made

    def slow(path: Path, *given: Any) -> Any:
        if made:
            may_go_on.wait(20)
        made.append(path.name)
        return real(path, *given)

    monkeypatch.setattr(opening, "_made", slow)
    with early(paths) as loader:
        batches = iter(loader)
        next(batches)
        assert len(made) == 1
        may_go_on.set()
        for _ in batches:
            pass
        assert sorted(made) == sorted(Path(path).name for path in paths)


def test_records_are_read_once_with_their_index(
    tmp_path: Path, mount_counted: Callable[..., CountFs]
) -> None:
    source = tmp_path / "large"
    source.mkdir()
    for n in range(4):
        write_tar(source / f"{n}.tar", numbered(300, most=24_000, seed=n))
    origin = mount_counted(source, keep_ms=1000)
    origin.set(cached=2)
    paths = sorted(str(path) for path in origin.root.iterdir())

    with Loader(paths, 10, start="early") as loader:
        count = sum(len(batch) for batch in loader)

    assert count == 1200
    size = sum(path.stat().st_size for path in source.iterdir())
    assert origin.counts().read_bytes <= 1.05 * size


def test_a_shard_that_cannot_be_indexed_is_reported_in_its_turn(
    paths: list[str],
) -> None:
    last = legs_of(SHARDS, 0)[-1][0]
    bad = Path(paths[last])
    bad.write_bytes(bad.read_bytes()[:-3])

    with early(paths) as loader, pytest.raises(RecordsError, match=rf"{bad.name}: is"):
        epoch(loader)


@pytest.mark.parametrize("name", ["order_log", "replay"])
def test_options_that_an_early_epoch_does_not_support_are_refused(
    paths: list[str], tmp_path: Path, name: str
) -> None:
    with pytest.raises(UsageError, match=f"{name} needs start='whole'"):
        early(paths, **{name: tmp_path / "log"})
    with pytest.raises(UsageError, match="use one of whole, early"):
        Loader(paths, 16, start="soon")  # type: ignore[arg-type]


def test_states_of_other_loaders_are_refused(paths: list[str]) -> None:
    with early(paths) as loader:
        state = loader.state_dict()
    with (
        Loader(paths, 16, **SMALL) as loader,
        pytest.raises(UsageError, match="start='early'"),
    ):
        loader.load_state_dict(state)
    others: list[tuple[list[str], dict[str, Any], str]] = [
        (paths, {"batch_size": 8}, "global_batch=16"),
        (paths, {"shuffle": "none"}, "shuffle='group'"),
        (paths[1:], {}, "shards="),
    ]
    for files, options, reason in others:
        with early(files, **options) as loader, pytest.raises(UsageError, match=reason):
            loader.load_state_dict(state)


def test_a_later_epoch_waits_for_the_index(paths: list[str]) -> None:
    with early(paths) as loader:
        loader.set_epoch(2)
        found = epoch(loader)
    with Loader(paths, 16, **SMALL) as loader:
        loader.set_epoch(2)
        assert found == epoch(loader)


def test_one_file_and_open_records_have_no_early_epoch(paths: list[str]) -> None:
    with Loader(paths[0], 16, start="early") as one, Loader(paths[0], 16) as usual:
        assert epoch(one) == epoch(usual)
        assert len(one.records) == COUNT


def test_a_loader_of_workers_waits_for_the_index(paths: list[str]) -> None:
    with early(paths) as loader:
        loader.hold()
        assert len(loader.records) == TOTAL
        assert len(loader) == TOTAL // 16


@pytest.mark.parametrize("count", [1, 2, 3, 9, 100])
def test_legs_have_each_shard_once(count: int) -> None:
    legs = legs_of(count, 7)

    assert sorted(shard for leg in legs for shard in leg) == list(range(count))
    assert [len(leg) for leg in legs[:-1]] == [2**n for n in range(len(legs) - 1)]


def test_a_slow_index_is_reported(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    progress = IndexProgress("train and 3 more")
    for seconds, done in ((1.0, 1), (2.5, 2), (5.0, 3), (13.0, 4)):
        clock[0] = seconds
        progress("indexed", done, 4)

    assert capsys.readouterr().err.splitlines() == [
        "monarch: records of train and 3 more: 2 of 4 indexed",
        "monarch: records of train and 3 more: 4 of 4 indexed",
    ]


def test_a_shard_without_records_repeats_no_id(paths: list[str]) -> None:
    first, second = legs_of(SHARDS, 3)[0][0], legs_of(SHARDS, 3)[1][0]
    for shard in (first, second):
        Path(paths[shard]).write_bytes(b"")
    with early(paths, seed=3, remainder="uneven") as loader:
        ids = [n for batch in loader for n in batch.ids.tolist()]

    assert sorted(ids) == list(range(TOTAL - 2 * COUNT))


def test_remaining_records_continue_into_the_next_leg(paths: list[str]) -> None:
    with early(paths, batch_size=TOTAL - 5, remainder="drop") as loader:
        batches = epoch(loader)

    assert [len(batch) for batch in batches] == [TOTAL - 5]
