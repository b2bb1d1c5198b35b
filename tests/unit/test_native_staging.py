"""The Engine class: orders, requests and completions on a small job."""

import errno
import os
import select
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import xxhash

from monarch import native
from monarch.native import DTYPES, Completion, Order, OrderKind, ReplicaState, Step
from support.stages import table_files
from unit.test_native_calls import make_block

SIZES = (0, 1, 5000, 3 << 20, 17 << 20)
CHUNK_BYTES = native.CONSTANTS["CHUNK_BYTES"]
PATIENCE_MS = 60_000


@dataclass(frozen=True, slots=True)
class Job:
    """A job whose Files are SIZES long, with its segments."""

    origin: Path
    tier: Path
    block: npt.NDArray[np.uint8]
    board: native.Segments
    options: native.Options

    @property
    def states(self) -> npt.NDArray[np.uint32]:
        """The state words."""
        catalog: Any = self.board.catalog
        head = catalog[: DTYPES["catalog"].itemsize].view(DTYPES["catalog"])
        at, count = int(head["states"][0]), int(head["file_count"][0])
        words: npt.NDArray[np.uint32] = catalog[at : at + 4 * count].view(np.uint32)
        return words

    def replica(self, file: int) -> Path:
        """Where the Replica of a File is to be."""
        return self.tier / native.replica_name(
            self.block, os.fsencode(self.origin), file + 1
        )

    def submit(self, engine: native.Engine, file: int, kind: OrderKind) -> None:
        """Order a File, of which no program knows yet."""
        self.states[file] = native.state_word(ReplicaState.STAGING)
        assert engine.submit([Order(file, 0, kind)]) == 1


def write_origin(
    folder: Path, sizes: Sequence[int], contents: Sequence[bytes] = ()
) -> list[Path]:
    """Files of these sizes with random bytes, or with these contents."""
    folder.mkdir()
    paths = [folder / f"file{i}" for i in range(len(sizes))]
    for number, (path, size) in enumerate(zip(paths, sizes, strict=True)):
        random = np.random.default_rng(size)
        path.write_bytes(contents[number] if contents else random.bytes(size))
    return paths


def index_of(folder: Path, paths: list[Path]) -> npt.NDArray[np.uint8]:
    """The index block of these Files."""
    block = make_block([os.fsencode(path.name) for path in paths])
    at = DTYPES["index"].itemsize
    entries: Any = block[at : at + 64 * (1 + len(paths))].view(DTYPES["entry"])
    attrs_at = int(block[:at].view(DTYPES["index"])["attrs"][0])
    attrs: Any = block[attrs_at : attrs_at + 64].view(DTYPES["attr"])
    for entry, path in zip(entries[1:], paths, strict=True):
        seen = path.stat()
        entry["ino"], entry["size"] = seen.st_ino, seen.st_size
        entry["mtime_ns"], entry["ctime_ns"] = seen.st_mtime_ns, seen.st_ctime_ns
    attrs["dev"], attrs["uid"] = folder.stat().st_dev, os.geteuid()
    native.index_finish(block)
    return block


def segment(name: str, kind: native.SegmentKind, tail: int) -> npt.NDArray[np.uint8]:
    """An empty segment with `tail` bytes behind its struct."""
    memory = np.zeros(DTYPES[name].itemsize + tail, np.uint8)
    head: Any = memory[: DTYPES["segment"].itemsize].view(DTYPES["segment"])
    head["magic"], head["kind"] = b"MONARCH", kind
    head["version"], head["length"] = native.CONSTANTS["LAYOUT_VERSION"], len(memory)
    return memory


def catalog_of(
    origin: Path, tier: Path, block: npt.NDArray[np.uint8], count: int
) -> npt.NDArray[np.uint8]:
    """The catalog of one root and one Tier."""
    size = DTYPES["catalog"].itemsize
    states = size + len(block)
    root = os.fsencode(origin)
    strings = states + 4 * count
    memory = segment("catalog", native.SegmentKind.CATALOG, strings - size + 4096)
    head: Any = memory[:size].view(DTYPES["catalog"])
    memory[size:states] = block
    head["file_count"], head["root_count"], head["tier_count"] = count, 1, 1
    head["states"], head["strings"] = states, strings
    memory[strings:][: len(root)] = np.frombuffer(root, np.uint8)
    head["roots"]["block"][0, 0] = size
    head["roots"]["path"][0, 0] = len(root)
    head["roots"]["path_hash"][0, 0] = native.hash64(root)
    head["tiers"]["path"][0, 0] = os.fsencode(tier)
    head["tiers"]["dev"][0, 0] = tier.stat().st_dev
    return memory


