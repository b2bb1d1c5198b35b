"""The headers of shards are found in the cheaper way, and read bytes are kept."""

import errno
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from monarch.cluster import RUN_VARIABLE
from monarch.loader import Loader, LoaderError
from monarch.records import open_records, shards
from monarch.records.headers import HeaderReader
from monarch.records.opening import Making
from monarch.records.shard_memory import SHARDS_MAX, ShardMemory
from monarch.records.shards import Probe, is_alone
from monarch.records.sources import FileSource
from monarch.tiers.memory import Memory
from support.countfs import CountFs
from support.loaders import numbered, write_tar, write_tfrecord

COUNT, SHARDS = 400, 4
WRITERS = {"tfrecord": write_tfrecord, "tar": write_tar}
DROPS, KEEPS = 1, 2
"""What countfs does with the page cache of a file that is opened."""


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture(params=sorted(WRITERS))
def folder(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    found = tmp_path / "source"
    found.mkdir()
    for shard in range(SHARDS):
        values = numbered(COUNT, most=24_000, seed=shard)
        WRITERS[request.param](found / f"{shard}.{request.param}", values)
    return found


def bytes_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir())


def paths(origin: CountFs) -> list[str]:
    return sorted(str(path) for path in origin.root.iterdir())


def test_bytes_read_for_the_index_are_not_read_again(
    folder: Path, mount_counted: Callable[..., CountFs]
) -> None:
    origin = mount_counted(folder, keep_ms=1000)
    origin.set(cached=KEEPS)

    with Loader(open_records(paths(origin)), 10, remainder="uneven") as loader:
        numbers = [n for batch in loader for n in batch.ids.tolist()]

    assert sorted(numbers) == list(range(SHARDS * COUNT))
    assert origin.counts().read_bytes <= 1.05 * bytes_of(folder)


def test_small_shards_are_read_once_as_well(
    tmp_path: Path, mount_counted: Callable[..., CountFs]
) -> None:
    source = tmp_path / "small"
    source.mkdir()
    for shard in range(6):
        values = numbered(60, most=9000, seed=shard)
        write_tfrecord(source / f"{shard}.tfrecord", values)
    origin = mount_counted(source, keep_ms=1000)
    origin.set(cached=KEEPS)

    with Loader(paths(origin), 10, remainder="uneven") as loader:
        assert sum(len(batch) for batch in loader) == 360

    assert origin.counts().read_bytes <= 1.05 * bytes_of(source)


def test_shards_whose_pages_are_dropped_on_open_are_not_read_whole(
    folder: Path, mount_counted: Callable[..., CountFs]
) -> None:
    origin = mount_counted(folder, keep_ms=1000)
    origin.set(cached=DROPS)
    with HeaderReader(paths(origin)[0]) as file:
        file.fresh(0, 1 << 20)
        assert not file.keeps(1 << 20)


def test_only_headers_are_read_where_no_page_would_stay_cached(
    folder: Path, mount_counted: Callable[..., CountFs], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = open_records(sorted(map(str, folder.iterdir())), fresh=True).index
    monkeypatch.setattr(Probe, "reads_whole", False)
    origin = mount_counted(folder, read_us=2000)

    records = open_records(paths(origin))

    counts = origin.counts()
    assert (records.index.units == whole.units).all()
    assert counts.most_reads > SHARDS
    assert counts.read_bytes <= 0.6 * bytes_of(folder)  # including the first samples


def test_a_job_that_is_staged_reads_shards_whole(
    folder: Path, mount_counted: Callable[..., CountFs]
) -> None:
    origin = mount_counted(folder)
    environ = {**os.environ, RUN_VARIABLE: "/run"}

    open_records(paths(origin), environ=environ)

    assert origin.counts().read_bytes >= bytes_of(folder)


def test_small_shards_are_read_by_one_request(
    tmp_path: Path, mount_counted: Callable[..., CountFs]
) -> None:
    source = tmp_path / "source"
    source.mkdir()
    write_tfrecord(source / "few.tfrecord", numbered(60, most=2000))
    origin = mount_counted(source)

    assert len(open_records(paths(origin)[0])) == 60
    assert origin.counts().reads <= 4


@pytest.mark.parametrize(
    ("probe", "is_whole"),
    [
        (Probe(12_000, 1e-3, 1e8, 1, stays=False), False),
        (Probe(12_000, 1e-3, 1e8, 4096, stays=True), True),
        (Probe(300, 1e-3, 1e9, 4096, stays=False), True),
        (Probe(10**6, 1e-2, 1e9, 4096, stays=False), False),
        (Probe(2000, 1e-5, 1e9, 4096, stays=False), True),
    ],
)
def test_the_cheaper_way_follows_from_measurements(probe, is_whole):
    assert probe.reads_whole == is_whole


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, True),
        ({"WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "4"}, True),
        ({"WORLD_SIZE": "8", "LOCAL_WORLD_SIZE": "4"}, False),
        ({"SLURM_STEP_NUM_NODES": "2"}, False),
        ({"PMI_SIZE": "8", "MPI_LOCALNRANKS": "2"}, False),
    ],
)
def test_other_nodes_are_detected(environ: Mapping[str, str], expected: bool) -> None:
    assert is_alone(environ) == expected


