"""How a job chooses codecs at its start: in bounded time, with its reads reported."""

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from monarch.agent import packed_tiers
from monarch.codec import Codec
from monarch.config import Tier as TierSection
from monarch.native import codec_library
from monarch.origins import trials
from monarch.tiers import TierSettings, speed
from support.clusters import Cluster
from support.countfs import CountFs
from support.nodes import Plan
from support.programs import Runner

AUTO = ("--set", "tiers[0].codec=auto")
FILES, FILE_BYTES = 200, 20_000
START_MAX_S = 5.0
"""What a choice may take in all, where the origin does not answer."""

pytestmark = pytest.mark.skipif(
    codec_library(Codec.parse("zstd:1")) is None, reason="no libzstd"
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    root = tmp_path / "data"
    root.mkdir()
    for number in range(FILES):
        content = random.Random(number).randbytes(FILE_BYTES)
        (root / f"{number}.bin").write_bytes(content)
    return root


def test_origin_that_hangs_does_not_delay_the_start_without_limit(
    runner: Runner, folder: Path, mount_counted: Callable[..., CountFs]
) -> None:
    """Its names are known from an earlier job: what hangs is the trial of codecs."""
    view = mount_counted(folder)
    options = ("--set", "fill.enabled=false")
    time.sleep(2.5)  # otherwise directories have changed too recently to be saved
    runner.under_monarch(["true"], roots=[view.root], options=options).succeed()
    view.set(stall=".bin")
    began = time.monotonic()
    plain = runner.under_monarch(["true"], roots=[view.root], options=options)
    plain_s = time.monotonic() - began
    began = time.monotonic()

    packed = runner.under_monarch(
        ["true"], roots=[view.root], options=(*options, *AUTO)
    )

    took_s = time.monotonic() - began
    view.set(stall="")
    assert plain.succeed()
    assert packed.succeed()
    assert packed.report["agent"]["tried_bytes"] == 0
    assert took_s - plain_s < START_MAX_S


def test_reads_that_choose_a_codec_are_in_the_report(
    runner: Runner, folder: Path, mount_counted: Callable[..., CountFs]
) -> None:
    view = mount_counted(folder)
    view.reset()

    outcome = runner.under_monarch(
        ["true"], roots=[view.root], options=("--set", "fill.enabled=false", *AUTO)
    ).succeed()

    read = view.counts().read_bytes
    assert 0 < read <= 0.01 * FILES * FILE_BYTES
    assert outcome.origin_bytes == outcome.report["agent"]["tried_bytes"] == read


def test_reads_of_the_first_node_for_all_are_in_the_report(
    make_cluster: Callable[..., Cluster],
) -> None:
    cluster = make_cluster(3)

    outcome = cluster.run(Plan(2), *AUTO).right(opens=6 * len(cluster.sizes))

    report, read = outcome.report, cluster.origin.counts().read_bytes
    assert report["agent"]["tried_bytes"] > 0
    assert [tier["codec"] for tier in report["tiers"]] == ["plain"], "nothing shrinks"
    assert report["origin"]["agent_read_bytes"] == read


def test_tier_of_files_that_do_not_shrink_holds_as_many_as_a_plain_one(
    runner: Runner, folder: Path
) -> None:
    """A packed one would leave an eighth of its memory to the Pool."""
    read = ["sh", "-c", f"cat {folder}/* | cksum; cat {folder}/* | cksum"]
    small = replace(runner, tier="ram:2MiB")

    plain, auto = (
        small.under_monarch(read, roots=[folder], options=options).succeed()
        for options in ((), AUTO)
    )

    [held_plain], [held] = plain.report["tiers"], auto.report["tiers"]
    assert held["codec"] == "plain"
    assert held["files"] == held_plain["files"] < FILES
    assert held["capacity_bytes"] == held_plain["capacity_bytes"]
    assert auto.stdout == plain.stdout


def test_start_line_says_why_a_tier_is_not_packed(folder: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-P", "-m", "monarch", "run", "--data", str(folder)]
    environ = os.environ | {"XDG_STATE_HOME": str(tmp_path / "state")}

    told = subprocess.run(
        [*command, "--tier", "ram:2MiB", *AUTO, "--", "true"],
        check=True,
        capture_output=True,
        text=True,
        env=environ,
    ).stderr

    line = " ".join(told.split())
    assert "to ram 2.0 MiB not packed (nothing shrinks; files are staged in" in line
    assert "pool" not in line


def test_tiny_files_that_do_not_shrink_are_packed_uncompressed(
    runner: Runner, tmp_path: Path
) -> None:
    """Each would fill a page of its own."""
    root = tmp_path / "tiny"
    root.mkdir()
    for number in range(2000):
        (root / f"{number}").write_bytes(random.Random(number).randbytes(600))
    read = ["sh", "-c", f"cat {root}/* | cksum"]

    outcome = (
        replace(runner, tier="ram:2MiB")
        .under_monarch(
            read, roots=[root], options=(*AUTO, "--set", "peers.transit=512KiB")
        )
        .succeed()
    )

    [held] = outcome.report["tiers"]
    assert held["codec"] == "none"
    assert held["files"] > (2 << 20) // 4096, "more than there are pages"


SLOW_TIER, MEMORY = (1000.0, 1e7), (1e5, 4e9)


def choice_among(
    monkeypatch: pytest.MonkeyPatch,
    pieces: list[bytes],
    known: packed_tiers.Known,
    tier_speed: tuple[float, float] = SLOW_TIER,
) -> Codec:
    """What is chosen for files of which these are pieces, at an origin that is slow."""
    weights = np.full(len(pieces), 1 / len(pieces))
    files = np.arange(len(pieces))
    read = trials.Pieces(pieces, weights, 0, 10.0, files)
    monkeypatch.setattr(trials, "read_pieces", lambda inventory, sample: read)
    monkeypatch.setattr(speed, "measure_speed", lambda *_: tier_speed)
    section = TierSection(name="ram", kind="ram", codec="auto")
    tier: Any = SimpleNamespace(
        settings=TierSettings.of(0, section),
        name="ram",
        directory=Path(),
        capacity_bytes=sum(map(len, pieces)) // 10,
        pool_part_bytes=0,
    )
    setup: Any = SimpleNamespace(tiers=[tier])
    inventory: Any = Files(pieces)
    found = packed_tiers.choose_packing(setup, inventory, print, known)
    return found.packed[0].packings[0].codec


class Files:
    """As many files as pieces, and as large."""

    def __init__(self, pieces: list[bytes]) -> None:
        self.sizes = np.array(list(map(len, pieces)), np.uint64)
        self.total_bytes = int(self.sizes.sum())

    def __len__(self) -> int:
        return len(self.sizes)


def test_dictionary_is_chosen_by_a_node_that_chooses_for_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of a job, each node would read a sample of its own to train it."""
    rng = random.Random(3)
    pieces = [
        json.dumps({"image": f"n{rng.randrange(10**6):08}.jpg", "box": [n, 7]}).encode()
        for n in range(3000)
    ]

    alone = choice_among(monkeypatch, pieces, packed_tiers.Known())
    for_others = choice_among(monkeypatch, pieces, packed_tiers.Known(for_others=True))

    assert alone.dictionary
    assert not for_others.dictionary


def test_codec_suffices_where_all_nodes_together_have_the_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A stronger one would cost the first epoch time, and hold no more."""
    rng = random.Random(4)
    words = [b"%x" % rng.randrange(1 << 40) for _ in range(3000)]
    pieces = [
        b" ".join(words[int(3000 * rng.random() ** 6)] for _ in range(12_000))
        for _ in range(64)
    ]

    def chosen(rooms: float) -> Codec:
        known = packed_tiers.Known(for_others=True, rooms=rooms)
        return choice_among(monkeypatch, pieces, known, MEMORY)

    alone, together = chosen(rooms=1.0), chosen(rooms=6.0)
    assert alone.method == "zstd"
    assert together.method != "zstd" or together.level < alone.level, (alone, together)


def text(seed: int) -> bytes:
    """Lines of numbers, of different lengths."""
    rng = random.Random(seed)
    lines = (f'{{"id": {rng.randrange(9**9)}, "ok": true}}' for _ in range(9000))
    return "\n".join(lines).encode()[: 100_000 + 1000 * (seed % 150)]


def volume(seed: int) -> bytes:
    """A walk in float32."""
    steps = np.random.default_rng(seed).normal(size=50_000).cumsum()
    return steps.round(1).astype("<f4").tobytes()


@pytest.mark.parametrize("make", [text, volume], ids=["text", "volumes"])
def test_job_and_codecs_choose_the_same(
    runner: Runner,
    tmp_path: Path,
    mount_counted: Callable[..., CountFs],
    make: Callable[[int], bytes],
) -> None:
    """And what fits is as predicted, within a tenth."""
    root = tmp_path / "files"
    for number in range(120):
        (root / f"{number % 4}").mkdir(parents=True, exist_ok=True)
        (root / f"{number % 4}" / f"{number}").write_bytes(make(number))
    view = mount_counted(root, bw=100_000_000)
    command = [sys.executable, "-P", "-m", "monarch", "codecs", str(view.root)]
    done = subprocess.run(
        [*command, "--tier", "ram:6MiB", "--set", "peers.transit=1MiB", "--json"],
        check=True,
        capture_output=True,
        text=True,
    )
    [tier] = json.loads(done.stdout)["tiers"]

    outcome = (
        replace(runner, tier="ram:6MiB")
        .under_monarch(
            ["sh", "-c", f"cat {view.root}/*/* | cksum"],
            roots=[view.root],
            options=[*AUTO, "--set", "peers.transit=1MiB"],
        )
        .succeed()
    )

    [held] = outcome.report["tiers"]
    ratios = {one["codec"]: one["ratio"] for one in tier["codecs"]}
    assert held["codec"] == tier["chosen"] != "none"
    assert held["expected_ratio"] == pytest.approx(ratios[tier["chosen"]], rel=1e-6)
