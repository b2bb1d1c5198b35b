"""Jobs whose nodes each have a medium of limited bandwidth for their Tier.

All files are in the Tiers before programs read them. Each node reads as many bytes,
whatever the number of nodes: all files of its own Tier, or its part of a dataset that
grows with the nodes and of which each of them holds a part.
"""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from support import countfs
from support.certified import fill_anew, hex_digits
from support.clusters import Cluster, Shape, Tools, clustered
from support.countfs import CountFs
from support.nodes import Outcome, Plan

PROGRAM = countfs.SOURCE.with_name("tierfs.c")
BURST_US = 100_000
"""So late may whoever reads be, because CPUs are busy, before a medium loses time."""
POOL_PARTS = 16
"""The Pool has room for one part of so many of what a node reads."""
POOLED_MAX = 0.1
"""How much of all may have stayed in Pools when Tiers were packed."""


@dataclass(frozen=True, slots=True)
class Share:
    """The files that each node reads, and the bandwidth of its medium."""

    files: int
    mean_bytes: int
    bytes_per_s: int
    workers: int = 8

    @property
    def options(self) -> tuple[str, ...]:
        """The options of a job in which little can be read again from memory."""
        pool = self.files * self.mean_bytes // POOL_PARTS
        return "--set", f"peers.transit={pool}B"


@dataclass(frozen=True, slots=True)
class Way:
    """How Tiers are stored, and whether nodes hold all files or a part of them."""

    codec: str
    mode: str

    @property
    def options(self) -> tuple[str, ...]:
        """The options of a job."""
        settings = (f"tiers[0].codec={self.codec}", f"peers.mode={self.mode}")
        return tuple(word for one in settings for word in ("--set", one))


@dataclass(frozen=True, slots=True)
class Reading:
    """One pass over staged files.

    Attributes:
        read_bytes: what the programs of all nodes have read.
        stored_bytes: what that takes of the media.
        given_bytes: what the medium of each node has given meanwhile.
        seconds: until the last program has ended.
    """

    read_bytes: int
    stored_bytes: int
    given_bytes: tuple[int, ...]
    seconds: float

    @property
    def pooled(self) -> float:
        """The share of the read bytes that no medium served."""
        return max(0.0, 1 - sum(self.given_bytes) / self.stored_bytes)

    @property
    def rate(self) -> float:
        """The bytes per second of all programs together, without what was pooled."""
        return (1 - self.pooled) * self.read_bytes / self.seconds

    def used(self, bytes_per_s: int) -> float:
        """The used share of the bandwidth of all media."""
        could = len(self.given_bytes) * bytes_per_s * self.seconds
        return sum(self.given_bytes) / could


def read_staged(
    tools: Tools, folder: Path, nodes: int, way: Way, share: Share
) -> Reading:
    """Let nodes whose Tiers hold all files read them; check the sources of bytes."""
    parted = way.mode == "partition"
    files = share.files * (nodes if parted else 1)
    shape = Shape(nodes, files, share.mean_bytes)
    with clustered(tools, folder, shape) as cluster, _media(cluster, share) as media:
        fill_anew(cluster.origin.source, hex_digits)
        tier = f"ssd:{2 * cluster.size_bytes}B:{folder}/media/${{MONARCH_STAGING_NODE}}"
        plan = Plan(workers=share.workers, sharding="dealt" if parted else "everything")
        job = cluster.start(
            plan, "--tier", tier, *share.options, *way.options, hold=[0]
        )
        job.await_epoch(0)
        cluster.await_held(files if parted else nodes * files)
        cluster.origin.reset()
        before = [medium.read_bytes() for medium in media]
        job.release(0)
        outcome = job.finish().right(opens=nodes * share.files)
        read_bytes = cluster.size_bytes * (1 if parted else nodes)
        packed = outcome.report.get("packed")
        reading = Reading(
            read_bytes,
            packed["stored_bytes"] if packed else read_bytes,
            tuple(m.read_bytes() - b for m, b in zip(media, before, strict=True)),
            outcome.epoch_s(0),
        )
        _check(cluster, outcome, reading, share)
    return reading


@contextmanager
def _media(cluster: Cluster, share: Share) -> Iterator[list[CountFs]]:
    """Mounts a medium for each node, by its name; none is kept in the page cache."""
    program = countfs.build(PROGRAM)
    with ExitStack() as undo:
        mounts = []
        for node in cluster.nodes:
            place = cluster.folder / "media" / node.name
            place.mkdir(parents=True)
            source = Path(tempfile.mkdtemp(prefix="monarch-test-", dir="/dev/shm"))
            undo.callback(shutil.rmtree, source, ignore_errors=True)
            slow = {"bw": share.bytes_per_s, "burst_us": BURST_US}
            mount = countfs.mounted(program, source, place, **slow)
            mounts.append(undo.enter_context(mount))
        yield mounts


def _check(cluster: Cluster, outcome: Outcome, reading: Reading, share: Share) -> None:
    """Check that the media served all reads, none of them faster than permitted."""
    counts = cluster.origin.counts()
    assert counts.opens == counts.reads == 0, counts
    assert not any(one.at_origin for one in outcome.opens)
    assert reading.pooled <= POOLED_MAX, reading
    most = share.bytes_per_s * (reading.seconds + BURST_US / 1e6)
    assert max(reading.given_bytes) <= most, "a medium was too fast"
