"""Nodes read staged files with the combined bandwidth of their media."""

import tempfile
from pathlib import Path

import pytest

from monarch.codec import Codec
from monarch.native import codec_library
from support.clusters import Tools
from support.media import Share, Way, read_staged

SHARE = Share(files=500, mean_bytes=12_000, bytes_per_s=1_600_000, workers=16)
EFFICIENCY = 0.9
TRIES = 3
"""A job that waits for a CPU is slower, never faster: one of so many must do."""

zstd = pytest.mark.skipif(
    codec_library(Codec.parse("zstd:1")) is None, reason="no libzstd"
)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("mode", ["replicate", "partition"])
@pytest.mark.parametrize("codec", ["plain", pytest.param("zstd:1", marks=zstd)])
def test_two_nodes_read_twice_as_fast_as_one(
    monarch_command: Path,
    countfs_program: Path,
    tmp_path: Path,
    codec: str,
    mode: str,
) -> None:
    tools = Tools(monarch_command, countfs_program)

    def rate(nodes: int) -> float:
        folder = Path(tempfile.mkdtemp(dir=tmp_path))
        return read_staged(tools, folder, nodes, Way(codec, mode), SHARE).rate

    enough = EFFICIENCY * 2 * rate(1)

    rates: list[float] = []
    while not rates or (max(rates) < enough and len(rates) < TRIES):
        rates.append(rate(2))
    assert max(rates) >= enough
