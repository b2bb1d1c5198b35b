"""Decides at the start of a job how its packed Tiers are packed."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from monarch.agent.job_spec import TierCodec
from monarch.codec import AUTO, CANDIDATES, PIECE_BYTES, PLAIN, Codec
from monarch.native import Packing, codec_library

if TYPE_CHECKING:
    from monarch.agent.setup import Setup
    from monarch.catalog.inventory import Inventory
    from monarch.origins.trials import Pieces, Trial
    from monarch.tiers import Tier

SAMPLE_PARTS: Final = 100
"""A job reads one part of so many of its dataset twice: to try codecs, too."""
SAMPLE_BYTES_MAX: Final = 128 << 20
PIECES: Final = 128
PIECE_BYTES_MIN: Final = 16 << 10
BATCH_FILES: Final = 32
TOLERANCE: Final = 0.05
PACK_BYTES_PER_S: Final = 20e6
"""What a thread has to compress: a terabyte on 16 threads in an hour."""

log = logging.getLogger("monarch.agent")


@dataclass(frozen=True, slots=True)
class PackedTier:
    """A Tier that is packed.

    Attributes:
        ratio: at which its Files are expected to shrink.
        why: why this codec was chosen; "" where it was given.
    """

    packing: Packing
    ratio: float
    why: str = ""

    @property
    def spec(self) -> TierCodec:
        """Return what all nodes of the job must know of it."""
        return TierCodec(self.packing.tier, str(self.packing.codec), self.ratio)


def choose_packing(
    setup: Setup,
    inventory: Inventory,
    warn: Callable[[str], None],
    told: Sequence[TierCodec] = (),
) -> tuple[PackedTier, ...]:
    """Try codecs on pieces of the datasets for each Tier that is to be packed.

    It takes a second or some, and is for another thread than the event loop's.

    Args:
        warn: is told of libraries that this node has not.
        told: what the first node of the job has chosen for all.
    """
    given = {one.tier: one for one in told}
    wanted = {
        number: tier
        for number, tier in enumerate(setup.tiers)
        if tier.settings.codec != PLAIN
    }
    if not wanted:
        return ()
    agreed = [_agreed(given[number], warn) for number in wanted if number in given]
    if len(agreed) == len(wanted) and all(agreed):
        return tuple(one for one in agreed if one)
    from monarch.origins.trials import read_pieces
    from monarch.selector import draw

    budget = min(SAMPLE_BYTES_MAX, inventory.total_bytes // SAMPLE_PARTS)
    piece_bytes = min(max(budget // PIECES, PIECE_BYTES_MIN), PIECE_BYTES)
    count = max(1, budget // piece_bytes)
    sample = draw(inventory.sizes, piece_bytes, pieces=count, seed=len(inventory))
    pieces = read_pieces(inventory, sample)
    found = []
    for number, tier in wanted.items():
        if tier.settings.codec == AUTO:
            one = _choose(number, tier, inventory, pieces)
        else:
            one = _given(number, tier, pieces, warn)
        found.append(one)
        log.info(
            "packed tier=%s codec=%s ratio=%.2f why=%s",
            *(tier.name, one.packing.codec, one.ratio, one.why or "given"),
        )
    return tuple(found)


def _agreed(told: TierCodec, warn: Callable[[str], None]) -> PackedTier | None:
    """Return a Tier as the first node packs it, too.

    Returns:
        None: its files have to be read first, for their dictionary.
    """
    codec = Codec.parse(told.codec)
    if codec.dictionary:
        return None
    if codec_library(codec) is None:
        warn(_missing_library(codec))
        codec = Codec()
    return PackedTier(Packing(told.tier, codec), told.ratio)


def _missing_library(codec: Codec) -> str:
    return (
        "files are packed but not compressed: this node has not the library of "
        f"{codec.method}"
    )


def _given(
    number: int, tier: Tier, pieces: Pieces, warn: Callable[[str], None]
) -> PackedTier:
    """Return a Tier with the configured codec, as far as this node can have it."""
    from monarch.origins.trials import try_codecs

    codec = Codec.parse(tier.settings.codec)
    if codec_library(codec) is None:
        warn(f"tier {tier.name}: {_missing_library(codec)}")
        codec = Codec()
    trials, missing = try_codecs(pieces, [codec])
    if codec.dictionary and missing:
        warn(f"tier {tier.name}: no dictionary: {missing[codec]}")
        codec = Codec(codec.method, codec.level, codec.shuffle)
        trials, _ = try_codecs(pieces, [codec])
    return _packed(number, trials[0], pieces)


def _choose(
    number: int, tier: Tier, inventory: Inventory, pieces: Pieces
) -> PackedTier:
    """Return a Tier with the codec that lets it hold most."""
    from monarch.origins.trials import try_codecs
    from monarch.selector import Link, Load, Rule, choose
    from monarch.tiers.speed import measure_speed

    trials, _ = try_codecs(pieces, CANDIDATES)
    file_bytes = inventory.total_bytes / max(1, len(inventory))
    read_s = max(pieces.read_s, 1e-9)
    load = Load(
        batch_files=BATCH_FILES,
        file_bytes=file_bytes,
        threads=len(os.sched_getaffinity(0)),
        dataset_bytes=inventory.total_bytes,
        budget_bytes=tier.capacity_bytes,
        tier=Link(*measure_speed(tier.directory)),
        origin=Link(len(pieces) / read_s, max(1, pieces.total_bytes) / read_s),
        tolerance=TOLERANCE,
        pack_bytes_per_s=PACK_BYTES_PER_S,
    )
    candidates = [trial.candidate(file_bytes) for trial in trials]
    choice = choose(load, candidates, Rule.SYNC)
    chosen = choice.judged.index(choice.chosen)
    return _packed(number, trials[chosen], pieces, choice.why)


def _packed(number: int, trial: Trial, pieces: Pieces, why: str = "") -> PackedTier:
    from monarch.origins.trials import train

    codec, dictionary = trial.codec, b""
    if codec.dictionary:
        dictionary = train(pieces.bytes_of) or b""
    return PackedTier(Packing(number, codec, dictionary), trial.ratio, why)
