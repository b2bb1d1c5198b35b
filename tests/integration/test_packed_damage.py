"""Pack files damaged under a running job: programs read the right bytes."""

import json
import os
import random
import struct
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import zstandard

from monarch.codec import PIECE_BYTES, Codec
from monarch.native import codec_library
from support.certified import head_of
from support.jobs import Jobs
from support.processes import WAIT_S, wait_until

FILES = 60
SIZES = (20_000, 100_000, 200_000, PIECE_BYTES + 100_000)
# So small that Files are evicted, and decoded again.
POOL = "peers.transit=8MiB"
HEAD = struct.Struct("<IIIBBhQ16s")
MAGIC = 0x4D52464D
RAW = 1 << 31
ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
SKIPPED_MAGIC = b"\x50\x2a\x4d\x18"
SKIPPED_HEAD = 8
LEVEL = range(14, 16)

pytestmark = pytest.mark.skipif(
    codec_library(Codec.parse("zstd:1")) is None, reason="no libzstd"
)

# Reads all certified files, reports it, and continues when a file exists.
READER = """
import pathlib, sys, time
sys.path.insert(0, sys.argv[1])
from certified import read_all
root, gates = pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3])
wrong = 0
for turn in range(3):
    while turn and not (gates / f"go{turn}").exists():
        time.sleep(0.01)
    wrong += read_all(root, 2, None, turn)
    (gates / f"done{turn}").touch()
sys.exit(wrong > 0)
"""


@dataclass(frozen=True, slots=True)
class Frame:
    """Where a frame, its pieces and its end stand in a pack file.

    Attributes:
        packed: where the pieces that are compressed begin, and how long each is.
    """

    begin: int
    pieces: int
    end: int
    packed: tuple[tuple[int, int], ...]


