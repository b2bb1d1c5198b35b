"""The duration of the epochs of a job: a model of flows, without clock and randomness.

All nodes are alike and read in random orders, so that an epoch is a flow. At each
moment a known share of the opens finds its File staged here, on a peer, nowhere yet, or
not fitting any Tier. The slowest part of their way limits the rate of opens. Fill uses
the bandwidth of the Origin that programs leave.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

STEPS: Final = 200
"""The number of steps in which the first epoch is computed."""
REQUEST_BYTES: Final = 4 << 20
"""The largest request to the Origin."""
FILL_MOST: Final = 64
"""Copies that fill runs at once on a node if it finds the number itself."""
COMPUTE: Final = "compute"
ORIGIN: Final = "origin"
WAITING: Final = "origin latency"
NETWORK: Final = "network"
PEERS: Final = "peers"


@dataclass(frozen=True, slots=True)
class TierRate:
    """The part of the dataset in one Tier of a node, and the speed of its reads.

    Args:
        share: the share of the bytes of the whole dataset, on an average node.
    """

    name: str
    share: float
    bytes_per_s: float


@dataclass(frozen=True, slots=True)
class Site:
    """The speeds of the Origin, the network and the Tiers.

    Args:
        origin_bytes_per_s: for all nodes together.
        origin_latency_s: of an open, and of a read before its first bytes arrive.
        network_bytes_per_s: of each node, in each direction.
        fill_copies: the background copies that a node runs at once; 0: none.
    """

    origin_bytes_per_s: float
    origin_latency_s: float
    network_bytes_per_s: float
    tiers: tuple[TierRate, ...]
    fill_copies: int = FILL_MOST

    @property
    def local_share(self) -> float:
        """The share of the dataset that an average node holds."""
        return min(1.0, sum(tier.share for tier in self.tiers))


@dataclass(frozen=True, slots=True)
class Reading:
    """The reads of a job.

    Args:
        held: the share of the dataset with a copy on some node.
        passes: the number of nodes that read each File in an epoch: one, or all.
        readers: processes that read at once on each node.
        compute_s: the time for each File, of a node or of each reader.
        in_readers: whether a reader computes before it continues to read; if not, a
            node processes one File after the other, while its readers read ahead.
    """

    files: int
    file_bytes: float
    held: float
    nodes: int
    passes: int
    readers: int
    compute_s: float = 0.0
    in_readers: bool = False


@dataclass(frozen=True, slots=True)
class Epoch:
    """One epoch of a job.

    Args:
        limited_by: the part that it waited for most of the time.
        read: bytes that programs read, by source: the Origin, peers, or one of the
            Tiers.
        origin_bytes: the bytes read from the Origin, by programs and by fill.
    """

    seconds: float
    limited_by: str
    read: Mapping[str, int]
    origin_bytes: int


@dataclass(frozen=True, slots=True)
class _Opens:
    """The shares of opens by the state of their File, whose sum is one.

    Args:
        ready: staged, on this node or on another one.
        demanded: not staged yet, but it fits.
        left: it does not fit.
        local: the part of `ready` and `demanded` that this node itself keeps.
    """

    ready: float
    demanded: float
    left: float
    local: float

    @property
    def at_origin(self) -> float:
        return self.demanded + self.left

    @property
    def remote(self) -> float:
        return (self.ready + self.demanded) * (1 - self.local)


def simulate(site: Site, reading: Reading) -> Iterator[Epoch]:
    """Yield the first epoch, then one that represents all later ones."""
    if not reading.files:
        nothing = Epoch(0.0, COMPUTE, {}, 0)
        yield nothing
        yield nothing
        return
    yield _first(site, reading)
    held = reading.held
    opens = _Opens(held, 0.0, 1 - held, _local(site, reading))
    yield _sum_up(site, reading, [_Moment(opens, *_rate(site, reading, opens), 1.0)], 0)


def without_monarch(site: Site, reading: Reading) -> Epoch:
    """Return an epoch in which all Files are read from the Origin."""
    alone = replace(reading, held=0.0)
    return next(simulate(replace(site, tiers=()), alone))


@dataclass(frozen=True, slots=True)
class _Moment:
    """A part of an epoch.

    Args:
        rate: opens per second, of all nodes.
        share: the share of the epoch's opens.
    """

    opens: _Opens
    rate: float
    limited_by: str
    share: float


def _local(site: Site, reading: Reading) -> float:
    return min(1.0, site.local_share / reading.held) if reading.held else 1.0


def _first(site: Site, reading: Reading) -> Epoch:
    """Compute the first epoch, in which demand and fill stage Files."""
    held, local = reading.held, _local(site, reading)
    staged, filled = 0.0, 0.0  # shares of the Files
    moments = []
    for step in range(STEPS):
        done = step / STEPS
        # The staged share of the Files that a pass has not read yet.
        ready = min(held, max(0.0, (staged - done * held) / (1 - done)))
        opens = _Opens(ready, held - ready, 1 - held, local)
        rate, limit = _rate(site, reading, opens)
        seconds = reading.files * reading.passes / STEPS / rate if rate else math.inf
        moments.append(_Moment(opens, rate, limit, 1 / STEPS))
        demanded = opens.demanded * reading.passes / STEPS
        more = min(
            seconds * _fill_rate(site, reading, rate * opens.at_origin) / reading.files,
            max(0.0, held - staged - demanded),
        )
        staged, filled = min(held, staged + demanded + more), filled + more
    return _sum_up(site, reading, moments, filled)


def _fill_rate(site: Site, reading: Reading, demanded: float) -> float:
    """Return the Files per second that fill copies on all nodes.

    Args:
        demanded: the Files per second that programs wait for.
    """
    if not site.fill_copies:
        return 0.0
    left = site.origin_bytes_per_s / reading.file_bytes - demanded
    each_s = _origin_s(site, reading)
    return max(0.0, min(left, reading.nodes * site.fill_copies / each_s))


def _origin_s(site: Site, reading: Reading) -> float:
    """Return the seconds to read one File from an idle Origin."""
    requests = 1 + math.ceil(reading.file_bytes / REQUEST_BYTES)
    latency_s = requests * site.origin_latency_s
    return latency_s + reading.file_bytes / site.origin_bytes_per_s


def _open_s(site: Site, reading: Reading, opens: _Opens) -> dict[str, float]:
    """Return the mean seconds that a reader spends on a File, by the cause."""
    size = reading.file_bytes
    spent = {WAITING: opens.at_origin * _origin_s(site, reading)}
    spent[NETWORK] = opens.remote * size / site.network_bytes_per_s
    for tier, share in _at_tiers(site, opens):
        spent[tier.name] = share * size / tier.bytes_per_s
    spent[COMPUTE] = reading.compute_s if reading.in_readers else 0.0
    return spent


def _at_tiers(site: Site, opens: _Opens) -> Iterator[tuple[TierRate, float]]:
    """Yield each Tier with the share of opens that it serves, for any node."""
    total = site.local_share
    for tier in site.tiers:
        if total:
            yield tier, (opens.ready + opens.demanded) * tier.share / total


def _rate(site: Site, reading: Reading, opens: _Opens) -> tuple[float, str]:
    """Return the opens per second on all nodes, and the part that limits them."""
    size, nodes = reading.file_bytes, reading.nodes
    spent = _open_s(site, reading, opens)
    # For each part of the way: its bytes of one open, and its bytes per second.
    loads = [(ORIGIN, opens.at_origin * size, site.origin_bytes_per_s)]
    loads.append((NETWORK, opens.remote * size, nodes * site.network_bytes_per_s))
    for tier, share in _at_tiers(site, opens):
        loads.append((tier.name, share * size, nodes * tier.bytes_per_s))
    limits = [(rate / load, name) for name, load, rate in loads if load]
    if total := sum(spent.values()):
        slowest = max(spent, key=lambda name: spent[name])
        limits.append((nodes * reading.readers / total, slowest))
    if reading.compute_s and not reading.in_readers:
        limits.append((nodes / reading.compute_s, COMPUTE))
    return min(limits)


def _sum_up(
    site: Site, reading: Reading, moments: list[_Moment], filled: float
) -> Epoch:
    """Return an epoch as the sum of its parts.

    Args:
        filled: the share of the dataset that fill has read from the Origin.
    """
    opened = reading.files * reading.passes
    total = opened * reading.file_bytes
    waited: dict[str, float] = {}
    read = {ORIGIN: 0.0, PEERS: 0.0, **{tier.name: 0.0 for tier in site.tiers}}
    for moment in moments:
        opens = moment.opens
        seconds = moment.share * opened / moment.rate
        waited[moment.limited_by] = waited.get(moment.limited_by, 0.0) + seconds
        read[ORIGIN] += total * moment.share * opens.at_origin
        read[PEERS] += total * moment.share * opens.ready * (1 - opens.local)
        ready = opens.ready * opens.local
        for tier in site.tiers:
            part = tier.share / site.local_share if site.local_share else 0.0
            read[tier.name] += total * moment.share * ready * part
    from_origin = read[ORIGIN] + filled * reading.files * reading.file_bytes
    return Epoch(
        sum(waited.values()),
        max(waited, key=lambda name: waited[name]),
        {name: round(size) for name, size in read.items()},
        round(from_origin),
    )
