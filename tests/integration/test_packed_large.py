"""Large files in packed Tiers: read once, held compressed, right bytes.

Most tests are those of large files in plain Tiers, with Tiers that have a codec.
"""

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from integration.test_large_faults import (
    TOTAL as FAULTY_TOTAL,
)
from integration.test_large_faults import (  # noqa: F401
    Place,
    leave_no_room,
    small_disk,
    test_a_resumed_agent_stages_the_files_that_were_filling,
    test_an_origin_error_in_mid_file_reaches_the_program_and_no_wrong_byte_does,
    test_bytes_are_right_when_the_agent_is_killed_or_frozen_while_files_fill,
    told,
)
from integration.test_large_faults import (
    place as plain_place,  # noqa: F401
)
from integration.test_nodes_large import (
    cluster as plain_cluster,  # noqa: F401
)
from integration.test_nodes_large import (  # noqa: F401
    test_blocks_that_change_on_the_disk_of_their_owner_reach_no_other_node,
    test_bytes_are_right_when_a_peer_is_killed_or_frozen_in_large_files,
    test_nodes_read_large_files_once_whatever_part_each_reads,
    test_requested_blocks_are_read_once_without_fill,
)
from monarch.codec import Codec
from monarch.native import codec_library
from support.changing_files import disk_bytes
from support.clusters import Cluster
from support.countfs import CountFs
from support.processes import WAIT_S, wait_until
from support.programs import Outcome, Runner

MIB = 1 << 20
SIZES = (9 * MIB + 5, 33 * MIB, 24 * MIB + 300_001, 8 * MIB + 1)
TOTAL = sum(SIZES)
PACKED = ("--set", "tiers[0].codec=lz4", "--set", "peers.transit=40MiB")
# The default. In a small Pool the Extents of all readers compete, and data that a peer
# cannot send in time is read from the origin.
LARGER_BYTES = 256 * MIB
LARGER_POOL = ("--set", f"peers.transit={LARGER_BYTES}B")
OVERREAD_MAX = 1.02

pytestmark = [
    pytest.mark.skipif(codec_library(Codec.parse("lz4")) is None, reason="no liblz4"),
    pytest.mark.timeout(300),
]


@pytest.fixture
def place(plain_place: Place) -> Place:  # noqa: F811
    return replace(plain_place, jobs=replace(plain_place.jobs, extra=PACKED))


@pytest.fixture
def cluster(plain_cluster: Cluster) -> Cluster:  # noqa: F811
    room = 4 * plain_cluster.size_bytes + LARGER_BYTES
    tier = ("--set", f"tiers[0].capacity={room}B")
    return replace(plain_cluster, extra=(*PACKED, *LARGER_POOL, *tier))


