"""How much packed Tiers hold of sets with a known ratio, and of real ones."""

import json
import random
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from monarch.codec import Codec
from monarch.native import codec_library
from support.programs import Runner

MIB = 1 << 20
# Capacity of the tier for frames, and of its Pool.
BUDGET, POOL = 8 * MIB, 4 * MIB
FILE_BYTES = 200_000
# Ends when a Tier's pack files stop growing, and prints their disk usage.
WAIT = """
import os, pathlib, sys, time
root, before, since = pathlib.Path(sys.argv[1]), -1, time.monotonic()
while time.monotonic() - since < 4:
    try:
        found = sum(p.stat().st_blocks * 512 for p in root.rglob("*.pack"))
    except FileNotFoundError:
        continue
    if found != before:
        before, since = found, time.monotonic()
    time.sleep(0.05)
print(before)
"""

pytestmark = pytest.mark.skipif(
    codec_library(Codec.parse("zstd:1")) is None, reason="no libzstd"
)


@pytest.fixture
def medium() -> Iterator[Path]:
    """A directory for the Tier."""
    with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="monarch-test-") as folder:
        yield Path(folder)


def shrinking(ratio: float, seed: int) -> bytes:
    """Bytes of which one part of `ratio` is random and the rest nothing."""
    part = int(FILE_BYTES / ratio)
    return random.Random(seed).randbytes(part) + bytes(FILE_BYTES - part)


def volume(seed: int) -> bytes:
    """Floats that differ little from their neighbours, in an array of 3 dimensions."""
    rng = np.random.default_rng(seed)
    field = rng.normal(size=(36, 36, 36)).cumsum(0).cumsum(1).cumsum(2)
    return field.astype("<f4").tobytes()


def records(seed: int) -> bytes:
    """Lines of JSON."""
    rng = random.Random(seed)
    return b"\n".join(
        json.dumps({"id": n, "label": rng.choice("abc"), "box": rng.random()}).encode()
        for n in range(3000)
    )


def picture(seed: int) -> bytes:
    """Bytes that have been compressed already."""
    return random.Random(seed).randbytes(110_000)


def write(root: Path, make: Callable[[int], bytes], total: int) -> None:
    done = number = 0
    while done < total:
        content = make(number)
        place = root / f"class{number % 7}" / f"{number:06}"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)
        done, number = done + len(content), number + 1


def held(
    runner: Runner, medium: Path, root: Path, codec: str
) -> tuple[dict[str, float], int]:
    """What a Tier holds of a dataset that it cannot hold all, and the room on disk."""
    node = replace(runner, tier=f"ram:{BUDGET + POOL}B:{medium}")
    outcome = node.under_monarch(
        ["python3", "-c", WAIT, str(medium)],
        roots=[root],
        options=["--set", f"tiers[0].codec={codec}", "--set", f"peers.transit={POOL}B"],
    )
    assert outcome.succeed()
    report = outcome.report
    assert report["tiers"][0]["used_bytes"] == report["packed"]["stored_bytes"]
    assert int(outcome.stdout) <= BUDGET
    return report["packed"], int(outcome.stdout)


@pytest.mark.parametrize("ratio", [1, 2, 4, 13])
def test_set_that_shrinks_by_a_ratio_is_held_by_that_ratio(
    runner: Runner, medium: Path, tmp_path: Path, ratio: int
) -> None:
    write(tmp_path / "data", lambda n: shrinking(ratio, n), int(1.3 * ratio * BUDGET))

    packed, on_disk = held(runner, medium, tmp_path / "data", "zstd:1")

    # Frames have headers, and incompressible data grows by those alone.
    assert packed["bytes"] >= 0.95 * ratio * BUDGET
    assert packed["stored_bytes"] <= BUDGET
    assert abs(on_disk / packed["stored_bytes"] - 1) <= 0.01
    if ratio == 1:
        assert packed["stored_bytes"] <= 1.01 * packed["bytes"]
        assert packed["raw_files"] == packed["files"]


@pytest.mark.parametrize("shape", [volume, records, picture])
def test_real_shapes_fill_the_tier(
    runner: Runner, medium: Path, tmp_path: Path, shape: Callable[[int], bytes]
) -> None:
    write(tmp_path / "data", shape, 12 * BUDGET)

    packed, on_disk = held(runner, medium, tmp_path / "data", "zstd:1+shuffle4")

    assert packed["bytes"] >= 0.95 * packed["ratio"] * BUDGET
    assert abs(on_disk / packed["stored_bytes"] - 1) <= 0.01
    if shape is not picture:
        assert packed["ratio"] > 1.15


@pytest.mark.parametrize("shape", [volume, records, picture])
def test_auto_holds_at_least_what_a_plain_tier_does(
    runner: Runner, medium: Path, tmp_path: Path, shape: Callable[[int], bytes]
) -> None:
    """Whether it packs the tier or leaves it plain, then with the room of the Pool."""
    write(tmp_path / "data", shape, 12 * BUDGET)

    outcome = (
        replace(runner, tier=f"ram:{BUDGET}B:{medium}")
        .under_monarch(
            ["python3", "-c", WAIT, str(medium)],
            roots=[tmp_path / "data"],
            options=["--set", "tiers[0].codec=auto"],
        )
        .succeed()
    )

    [tier], packed = outcome.report["tiers"], outcome.report["packed"]
    held_bytes = packed["bytes"] if packed else tier["used_bytes"]
    assert held_bytes >= 0.95 * BUDGET
    assert (tier["codec"] == "plain") == (packed is None)
    assert shape is not records or packed["ratio"] > 1.15


def test_small_texts_take_less_than_a_third_of_their_pages(
    runner: Runner,
    medium: Path,
    tmp_path: Path,
    soak_count: Callable[[int, int], int],
) -> None:
    files = soak_count(20_000, 200_000)
    words = [b"%d" % n for n in np.random.default_rng(1).integers(1 << 20, size=300)]

    def text(seed: int) -> bytes:
        rng = random.Random(seed)
        return b" ".join(rng.choice(words) for _ in range(300))[:2000]

    write(tmp_path / "data", text, 2000 * files)

    packed, _ = held(runner, medium, tmp_path / "data", "zstd:3")

    pages = BUDGET // 4096  # as separate files
    assert packed["files"] >= min(3 * pages, files)
