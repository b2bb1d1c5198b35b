"""The index of the first rank is sent to all others, once to each node."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from monarch.loader import Loader
from monarch.records import RecordIndex, RecordsError, open_records, opening, sharing
from support.loaders import numbered, write_tfrecord

COUNT = 300
RANKS = 5


class World:
    """The messages between the ranks of a job, one call after the other."""

    def __init__(self, ranks: int = RANKS) -> None:
        self.barrier = threading.Barrier(ranks, timeout=20)
        self.said: list[Any] = [None] * ranks
        self.sent_bytes = 0


class Comm:
    """A rank, which is a thread, with the calls of mpi4py that are used."""

    def __init__(self, world: World, rank: int) -> None:
        self._world, self._rank = world, rank

    def Get_rank(self) -> int:
        return self._rank

    def Get_size(self) -> int:
        return len(self._world.said)

    def allgather(self, value: Any) -> list[Any]:
        self._world.said[self._rank] = value
        self._world.barrier.wait()
        found = list(self._world.said)
        self._world.barrier.wait()
        return found

    def bcast(self, value: Any, root: int) -> Any:
        if self._rank == root and isinstance(value, bytes):
            self._world.sent_bytes += len(value)
        return self.allgather(value)[root]


@pytest.fixture
def packed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return write_tfrecord(tmp_path / "some.tfrecord", numbered(COUNT))


def on_all(work: Callable[[Comm], Any], world: World) -> list[Any]:
    """The result of each rank, or its exception."""

    def tried(rank: int) -> Any:
        try:
            return work(Comm(world, rank))
        except RecordsError as error:
            return error

    count = len(world.said)
    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(tried, range(count)))


@pytest.mark.parametrize("piece", [1000, 64 << 20])
def test_all_ranks_have_the_index_of_the_first(
    packed: Path, monkeypatch: pytest.MonkeyPatch, piece: int
) -> None:
    monkeypatch.setattr(sharing, "PIECE_BYTES", piece)
    world = World()

    found = on_all(lambda comm: open_records(packed, comm=comm), world)

    wanted = open_records(packed).index
    assert [len(one) for one in found] == [COUNT] * RANKS
    assert [one.indexed for one in found] == [True] * RANKS
    assert {one.index.fingerprint() for one in found} == {wanted.fingerprint()}
    assert bytes(found[4][7]) == numbered(COUNT)[7]
    assert world.sent_bytes > 16 * COUNT


def test_a_node_keeps_the_index_once(
    packed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes = threading.local()
    monkeypatch.setattr(sharing, "node_name", lambda: nodes.name)
    loaded: dict[int, str] = {}
    real = RecordIndex.load

    def opened(comm: Comm) -> Any:
        nodes.name = f"node {comm.Get_rank() // 2}"
        nodes.rank = comm.Get_rank()
        return open_records(packed, comm=comm)

    def load(file: Path) -> Any:
        if str(file).startswith("/proc/"):
            loaded[nodes.rank] = str(file)
        return real(file)

    monkeypatch.setattr(RecordIndex, "load", load)
    found = on_all(opened, World())

    assert [len(one) for one in found] == [COUNT] * RANKS
    assert sorted(loaded) == [1, 2, 3, 4]
    assert loaded[2] == loaded[3]
    assert len({loaded[1], loaded[2], loaded[4]}) == 3


def test_ranks_share_the_work_on_shards(
    packed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = [
        write_tfrecord(packed.parent / f"{n}.tfrecord", numbered(COUNT + n))
        for n in range(12)
    ]
    made: dict[str, int] = {}
    real = opening._index_of

    def noted(name: str, *given: Any, **options: Any) -> Any:
        made[name] = made.get(name, 0) + 1
        return real(name, *given, **options)

    monkeypatch.setattr(opening, "_index_of", noted)

    found = on_all(
        lambda comm: open_records([str(path) for path in paths], comm=comm), World()
    )

    assert made == dict.fromkeys(map(str, paths), 1)
    wanted = open_records([str(path) for path in paths]).index
    assert {one.index.fingerprint() for one in found} == {wanted.fingerprint()}


def test_an_indexing_error_of_another_rank_is_reported_to_all(packed: Path) -> None:
    bad = packed.parent / "bad.tfrecord"
    bad.write_bytes(packed.read_bytes()[:-3])

    def opened(comm: Comm) -> Any:
        return open_records([str(packed), str(packed), str(bad)], comm=comm)

    found = on_all(opened, World())

    assert [type(one) for one in found] == [RecordsError] * RANKS
    assert {str(one) for one in found} == {str(found[0])}
    assert "bad.tfrecord: is truncated" in str(found[0])


@pytest.mark.parametrize("name", ["n" * 300, "a\0b"])
def test_any_error_of_a_rank_is_reported_to_all(tmp_path: Path, name: str) -> None:
    paths = [str(tmp_path / "none.lmdb"), str(tmp_path / name)]

    found = on_all(lambda comm: open_records(paths, comm=comm), World())

    assert [type(one) for one in found] == [RecordsError] * RANKS
    assert len({str(one) for one in found}) == 1


def test_an_open_error_of_the_first_rank_is_reported_to_all(tmp_path: Path) -> None:
    path = tmp_path / "none.lmdb"

    found = on_all(lambda comm: open_records(path, comm=comm), World())

    assert [type(one) for one in found] == [RecordsError] * RANKS
    assert {str(one) for one in found} == {str(found[0])}
    assert "none.lmdb" in str(found[0])


def test_a_loader_with_a_communicator_opens_its_path_once(
    packed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    real = opening._made

    def noted(path: Path, *given: Any) -> Any:
        opened.append(path.name)
        return real(path, *given)

    monkeypatch.setattr(opening, "_made", noted)

    def loaded(comm: Comm) -> list[int]:
        with Loader(packed, 10, comm=comm, group_bytes=20_000) as loader:
            return [n for batch in loader for n in batch.ids.tolist()]

    parts = on_all(loaded, World(2))

    assert opened == [packed.name]
    assert sorted(n for part in parts for n in part) == list(range(COUNT))
