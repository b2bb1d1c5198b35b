"""Nodes read what is staged as fast as their media give it together."""

from pathlib import Path

import pytest

from monarch.codec import Codec
from monarch.native import codec_library
from support.clusters import Tools
from support.media import Share, Way, read_staged

SHARE = Share(files=600, mean_bytes=8_000, bytes_per_s=1_600_000)
EFFICIENCY = 0.9

zstd = pytest.mark.skipif(
    codec_library(Codec.parse("zstd:1")) is None, reason="no libzstd"
)


@pytest.mark.slow
@pytest.mark.parametrize("codec", ["plain", pytest.param("zstd:1", marks=zstd)])
def test_two_nodes_read_twice_as_fast_as_one(
    monarch_command: Path, countfs_program: Path, tmp_path: Path, codec: str
) -> None:
    tools = Tools(monarch_command, countfs_program)

    def rate(nodes: int, mode: str) -> float:
        folder = tmp_path / f"{nodes}-{mode}"
        folder.mkdir()
        return read_staged(tools, folder, nodes, Way(codec, mode), SHARE).rate

    one = rate(1, "replicate")

    assert rate(2, "replicate") >= EFFICIENCY * 2 * one
    assert rate(2, "partition") >= EFFICIENCY * 2 * one