def words_of(size: int, seed: int) -> bytes:
    """Words that shrink to a half or less."""
    rng = random.Random(seed)
    words = [b"%x" % rng.randrange(1 << 36) for _ in range(400)]
    part = b" ".join(rng.choice(words) for _ in range(40_000))
    return (part * (size // len(part) + 1))[seed : seed + size]


@pytest.fixture
def counted(mount_counted: Callable[..., CountFs], tmp_path: Path) -> CountFs:
    """A counting origin with large files that shrink."""
    root = tmp_path / "data"
    root.mkdir()
    for number, size in enumerate(SIZES):
        (root / f"{number}.bin").write_bytes(words_of(size, number))
    return mount_counted(root)


READER = """
import os, random, sys, time
origin, source, epochs, way = sys.argv[1:5]
names = sorted(os.listdir(source))
for epoch in range(int(epochs)):
    rng = random.Random(epoch)
    rng.shuffle(names)
    for name in names:
        with open(f"{origin}/{name}", "rb") as found, \
                open(f"{source}/{name}", "rb") as right:
            size = os.stat(f"{source}/{name}").st_size
            if way == "all":
                while piece := found.read(1 << 20):
                    assert piece == right.read(1 << 20), (epoch, name)
                assert not right.read(1)
            for _ in range(20 if way == "some" else 0):
                at = rng.randrange(size)
                found.seek(at), right.seek(at)
                assert found.read(50_000) == right.read(50_000), (epoch, name, at)
    time.sleep(float(sys.argv[5]))
"""


def read(
    runner: Runner, view: CountFs, way: str, *options: str, tier: str = "ram:100MiB"
) -> Outcome:
    """Read three epochs in this way, and compare each byte.

    Args:
        tier: with the Pool, for which it has 40 MiB on top.
    """
    words = ["python3", "-c", READER, str(view.root), str(view.source), "3", way, "1"]
    packed = (*PACKED, *options)
    node = replace(runner, tier=tier)
    view.reset()
    return node.under_monarch(words, roots=[view.root], options=packed).succeed()


def test_large_files_that_fit_only_packed_are_read_once(
    runner: Runner, counted: CountFs
) -> None:
    outcome = read(runner, counted, "all")

    assert TOTAL <= counted.counts().read_bytes <= OVERREAD_MAX * TOTAL + 2 * MIB
    packed, tier = outcome.report["packed"], outcome.report["tiers"][0]
    assert packed["files"] == tier["files"] == len(SIZES)
    assert packed["pieces"] == sum(-(-size // (8 * MIB)) for size in SIZES)
    assert packed["bytes"] == TOTAL
    assert packed["stored_bytes"] == tier["used_bytes"] <= tier["capacity_bytes"]
    assert packed["ratio"] > 1.5
    assert outcome.counter("reads_origin") == 0


def test_sparse_reads_of_packed_files_decode_what_they_need(
    runner: Runner, counted: CountFs
) -> None:
    outcome = read(runner, counted, "some")

    assert counted.counts().read_bytes <= OVERREAD_MAX * TOTAL + 2 * MIB
    assert outcome.report["packed"]["files"] == len(SIZES)
    reads = 3 * 20 * len(SIZES)
    # Each read covers one or two pieces of 1 MiB.
    assert outcome.report["packed"]["decoded_bytes"] <= 2 * MIB * reads
    assert outcome.counter("reads_origin") == 0


def test_damaged_frames_of_large_files_are_dropped(
    runner: Runner, counted: CountFs, tmp_path: Path
) -> None:
    medium = tmp_path / "tier"
    medium.mkdir()
    harm = f"""
import pathlib, time
time.sleep(3)
for pack in pathlib.Path({str(medium)!r}).rglob("*.pack"):
    with open(pack, "r+b") as file:
        size = pack.stat().st_size
        for at in range(100_000, size, 500_000):
            file.seek(at)
            file.write(b"damaged")
"""
    for name, text in (("read.py", READER), ("harm.py", harm)):
        (tmp_path / name).write_text(text)
    once = f"python3 {tmp_path}/read.py {counted.root} {counted.source}"
    program = f"{once} 1 all 0 && python3 {tmp_path}/harm.py && {once} 2 all 0"
    node = replace(runner, tier=f"ssd:60MiB:{medium}")

    outcome = node.under_monarch(
        ["sh", "-c", program], roots=[counted.root], options=PACKED
    ).succeed()

    assert outcome.report["packed"]["dropped_files"] >= 1
    assert counted.counts().read_bytes > 1.1 * TOTAL


def test_piece_damaged_before_it_is_packed_is_read_again(
    runner: Runner,
    run_root: Path,
    mount_counted: Callable[..., CountFs],
    tmp_path: Path,
) -> None:
    """It is compared with what has come; a slow codec leaves the time to damage it.

    The origin is slower than the codec also on a busy machine, or nothing is packed.
    """
    root = tmp_path / "data"
    root.mkdir()
    (root / "0.bin").write_bytes(words_of(16 * MIB + 5, 1))
    view = mount_counted(root, bw=4 * MIB)
    harm = f"""
import contextlib, pathlib, time
found = []
end = time.monotonic() + {WAIT_S}
while not found:
    assert time.monotonic() < end, "no whole piece was seen in the Pool"
    time.sleep(0.005)
    with contextlib.suppress(FileNotFoundError):
        places = pathlib.Path({str(run_root)!r}).glob("**/transit/*.0*")
        found = [one for one in places if one.stat().st_blocks * 512 == 8 << 20]
with open(found[0], "r+b") as file:
    file.seek((8 << 20) - 5000)
    file.write(b"damaged")
while True:
    assert time.monotonic() < end, "the damaged piece was not packed"
    time.sleep(0.1)
    with contextlib.suppress(FileNotFoundError), open(found[0], "rb") as file:
        file.seek((8 << 20) - 5000)
        if file.read(7) == b"damaged":
            continue
    break
time.sleep(0.5)
"""
    for name, text in (("read.py", READER), ("harm.py", harm)):
        (tmp_path / name).write_text(text)
    program = f"python3 {tmp_path}/harm.py && python3 {tmp_path}/read.py "
    program += f"{view.root} {view.source} 1 all 0"
    codec = ("--set", "tiers[0].codec=zstd:9", "--set", "peers.transit=64MiB")

    outcome = runner.under_monarch(
        ["sh", "-c", program], roots=[view.root], options=codec
    ).succeed()

    assert outcome.report["packed"]["dropped_files"] == 1
    assert view.counts().read_bytes > 16 * MIB + 4 * MIB


@pytest.mark.root
def test_pieces_that_find_a_full_disk_are_read_right(
    place: Place,
    small_disk: Path,  # noqa: F811
) -> None:
    """What was packed before stays; what the Tier says to use is what is there."""
    tier = ("--tier", f"ssd:90MiB:{small_disk}")
    job = place.start(place.reader("order", 0), *tier)
    place.read_some(FAULTY_TOTAL // 3)

    ballast = leave_no_room(small_disk)
    place.read_some(FAULTY_TOTAL)

    def is_what_is_there() -> bool:
        stored = disk_bytes(small_disk, ".pack")
        return abs(int(place.tier_report()["used_bytes"]) - stored) <= MIB

    assert ballast.stat().st_size > 8 * MIB
    wait_until(is_what_is_there, "the room of the frames alone is used")
    place.stop.touch()
    [found] = told(job.end(WAIT_S).well())
    assert found.keys() == {"right"}