def test_nothing_is_read_whole_where_memory_is_short(
    folder: Path, mount_counted: Callable[..., CountFs], monkeypatch: pytest.MonkeyPatch
) -> None:
    origin = mount_counted(folder, keep_ms=1000, read_us=100)
    origin.set(cached=KEEPS)
    full = Memory(bytes_of(folder), bytes_of(folder))
    monkeypatch.setattr(shards, "read_memory", lambda: [full])
    probes: list[bool] = []
    real = Probe.reads_whole

    def noted(probe: Probe) -> bool:
        probes.append(probe.stays)
        return bool(real.fget(probe))  # type: ignore[attr-defined]

    monkeypatch.setattr(Probe, "reads_whole", property(noted))
    open_records(paths(origin))

    assert probes
    assert not any(probes)


def test_progress_reports_the_shards(folder: Path) -> None:
    told: list[tuple[str, int, int]] = []

    open_records(
        sorted(map(str, folder.iterdir())),
        progress=lambda *one: told.append(one),
    )

    assert sorted(told) == [("indexed", n, SHARDS) for n in range(1, SHARDS + 1)]


BUFFERS: Any = {"group_bytes": 64 << 10, "groups_in_flight": 4, "remainder": "uneven"}
BUFFER_BYTES = 2 << 20
"""Room for the mixed Groups, and some more."""


def read_right(loader: Loader, files: list[bytes]) -> list[int]:
    """Return the Records of an epoch, each of which has the bytes of its file."""
    found = []
    for batch in loader:
        numbers = batch.ids.tolist()
        for number, record in zip(numbers, batch.records, strict=True):
            at = loader.records.index.range_of(number)
            assert record == files[at.object][at.offset : at.offset + at.length]
        found += numbers
    return found


@pytest.mark.parametrize(("rooms", "most"), [(SHARDS, 1.15), (2, 1.6)])
def test_shards_are_kept_in_memory_where_no_page_stays_cached(
    folder: Path, mount_counted: Callable[..., CountFs], rooms: int, most: float
) -> None:
    origin = mount_counted(folder)
    whole = [path.read_bytes() for path in sorted(folder.iterdir())]
    limit = BUFFER_BYTES + rooms * max(map(len, whole))

    with Loader(paths(origin), 10, memory_limit=limit, **BUFFERS) as loader:
        found = read_right(loader, whole) + read_right(loader, whole)
        peak = loader.stats()["memory_peak_bytes"]

    assert sorted(found) == sorted([*range(SHARDS * COUNT)] * 2)
    size = bytes_of(folder)
    assert 1.95 * size <= origin.counts().read_bytes <= (1.02 + most) * size
    assert rooms * size / SHARDS / 2 < peak <= limit


def test_a_shard_in_memory_that_has_changed_is_refused(
    folder: Path, mount_counted: Callable[..., CountFs]
) -> None:
    origin = mount_counted(folder)
    origin.set(cached=DROPS)
    limit = BUFFER_BYTES + bytes_of(folder)

    with Loader(paths(origin), 10, memory_limit=limit, **BUFFERS) as loader:
        for path in folder.iterdir():
            os.utime(path, (1, 1))
        with pytest.raises(LoaderError, match="was changed since its index was made"):
            list(loader)


def test_memory_of_shards_is_bounded() -> None:
    memory = ShardMemory(10_000, processes=2)

    assert memory.reserve("empty", 0) is None
    assert memory.reserve("large", 5001) is None
    assert memory.reserve("a", 3000) is not None
    assert memory.reserve("a", 10) is None
    assert memory.reserve("b", 2001) is None
    assert memory.reserve("b", 2000) is not None
    memory.bound(3000)
    assert [path for path, _ in memory.shards()] == ["a"]
    memory.close()
    assert memory.bytes == 0
    for number in range(100):
        memory.reserve(str(number), 1)
    assert len(memory.shards()) == SHARDS_MAX // 2


def test_descriptors_of_shards_are_closed_with_their_last_user() -> None:
    before = len(os.listdir("/proc/self/fd"))
    memory = ShardMemory(10_000)
    kept = memory.reserve("a", 5000)
    memory.reserve("b", 5000)

    memory.close()

    assert kept is not None
    kept.write(b"a thread that still reads", 0)
    assert len(os.listdir("/proc/self/fd")) == before + 1
    del kept
    assert len(os.listdir("/proc/self/fd")) == before


def test_headers_are_read_where_there_is_no_memory(
    folder: Path, mount_counted: Callable[..., CountFs], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", refused)
    origin = mount_counted(folder)
    origin.set(cached=DROPS)
    memory = ShardMemory(1 << 30)

    found = Making(are_read=True, memory=memory).records(paths(origin), None)

    assert len(found) == SHARDS * COUNT
    assert memory.shards() == []
    assert origin.counts().read_bytes < 0.75 * bytes_of(folder)
    found.close()


def test_shards_are_put_into_memory_while_a_file_cannot_be_opened(
    folder: Path,
) -> None:
    index = open_records(sorted(map(str, folder.iterdir()))).index
    source = FileSource(index)
    shard = ShardMemory(1 << 30).reserve("a", 100)
    assert shard is not None

    with source._lock:  # as a read has it whose open hangs
        source.put(index.files[0].path, os.dup(shard.fd))

    assert source.memory_bytes == index.files[0].bytes
    source.close()
    assert source.memory_bytes == 0