def make_job(
    base: Path,
    sizes: Sequence[int] = SIZES,
    contents: Sequence[bytes] = (),
    origin: Path | None = None,
) -> Job:
    """A job on a directory of its own, or over the origin of an earlier one."""
    tier = base / "tier"
    tier.mkdir(mode=0o700)
    if origin is None:
        origin = base / "origin"
        write_origin(origin, sizes, contents)
    paths = [origin / f"file{i}" for i in range(len(sizes))]
    block = index_of(origin, paths)
    slots = 64 + 2 * len(sizes)
    inodes = segment("inodes", native.SegmentKind.INODES, slots * 16)
    inodes[: DTYPES["inodes"].itemsize].view(DTYPES["inodes"])["slot_count"] = slots
    first = table_files(list(sizes)).first
    marks = 64 + len(sizes)
    flags = segment("flags", native.SegmentKind.FLAGS, marks + len(sizes))
    head = DTYPES["flags"].itemsize
    flags[:head].view(DTYPES["flags"])["opened"] = head + marks
    board = native.Segments(
        catalog=catalog_of(origin, tier, block, len(sizes)),
        flags=flags,
        requests=segment("requests", native.SegmentKind.REQUESTS, 0),
        inodes=inodes,
    )
    options = native.Options(
        threads=2,
        background_max=1,
        bandwidth_bytes_per_s=None,
        digests=np.zeros(int(first[-1]), np.uint64),
        digest_first=first,
    )
    return Job(origin, tier, block, board, options)


def files_of(job: Job, sizes: Sequence[int]) -> native.TableFiles:
    """The Files of a job as a staging table has them."""
    flags: Any = job.board.flags
    at = DTYPES["flags"].itemsize
    return native.TableFiles(
        sizes=np.array(sizes, np.uint64),
        words=job.states,
        marks=flags[at : at + len(sizes)],
        root_marks=flags[:at].view(DTYPES["flags"])["roots"][0],
        bases=np.zeros(1, np.uint32),
        first=job.options.digest_first,
    )


@pytest.fixture
def job(tmp_path: Path) -> Job:
    """A job below the test's own directory."""
    return make_job(tmp_path)


@pytest.fixture
def engine(job: Job) -> Iterator[native.Engine]:
    """A running engine."""
    with native.Engine(job.board, job.options) as running:
        yield running


def wait_event(engine: native.Engine) -> None:
    """Wait as an event loop does."""
    poll = select.poll()
    poll.register(engine.event_fd, select.POLLIN)
    assert poll.poll(PATIENCE_MS), "nothing happened"


def next_completions(engine: native.Engine, n: int) -> list[Completion]:
    """The next n completions, by File."""
    found: list[Completion] = []
    while len(found) < n:
        wait_event(engine)
        found += engine.completions()
    return sorted(found)


@pytest.mark.parametrize("kind", [OrderKind.DEMAND, OrderKind.BACKGROUND])
def test_files_are_staged_and_published(
    job: Job, engine: native.Engine, kind: OrderKind
) -> None:
    for file in range(len(SIZES)):
        job.submit(engine, file, kind)

    done = next_completions(engine, len(SIZES))

    assert [(c.order, c.step, c.status, c.bytes) for c in done] == [
        (Order(file, 0, kind), Step.PUBLISH, 0, size) for file, size in enumerate(SIZES)
    ]
    assert not any(c.expired for c in done)
    assert all(native.word_parts(w)[0] is ReplicaState.READY for w in job.states)
    for file in range(len(SIZES)):
        original, copy = job.origin / f"file{file}", job.replica(file)
        assert copy.read_bytes() == original.read_bytes()
        assert stat.S_IMODE(copy.stat().st_mode) == 0o400
        assert copy.stat().st_mtime_ns == original.stat().st_mtime_ns


