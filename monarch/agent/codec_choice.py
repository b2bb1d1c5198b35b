"""The choice of a Tier's codec, the same for a job and for `monarch codecs`."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple, Self

from monarch.codec import (
    BATCH_FILES,
    CANDIDATES,
    DICTIONARY_FILES_MAX_BYTES,
    PIECE_BYTES,
    PLAIN,
    TOLERANCE,
    USUAL_RATES,
    Codec,
)

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from monarch.catalog.inventory import Inventory
    from monarch.origins.trials import Pieces, Trial
    from monarch.selector import Candidate, Choice, Link, Load, Rule
    from monarch.tiers import Tier

IDLE_SHARE: Final = 0.5
"""The share of processors that packing is assumed to find idle in the first epoch."""
CONSUMED_BYTES_PER_S: Final = 100e6
"""The data rate that programs process on each processor, at most."""
SLOW_BYTES_PER_S: Final = 10e6
"""The data rate of a slow origin for each processor, at most."""
TELLING_S: Final = 0.25
"""A sample that was read in less time does not show that an origin is slow."""
PAGES_WASTED: Final = 0.1
"""Packing without compression gains nothing if whole pages waste less than this share:
the last pages of segments and the Pool take as much."""


@dataclass(frozen=True, slots=True)
class Files:
    """The Files of a dataset for which no rule names a codec.

    Attributes:
        file_bytes: the mean size of all Files of the dataset.
        total_bytes: the size of these Files.
        share: their share of all bytes, and so of the Tier.
        page_ratio: their size by the size of the pages that they fill as they are.
    """

    file_bytes: float
    total_bytes: int
    share: float
    page_ratio: float

    @property
    def waste_pages(self) -> bool:
        """Whether they take clearly less room if they are packed uncompressed."""
        return self.page_ratio < 1 - PAGES_WASTED

    @property
    def as_is(self) -> Candidate:
        """The Files without a codec. Beside rules they are packed, but uncompressed."""
        from monarch.selector import Candidate

        if self.share < 1:
            return Candidate(str(Codec()), 1.0, 0.0)
        return Candidate(PLAIN, self.page_ratio, 0.0)

    @classmethod
    def of(cls, inventory: Inventory, ruled: npt.NDArray[np.bool_]) -> Files:
        """Return the Files that have no rule."""
        from monarch.stager import footprints

        every, sizes = inventory.total_bytes, inventory.sizes[~ruled]
        total = int(sizes.sum())
        mean = every / max(1, len(inventory))
        pages = max(1, int(footprints(sizes).sum()))
        share = total / every if every else 1.0
        return cls(mean, total, share, total / pages if total else 1.0)


class Space(NamedTuple):
    """The space of a Tier.

    Attributes:
        pool_bytes: its part of the Pool, if it gets that back when it is not packed.
    """

    capacity_bytes: float
    pool_bytes: float = 0.0

    @classmethod
    def of(cls, tiers: Sequence[Tier], number: int, *, alone: bool) -> Self:
        """Return the space of one of a node's Tiers.

        Args:
            alone: the job has one node: on several ones there is always a Pool.
        """
        one = tiers[number]
        spares = alone and len(tiers) == 1
        return cls(one.capacity_bytes, one.pool_part_bytes if spares else 0)


@dataclass(frozen=True, slots=True)
class Question:
    """The known properties of the job's reads.

    Attributes:
        processors: how many decompress at the same time.
        compute_s: how long the job computes with a batch while it reads the next one.
        codecs: further ones to try beside the usual ones.
    """

    batch_files: int = BATCH_FILES
    processors: int = field(default_factory=lambda: len(os.sched_getaffinity(0)))
    compute_s: float = 0.0
    codecs: tuple[Codec, ...] = ()

    @property
    def rule(self) -> Rule:
        """Return the rule for the choice of the codec."""
        from monarch.selector import Rule

        return Rule.ASYNC if self.compute_s else Rule.SYNC

    def load(self, files: Files, space: Space, tier: Link, pieces: Pieces) -> Load:
        """Return the job's reads from a Tier, and the origin that serves the rest."""
        from monarch.selector import Link, Load

        read_s = max(pieces.read_s, 1e-9)
        origin = Link(max(1, len(pieces)) / read_s, max(1, pieces.total_bytes) / read_s)
        rate = origin.bytes_per_s if read_s >= TELLING_S else float("inf")
        return Load(
            batch_files=self.batch_files,
            file_bytes=files.file_bytes,
            threads=self.processors,
            dataset_bytes=files.total_bytes,
            budget_bytes=files.share * space.capacity_bytes,
            tier=tier,
            origin=origin,
            compute_s=self.compute_s,
            tolerance=TOLERANCE,
            pack_bytes_per_s=needed_rate(rate, self.processors),
            as_is=files.as_is,
            spared_bytes=space.pool_bytes if files.as_is.name == PLAIN else 0.0,
        )


def needed_rate(origin_bytes_per_s: float, processors: int) -> float:
    """Return the bytes per second that a thread must compress in the first epoch.

    A codec that cannot keep up with the origin leaves files unpacked, which later
    epochs read from the origin again. The idle processor time is unknown when the codec
    is chosen: the programs have not started. They are assumed to use all processors
    when they have data, and to wait for the origin half of the time. A wrong assumption
    costs the programs nothing, because packing has the lowest priority: fewer files are
    packed in the first epoch, or a codec that compresses less is used.

    Origins are divided into two classes with very different rates, so that the same
    codec is chosen although the measured rate of an origin varies. A fast origin is not
    read faster than programs can process its data.
    """
    slow = origin_bytes_per_s <= SLOW_BYTES_PER_S * processors
    return (SLOW_BYTES_PER_S if slow else CONSUMED_BYTES_PER_S) / IDLE_SHARE


def read_sample(inventory: Inventory, left_out: npt.NDArray[np.bool_]) -> Pieces:
    """Read a sample of the Files, except those left out.

    The same Files have the same sample each time, unless the origin is too slow to read
    all of it in time.
    """
    from monarch.origins.trials import read_pieces
    from monarch.selector import draw

    sizes = inventory.sizes.copy()
    sizes[left_out] = 0
    return read_pieces(inventory, draw(sizes, PIECE_BYTES, seed=len(inventory)))


def are_small(inventory: Inventory) -> bool:
    """Return whether Files are small enough to share a dictionary."""
    return inventory.total_bytes <= DICTIONARY_FILES_MAX_BYTES * len(inventory)


def candidates(
    files: Files, extra: Iterable[Codec] = (), *, dictionaries: bool, needed: float = 0
) -> tuple[Codec, ...]:
    """Return the codecs to try, besides the Files as they are.

    Args:
        needed: bytes that a thread must compress per second; slower ones are omitted.
    """
    wanted = [
        one
        for one in CANDIDATES
        if USUAL_RATES[one][0] >= needed
        and (dictionaries or not one.dictionary)
        and (one != Codec() or files.waste_pages)
    ]
    every = dict.fromkeys((*wanted, *extra))
    return tuple(one for one in every if str(one) != files.as_is.name)


def decide(load: Load, trials: Iterable[Trial], rule: Rule) -> Choice:
    """Return the codec for a Tier: the Files as they are first, then one of each trial.

    It depends first on the ratios, and then on rates that are the same in each trial:
    see Trial.steady().
    """
    from monarch.selector import choose

    return choose(load, [one.steady(load.file_bytes) for one in trials], rule)