def frames(content: bytes) -> list[Frame]:
    """The frames of a pack file."""
    found, at = [], 0
    while at + HEAD.size <= len(content):
        magic, plain, stored, *_ = HEAD.unpack_from(content, at)
        assert magic == MAGIC
        count = -(-plain // PIECE_BYTES)
        lengths = struct.unpack_from(f"<{count}I", content, at + HEAD.size)
        place = first = at + HEAD.size + 4 * count
        packed = []
        for length in lengths:
            if not length & RAW:
                packed.append((place, length))
            place += length & ~RAW
        at = at + HEAD.size + stored
        found.append(Frame(first - 4 * count - HEAD.size, first, at, tuple(packed)))
    return found


# -- pieces with false headers --------------------------------------------------------


def padded(zstd: bytes, length: int) -> bytes:
    """A zstd frame and one that decoders skip, of so many bytes together."""
    rest = length - len(zstd) - SKIPPED_HEAD
    assert rest >= 0
    return zstd + SKIPPED_MAGIC + struct.pack("<I", rest) + bytes(rest)


def zstd_of_more(length: int) -> bytes:
    return padded(zstandard.compress(bytes(16 << 20)), length)


def zstd_of_less(length: int) -> bytes:
    return padded(zstandard.compress(b"less"), length)


def zstd_that_declares_a_terabyte(length: int) -> bytes:
    one_segment, raw_block = b"\xe0", b"\x01\x00\x00"
    head = ZSTD_MAGIC + one_segment + struct.pack("<Q", 1 << 40) + raw_block
    return head + bytes(length - len(head))


def zstd_of_another_dictionary(length: int) -> bytes:
    samples: list[bytes | bytearray | memoryview] = [
        b"%d words of a text %d" % (n, n * n) for n in range(2000)
    ]
    other = zstandard.train_dictionary(4096, samples)
    compressor = zstandard.ZstdCompressor(dict_data=other)
    assert other.dict_id()
    return padded(compressor.compress(bytes(1000)), length)


def lz4_of_more(length: int) -> bytes:
    """A byte that is repeated some 255 times as often as there are bytes."""
    match = b"\x1f" + b"a" + struct.pack("<H", 1)
    last = b"\x50aaaaa"
    rest = length - len(match) - len(last) - 1
    return match + b"\xff" * rest + b"\x00" + last


def lz4_of_less(length: int) -> bytes:
    """Short matches: four bytes of three."""
    first, match = b"\x10a\x01\x00", b"\x00\x01\x00"
    literals = 5 + (length - len(first) - 6) % 3
    count = (length - len(first) - 1 - literals) // len(match)
    return first + match * count + bytes([literals << 4]) + b"a" * literals


BOMBS: list[tuple[str, Callable[[int], bytes]]] = [
    *(("zstd:3", made) for made in (zstd_of_more, zstd_of_less)),
    ("zstd:3", zstd_that_declares_a_terabyte),
    *(("zstd:3+dict", made) for made in (zstd_of_more, zstd_of_less)),
    ("zstd:3+dict", zstd_of_another_dictionary),
    *(("lz4", made) for made in (lz4_of_more, lz4_of_less)),
]


def bombed(content: bytes, made: Callable[[int], bytes]) -> bytes:
    """A pack file in which a compressed piece of each frame is such a one."""
    damaged = bytearray(content)
    for frame in frames(content):
        begin, length = frame.packed[-1]
        piece = made(length)
        assert len(piece) == length
        damaged[begin : begin + length] = piece
    return bytes(damaged)


def flipped(content: bytes, rng: random.Random) -> bytes:
    """A pack file with one bit of each frame the other way: of its head, its lengths or
    its pieces."""
    damaged = bytearray(content)
    for frame in frames(content):
        lengths = frame.begin + HEAD.size
        # The level has no effect: see frame_check().
        head = [n for n in range(HEAD.size) if n not in LEVEL]
        place = rng.choice(
            [
                frame.begin + rng.choice(head),
                rng.randrange(lengths, frame.pieces),
                rng.randrange(frame.pieces, frame.end),
            ]
        )
        damaged[place] ^= 1 << rng.randrange(8)
    return bytes(damaged)


# -- the job --------------------------------------------------------------------------


def text(size: int, rng: random.Random) -> bytes:
    """Words that shrink to a third or so."""
    words = [b"%d" % rng.randrange(1 << 20) for _ in range(300)]
    return b" ".join(rng.choice(words) for _ in range(size // 5 + 1))[:size]


@pytest.fixture
def jobs(tmp_path: Path, run_root: Path, monarch_command: Path) -> Iterator[Jobs]:
    root, rng = tmp_path / "data", random.Random(1)
    root.mkdir()
    for number in range(FILES):
        name, content = f"part{number:03}", text(rng.choice(SIZES), rng)
        (root / name).write_bytes(head_of(name, content) + content)
    with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="monarch-test-") as ram:
        made = Jobs(monarch_command, root, run_root, Path(ram))
        yield made
        made.kill()


def packed_all(folder: Path) -> bool:
    """The pack files below a folder hold all files."""
    packs = [path.read_bytes() for path in folder.rglob("*.pack")]
    return sum(len(frames(content)) for content in packs) == FILES


def hurt(
    jobs: Jobs, options: list[str], place: Path, damage: Callable[[list[Path]], None]
) -> Mapping[str, Any]:
    """Return the report of a job whose pack files are damaged after its first turn; in
    all three turns its bytes are right."""
    gates = jobs.run_root.parent / "gates"
    gates.mkdir()
    report = jobs.run_root.parent / "report.json"
    program = [sys.executable, "-c", READER]
    words = [str(Path(__file__).parents[1] / "support"), str(jobs.data), str(gates)]
    more = ["-q", "--set", POOL, "--report", str(report)]
    job = jobs.start([*options, *more], [*program, *words])
    wait_until((gates / "done0").exists, "the first turn")
    wait_until(lambda: packed_all(place), "all files are packed")

    damage(sorted(place.rglob("*.pack")))
    (gates / "go1").touch()
    wait_until((gates / "done1").exists, "the turn on damaged frames")
    (gates / "go2").touch()

    job.end(WAIT_S).well()
    return dict(json.loads(report.read_text()))


def rewrite(path: Path, content: bytes) -> None:
    """Change a file in place: the agent has it open."""
    with open(path, "r+b") as file:
        file.write(content)


def survived(report: Mapping[str, Any]) -> None:
    """The damaged frames were dropped, and their Files packed again."""
    # Files in the Pool were not decoded.
    assert 0.5 * FILES <= report["packed"]["dropped_files"] <= FILES
    assert report["packed"]["files"] >= 0.9 * FILES
    assert report["agent"]["agent_errors"] == 0


@pytest.mark.parametrize(("codec", "made"), BOMBS)
def test_piece_of_another_length_than_declared_is_dropped(
    jobs: Jobs, codec: str, made: Callable[[int], bytes]
) -> None:
    """What decodes to other bytes than it declares is dropped, counted and replaced."""

    def damage(packs: list[Path]) -> None:
        for pack in packs:
            rewrite(pack, bombed(pack.read_bytes(), made))

    report = hurt(jobs, ["--set", f"tiers[0].codec={codec}"], jobs.ram, damage)

    survived(report)


@pytest.mark.parametrize("codec", ["none", "lz4", "zstd:1+shuffle4", "zstd:3+dict"])
def test_bit_that_flips_anywhere_in_a_frame_is_found(jobs: Jobs, codec: str) -> None:
    rng = random.Random(codec)

    def damage(packs: list[Path]) -> None:
        for pack in packs:
            rewrite(pack, flipped(pack.read_bytes(), rng))

    report = hurt(jobs, ["--set", f"tiers[0].codec={codec}"], jobs.ram, damage)

    survived(report)


@pytest.mark.parametrize("rest", [0, 300, 100_000])
def test_truncated_pack_file_loses_the_frames_behind_the_cut(
    jobs: Jobs, rest: int
) -> None:
    def damage(packs: list[Path]) -> None:
        for pack in packs:
            os.truncate(pack, rest)

    report = hurt(jobs, ["--set", "tiers[0].codec=zstd:3"], jobs.ram, damage)

    survived(report)


def test_removed_pack_files_remain_readable(jobs: Jobs) -> None:
    """The agent has them open."""

    def damage(packs: list[Path]) -> None:
        for pack in packs:
            pack.unlink()

    report = hurt(jobs, ["--set", "tiers[0].codec=lz4"], jobs.ram, damage)

    assert report["packed"]["dropped_files"] == 0
