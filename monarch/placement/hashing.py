"""Rendezvous hashing: each node has a score for each unit, and the lowest one owns it.

A unit is placed as a whole; it is identified by its first row in the staging table. The
scores depend only on names, weights, the digest of the Catalog and this row, and are
computed by operations that IEEE 754 defines to the last bit: every machine gets the
same result. The loss of a node does not change the order of the others, so only its
own units move.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

Numbers: TypeAlias = npt.NDArray[np.intp]
Nodes: TypeAlias = npt.NDArray[np.uint16]
Keys: TypeAlias = npt.NDArray[np.uint64]
Mask: TypeAlias = npt.NDArray[np.bool_]

FLAT_NODES_MAX: Final = 128
"""Up to this number, each node has a score for each unit."""
GROUP_NODES: Final = 64
"""Above, groups of about this size have scores, then the nodes of one group."""
NODES_MAX: Final = 1 << 16
CHUNK: Final = 8192
"""Units whose scores are computed at once; they fit the cache of a core."""

_GOLDEN: Final = np.uint64(0x9E3779B97F4A7C15)
_FIRST: Final = np.uint64(0xBF58476D1CE4E5B9)
_SECOND: Final = np.uint64(0x94D049BB133111EB)
_S12, _S27, _S30, _S31 = (np.uint64(bits) for bits in (12, 27, 30, 31))
_LOG_TERMS: Final = 8
_LN_2: Final = 0.6931471805599453


class Scores:
    """The scores of nodes for units; twice the weight wins twice as often.

    A score is exponentially distributed with the weight as its rate. So the probability
    that a node has the lowest score is its share of the sum of weights.
    """

    def __init__(self, seeds: Sequence[int], weights: Sequence[int]) -> None:
        self._seeds = np.array(seeds, np.uint64)
        self._weights = np.array(weights, np.float64)
        # The logarithm does not change the order if all weights are equal.
        self._equal = len(set(weights)) == 1

    def of(self, keys: Keys, members: npt.NDArray[np.intp]) -> npt.NDArray[Any]:
        """Return the scores of some members: a row for each, a column for each key."""
        words = _mix(keys[None, :] ^ self._seeds[members][:, None])
        if self._equal:
            return words
        with np.errstate(divide="ignore"):
            return minus_log(words) / self._weights[members][:, None]

    def lowest(
        self, keys: Keys, members: npt.NDArray[np.intp]
    ) -> npt.NDArray[np.uint16]:
        """Return the member with the lowest score for each key."""
        won = np.full(len(keys), members[0], np.uint16)
        for start in range(0, len(keys), CHUNK):
            part = slice(start, start + CHUNK)
            lowest = self.of(keys[part], members[:1])[0]
            for number in range(1, len(members)):
                scores = self.of(keys[part], members[number : number + 1])[0]
                np.copyto(won[part], np.uint16(members[number]), where=scores < lowest)
                np.minimum(lowest, scores, out=lowest)
        return won


class Rendezvous:
    """Ranks the nodes of a cluster for each unit, by its first row.

    Attributes:
        groups: the node numbers of each group; one group up to FLAT_NODES_MAX.
    """

    def __init__(
        self, names: Sequence[str], weights: Sequence[int], digest: int
    ) -> None:
        if not 0 < len(names) <= NODES_MAX:
            raise ValueError(f"{len(names)} nodes; allowed are 1 to {NODES_MAX}")
        if len(set(names)) < len(names):
            raise ValueError("two nodes have one name")
        count = len(names)
        parts = -(-count // GROUP_NODES) if count > FLAT_NODES_MAX else 1
        self.groups: list[Numbers] = np.array_split(np.arange(count), parts)
        self._digest = digest
        # If no node has capacity, all have equal weights.
        shares = list(weights) if any(weights) else [1] * count
        self._nodes = Scores([_seed("node", name) for name in names], shares)
        self._groups = Scores(
            [_seed("group", str(number)) for number in range(parts)],
            [sum(shares[node] for node in group) for group in self.groups],
        )

    def __repr__(self) -> str:
        count = sum(len(group) for group in self.groups)
        return f"<Rendezvous of {count} nodes in {len(self.groups)} groups>"

    def best(self, rows: Numbers) -> Nodes:
        """Return the first node of each unit's order."""
        keys = row_keys(rows, self._digest)
        found = np.empty(len(keys), np.uint16)
        for group, where in self._split(keys):
            found[where] = self._nodes.lowest(keys[where], group)
        return found

    def first(self, rows: Numbers, count: int) -> Nodes:
        """Return the first nodes of each unit's order, as a line for each unit.

        At most as many as the smallest group has: all are in the unit's group.
        """
        count = min(count, *(len(group) for group in self.groups), NODES_MAX)
        keys = row_keys(rows, self._digest)
        found = np.empty((len(keys), count), np.uint16)
        for group, where in self._split(keys):
            for part in _parts(where, len(group)):
                scores = self._nodes.of(keys[part], group)
                order = np.argsort(scores, axis=0, kind="stable")[:count]
                found[part] = group[order].T
        return found

    def ranks(self, row: int) -> Iterator[int]:
        """Yield all nodes in the order of a unit."""
        keys = row_keys(np.array([row]), self._digest)
        for group in self._ranked_groups(keys):
            scores = self._nodes.of(keys, group)[:, 0]
            yield from group[np.argsort(scores, kind="stable")].tolist()

    def _ranked_groups(self, keys: npt.NDArray[np.uint64]) -> list[Numbers]:
        if len(self.groups) == 1:
            return self.groups
        scores = self._groups.of(keys, np.arange(len(self.groups)))[:, 0]
        return [self.groups[number] for number in np.argsort(scores, kind="stable")]

    def order(self, row: int) -> list[int]:
        """Return all nodes in the order of a unit."""
        return list(self.ranks(row))

    def among_first(self, rows: Numbers, count: int, number: int) -> Mask:
        """Return whether each node of a group is among a unit's first `count` ones.

        The result has a line for each node of the group, and a column for each unit.
        """
        group = self.groups[number]
        keys = row_keys(rows, self._digest)
        wanted = self._wanted(keys, count, number)
        if wanted.min(initial=len(group)) == len(group):
            return np.ones((len(group), len(keys)), np.bool_)
        scores = self._nodes.of(keys, group)
        last = np.maximum(wanted - 1, 0)[None, :]
        limit = np.take_along_axis(np.sort(scores, axis=0), last, axis=0)
        mask: Mask = (scores <= limit) & (wanted > 0)
        return mask

    def _wanted(self, keys: npt.NDArray[np.uint64], count: int, number: int) -> Numbers:
        """Return how many nodes of a group are among the first `count` of each unit."""
        sizes = np.array([len(group) for group in self.groups])
        before = np.zeros(len(keys), np.intp)
        if len(sizes) > 1:
            scores = self._groups.of(keys, np.arange(len(sizes)))
            before = (sizes[:, None] * (scores < scores[number])).sum(axis=0)
        return np.clip(count - before, 0, sizes[number])

    def _split(self, keys: npt.NDArray[np.uint64]) -> Iterator[tuple[Numbers, Numbers]]:
        """Yield each group with the positions of the units that rank it first."""
        if len(self.groups) == 1:
            yield self.groups[0], np.arange(len(keys))
            return
        winners = self._groups.lowest(keys, np.arange(len(self.groups)))
        places = np.argsort(winners, kind="stable")
        ends = np.searchsorted(winners[places], np.arange(1, len(self.groups)))
        yield from zip(self.groups, np.split(places, ends), strict=True)


