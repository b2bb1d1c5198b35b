"""The counting file system of other tests counts, slows and fails as requested."""

import errno
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from support.countfs import CountFs
from support.dataset import Dataset

Mount = Callable[..., CountFs]


def test_the_view_reads_as_the_source(mount_counted: Mount, dataset: Dataset) -> None:
    view = mount_counted(dataset.root)

    seen = Dataset(view.root, dataset.digests, dataset.size_bytes)

    assert not seen.differing()
    assert sorted(os.listdir(view.root)) == sorted(os.listdir(dataset.root))
    for here, there in zip(seen.paths, dataset.paths, strict=True):
        one, other = here.stat(), there.stat()
        assert (one.st_ino, one.st_size, one.st_mtime_ns, one.st_ctime_ns) == (
            other.st_ino,
            other.st_size,
            other.st_mtime_ns,
            other.st_ctime_ns,
        )


def test_opens_and_bytes_are_counted_exactly(
    mount_counted: Mount, dataset: Dataset
) -> None:
    view = mount_counted(dataset.root)
    seen = Dataset(view.root, dataset.digests, dataset.size_bytes)

    for _ in range(2):
        assert not seen.differing()

    assert view.counts().opens == 2 * len(dataset.digests)
    assert view.counts().read_bytes == 2 * dataset.size_bytes


def test_a_reset_zeroes_the_counts(mount_counted: Mount, dataset: Dataset) -> None:
    view = mount_counted(dataset.root)
    (view.root / dataset.paths[0].relative_to(dataset.root)).read_bytes()
    before = view.counts()

    view.reset()

    assert before.opens == 1
    assert view.counts().opens == 0
    assert view.counts().read_bytes == 0


def test_the_view_refuses_writers(mount_counted: Mount, dataset: Dataset) -> None:
    view = mount_counted(dataset.root)
    path = view.root / dataset.paths[0].relative_to(dataset.root)

    with pytest.raises(OSError, match="Read-only") as refused:
        os.open(path, os.O_WRONLY)

    assert refused.value.errno == errno.EROFS


def test_failures_hit_only_the_named_paths(
    mount_counted: Mount, dataset: Dataset
) -> None:
    view = mount_counted(dataset.root)
    names = [str(path.relative_to(dataset.root)) for path in dataset.paths]
    view.set(read_eio=names[0])

    with pytest.raises(OSError, match="Input/output") as failed:
        (view.root / names[0]).read_bytes()
    (view.root / names[1]).read_bytes()
    view.set(read_eio="", open_eio=names[1])
    (view.root / names[0]).read_bytes()
    with pytest.raises(OSError, match="Input/output"):
        (view.root / names[1]).open("rb")

    assert failed.value.errno == errno.EIO
    assert view.counts().failures == 2


def test_stalled_reads_resume_when_the_stall_ends(
    mount_counted: Mount, dataset: Dataset
) -> None:
    view = mount_counted(dataset.root, stall="class-")
    names = [path.relative_to(dataset.root) for path in dataset.paths]
    contents: dict[Path, bytes] = {}

    def read(name: Path) -> None:
        contents[name] = (view.root / name).read_bytes()

    readers = [threading.Thread(target=read, args=[name]) for name in names]
    for reader in readers:
        reader.start()
    readers[0].join(0.2)
    before_the_end = dict(contents)
    view.set(stall="")
    for reader in readers:
        reader.join(10)

    assert not before_the_end
    assert contents == {name: (dataset.root / name).read_bytes() for name in names}


def test_readers_share_one_throttled_link(mount_counted: Mount, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    for name in "ab":
        (source / name).write_bytes(bytes(200_000))
    view = mount_counted(source, bw=1_000_000)

    start = time.monotonic()
    readers = [threading.Thread(target=(view.root / name).read_bytes) for name in "ab"]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join()
    elapsed_s = time.monotonic() - start

    # 400 kB at 1 MB/s take 0.4 s, less the small burst; more only on a busy machine.
    assert elapsed_s > 0.35


def seconds_of_readers(view: CountFs, names: list[str]) -> float:
    """How long it takes until readers of one file each, all at once, have ended."""
    start = time.monotonic()
    readers = [threading.Thread(target=(view.root / name).read_bytes) for name in names]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join()
    return time.monotonic() - start


def four_files(tmp_path: Path) -> tuple[Path, list[str]]:
    source, names = tmp_path / "source", list("abcd")
    source.mkdir()
    for name in names:
        (source / name).write_bytes(b"x")
    return source, names


def test_operations_beyond_those_in_parallel_wait_their_turn(
    mount_counted: Mount, tmp_path: Path
) -> None:
    source, names = four_files(tmp_path)
    view = mount_counted(source, op_us=20_000, parallel=1)
    view.reset()

    elapsed_s = seconds_of_readers(view, names)
    counts = view.counts()

    operations = counts.stats + counts.opens + counts.reads
    assert operations >= 3 * len(names)
    assert elapsed_s >= 0.02 * operations


def test_too_many_reads_at_once_slow_each_other_down(
    mount_counted: Mount, tmp_path: Path
) -> None:
    source, names = four_files(tmp_path)
    view = mount_counted(source, read_us=50_000, thrash=1)

    alone_s = seconds_of_readers(view, names[:1])
    together_s = seconds_of_readers(view, names)

    # Each thread reads twice, to find the end: 0.1 s alone; the first read of the
    # fourth of four concurrent threads takes 16 times as long.
    assert 0.1 <= alone_s < 0.4
    assert together_s > 0.4
