"""How a job chooses codecs at its start: in bounded time, and what it read is told."""

import random
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from monarch.codec import Codec
from monarch.native import codec_library
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
    time.sleep(2.5)  # else directories have changed too recently to be saved
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


def test_what_is_read_to_choose_a_codec_is_in_the_report(
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


def test_what_the_first_node_has_read_for_all_is_in_the_report(
    make_cluster: Callable[..., Cluster],
) -> None:
    cluster = make_cluster(3)

    outcome = cluster.run(Plan(2), *AUTO).right(opens=6 * len(cluster.sizes))

    report, read = outcome.report, cluster.origin.counts().read_bytes
    assert report["agent"]["tried_bytes"] > 0
    assert report["origin"]["agent_read_bytes"] == read