def test_the_pace_counts_only_bytes_read_from_the_origin(job: Job) -> None:
    os.utime(job.origin / "file2")  # fails: it has changed
    with native.Engine(job.board, job.options) as engine:
        for file, kind in enumerate([OrderKind.DEMAND, OrderKind.BACKGROUND] * 2):
            job.submit(engine, file, kind)
        done = next_completions(engine, 4)
        pace, demands = engine.pace(), engine.demands()
        again = engine.demands()
    copied = [c for c in done if not c.status]
    fills = [c for c in copied if c.kind == OrderKind.BACKGROUND]

    assert pace.files == len(copied) == 3
    assert pace.reads == len(copied) - len(fills) + sum(
        max(1, -(-c.bytes // CHUNK_BYTES)) for c in fills
    )
    assert pace.bytes == sum(c.bytes for c in copied)
    assert pace.ns == sum(c.ns for c in copied)
    assert pace.fill_ns == sum(c.ns for c in fills) > 0
    assert pace.stale == 0
    waited = [(c.bytes, c.ns) for c in copied if c.kind == OrderKind.DEMAND]
    assert (demands, again) == (waited, [])
    with native.Engine(job.board, job.options) as second:
        job.submit(second, 3, OrderKind.ADOPT_BACKGROUND)
        next_completions(second, 1)
        assert second.pace().files == 0


def test_digests_chain_over_the_chunks_of_each_extent(
    job: Job, engine: native.Engine
) -> None:
    job.submit(engine, 4, OrderKind.DEMAND)
    next_completions(engine, 1)
    content = (job.origin / "file4").read_bytes()
    expected = []
    for start in range(0, len(content), native.CONSTANTS["EXTENT_BYTES"]):
        extent = content[start : start + native.CONSTANTS["EXTENT_BYTES"]]
        chain = 0
        for at in range(0, len(extent), CHUNK_BYTES):
            piece = extent[at : at + CHUNK_BYTES]
            chain = xxhash.xxh3_64_intdigest(piece, chain)
        expected.append(chain)

    assert job.options.digests[4:7].tolist() == expected


def test_a_replica_of_an_earlier_engine_is_adopted(job: Job) -> None:
    with native.Engine(job.board, job.options) as first:
        job.submit(first, 3, OrderKind.DEMAND)
        next_completions(first, 1)

    with native.Engine(job.board, job.options) as second:
        job.submit(second, 3, OrderKind.ADOPT_BACKGROUND)
        (done,) = next_completions(second, 1)

    assert (done.status, done.bytes) == (0, 0)
    assert native.word_parts(job.states[3])[0] is ReplicaState.READY


def test_a_spoiled_replica_is_removed_instead(job: Job, engine: native.Engine) -> None:
    job.submit(engine, 3, OrderKind.DEMAND)
    next_completions(engine, 1)
    job.replica(3).chmod(0o600)
    job.replica(3).write_bytes(bytes(SIZES[3]))
    job.replica(3).chmod(0o400)

    job.submit(engine, 3, OrderKind.ADOPT)
    (done,) = next_completions(engine, 1)

    assert (done.status, done.step) == (-errno.EBADMSG, Step.VERIFY)
    assert not job.replica(3).exists()


def test_a_changed_origin_is_reported_and_not_staged(
    job: Job, engine: native.Engine
) -> None:
    os.utime(job.origin / "file2")

    job.submit(engine, 2, OrderKind.DEMAND)
    (done,) = next_completions(engine, 1)

    assert (done.status, done.step) == (-errno.ESTALE, Step.STAT)
    assert native.word_parts(job.states[2])[0] is ReplicaState.STAGING
    assert not any(job.tier.iterdir())


def test_a_request_in_a_slot_reaches_the_agent_once(
    job: Job, engine: native.Engine
) -> None:
    requests: Any = job.board.requests
    slots = requests.view(DTYPES["requests"])["slots"][0]
    slots[[5, 900]] = 2 + 1

    wait_event(engine)
    files = engine.requests()

    assert files == [2]
    assert not slots.any()


def test_a_closed_engine_refuses_work_with_an_error(job: Job) -> None:
    engine = native.Engine(job.board, job.options)

    assert engine.close() is True
    assert engine.close() is True

    with pytest.raises(ValueError, match="closed"):
        engine.submit([])
    with pytest.raises(ValueError, match="closed"):
        engine.requests()


def test_digests_of_another_type_are_refused(job: Job) -> None:
    wrong: Any = np.zeros(16, np.int32)
    options = native.Options(1, 1, None, wrong, job.options.digest_first)

    with pytest.raises(ValueError, match="u64"):
        native.Engine(job.board, options)


def test_an_engine_that_cannot_start_reports_why(job: Job) -> None:
    options = native.Options(0, 1, None, job.options.digests, job.options.digest_first)

    with pytest.raises(OSError, match="cannot start the copy engine") as caught:
        native.Engine(job.board, options)

    assert caught.value.errno == errno.EINVAL


def test_a_closed_engine_leaves_no_descriptor_and_no_thread(job: Job) -> None:
    before = set(os.listdir("/proc/self/fd")), set(os.listdir("/proc/self/task"))

    with native.Engine(job.board, job.options) as engine:
        job.submit(engine, 1, OrderKind.DEMAND)
        next_completions(engine, 1)
        assert len(os.listdir("/proc/self/task")) == len(before[1]) + 3

    after = set(os.listdir("/proc/self/fd")), set(os.listdir("/proc/self/task"))
    assert after == before