def _parts(places: Numbers, rows: int) -> Iterator[Numbers]:
    """Divide positions so that a matrix of scores stays small."""
    step = max(1, 16 * CHUNK // rows)
    for start in range(0, len(places), step):
        yield places[start : start + step]


def _seed(kind: str, name: str) -> int:
    digest = hashlib.blake2b(f"{kind} {name}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little")


def row_keys(rows: Numbers, digest: int) -> Keys:
    """Return a well mixed number for each row of a Catalog."""
    words = rows.astype(np.uint64)
    words *= _GOLDEN
    words += np.uint64(digest)
    return _mix(words)


def minus_log(words: Keys) -> npt.NDArray[np.float64]:
    """Return -ln of words as fractions of 2**64, to nine digits and never 0.

    Libraries differ in the last bit of a logarithm, so two machines could compute
    different owners; sums, products and quotients are the same everywhere.
    """
    # 52 bits and a half are exact; one bit more would round up to 1.
    fraction = ((words >> _S12).astype(np.float64) + 0.5) * 2.0**-52
    mantissa, exponent = np.frexp(fraction)
    ratio = (1.0 - mantissa) / (1.0 + mantissa)
    square = ratio * ratio
    series = np.full_like(square, 2.0 / (2 * _LOG_TERMS + 1))
    for odd in range(2 * _LOG_TERMS - 1, 0, -2):
        series *= square
        series += 2.0 / odd
    series *= ratio
    series -= exponent * _LN_2
    return series


def _mix(words: Keys) -> Keys:
    """Mix all bits in place: the last step of splitmix64."""
    words ^= words >> _S30
    words *= _FIRST
    words ^= words >> _S27
    words *= _SECOND
    words ^= words >> _S31
    return words
