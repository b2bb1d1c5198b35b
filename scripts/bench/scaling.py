"""How the rate of reading grows with the nodes of a job, each with its own medium.

The Tier of each node is on a file system of the tests that keeps nothing in the page
cache and gives 8 MB in a second: so little that two CPUs can do with the programs of
four nodes. Before programs read, all files are in the Tiers, plain or packed. Each node
then reads as many bytes as the only node of the smallest job: all files of its own
Tier, or its part of a larger dataset of which each node holds a part, so that it reads
most of it from the media of others. The rate is that of all nodes, until the last one
has ended.

A run counts only if all bytes were right, none came from the origin, and the media have
given all that was read: packed, all that is stored.
"""

from __future__ import annotations

import shutil
import statistics
import sys
import tempfile
from pathlib import Path

from table import Row, print_rows

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

from support import countfs
from support.clusters import Tools
from support.media import Reading, Share, Way, read_staged

NODES = (2, 4)
TURNS = 3
SHARE = Share(files=1_000, mean_bytes=64_000, bytes_per_s=8_000_000)
CODECS = ("plain", "zstd:1")
MODES = {"replicate": "from its own tier", "partition": "shared over all tiers"}
EFFICIENCY = 0.9


class Bench:
    """Jobs in a directory of their own, which measure the same ways in turn."""

    def __init__(self, monarch: str, work: Path) -> None:
        self._tools = Tools(Path(monarch), countfs.build())
        self._work = work

    def read(self, nodes: int, codec: str, mode: str) -> Reading:
        """Return what one job has read of what is staged."""
        folder = self._work / "job"
        folder.mkdir()
        try:
            return read_staged(self._tools, folder, nodes, Way(codec, mode), SHARE)
        finally:
            shutil.rmtree(folder)

    def turn(self, codec: str) -> dict[tuple[int, str], Reading]:
        """Return one job of each size and mode, and one of one node under (1, "")."""
        found = {(1, ""): self.read(1, codec, "replicate")}
        for mode in MODES:
            for nodes in NODES:
                found[nodes, mode] = self.read(nodes, codec, mode)
        return found


def rows_of(codec: str, turns: list[dict[tuple[int, str], Reading]]) -> list[Row]:
    """Return what several nodes read, beside one."""
    ones = [turn[1, ""] for turn in turns]
    one_rate = statistics.median(one.rate for one in ones)
    limit = f"of {SHARE.bytes_per_s / 1e6:.0f} MB/s"
    used = statistics.median(one.used(SHARE.bytes_per_s) for one in ones)
    rows = [
        Row(
            f"medium of the only node, {codec}",
            f"{used * SHARE.bytes_per_s / 1e6:.2f} MB/s given",
            limit,
            used,
            EFFICIENCY,
            at_least=True,
        )
    ]
    for nodes, mode in [key for key in turns[0] if key != (1, "")]:
        side = [turn[nodes, mode] for turn in turns]
        used = statistics.median(one.used(SHARE.bytes_per_s) for one in side)
        rate = statistics.median(one.rate for one in side)
        rows.append(
            Row(
                f"{nodes} nodes, {codec}, {MODES[mode]}",
                f"{rate / 1e6:.2f} MB/s, media used to {100 * used:.0f}%",
                f"{one_rate / 1e6:.2f} MB/s of one node",
                statistics.median(
                    several.rate / one.rate
                    for several, one in zip(side, ones, strict=True)
                ),
                EFFICIENCY * nodes,
                at_least=True,
            )
        )
    return rows


def measure(monarch: str, work: Path) -> list[Row]:
    """Measure how several nodes scale, with plain Tiers and with packed ones."""
    bench = Bench(monarch, work)
    rows: list[Row] = []
    for codec in CODECS:
        rows += rows_of(codec, [bench.turn(codec) for _ in range(TURNS)])
    return rows


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        print_rows(measure(sys.argv[1], Path(folder)))
