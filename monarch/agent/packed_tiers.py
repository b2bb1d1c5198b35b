"""Decides at the start of a job how its packed Tiers are packed."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from monarch.codec import AUTO, CANDIDATES, PIECE_BYTES, PLAIN, Codec
from monarch.native import Packing, codec_library
from monarch.units import format_size

if TYPE_CHECKING:
    from monarch.agent.setup import Setup
    from monarch.catalog.inventory import Inventory
    from monarch.origins.trials import Pieces, Trial
    from monarch.tiers import Tier

PIECES: Final = 24
"""How many are tried where the codec is given: what Files take has to be expected."""
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


def choose_packing(
    setup: Setup, inventory: Inventory, warn: Callable[[str], None]
) -> tuple[PackedTier, ...]:
    """Try codecs on pieces of the datasets for each Tier that is to be packed.

    It takes a second or some, and is for another thread than the event loop's.

    Args:
        warn: is told of libraries that this node has not, and of the choice.
    """
    wanted = {
        number: tier
        for number, tier in enumerate(setup.tiers)
        if tier.settings.codec != PLAIN
    }
    if not wanted:
        return ()
    from monarch.origins.trials import read_pieces
    from monarch.selector import draw

    chooses = any(tier.settings.codec == AUTO for tier in wanted.values())
    sample = draw(inventory.sizes, PIECE_BYTES, pieces=None if chooses else PIECES)
    pieces = read_pieces(inventory, sample)
    found = []
    for number, tier in wanted.items():
        if tier.settings.codec == AUTO:
            one = _choose(number, tier, inventory, pieces)
            warn(f"tier {tier.name}: codec {one.packing.codec}: {one.why}")
        else:
            one = _given(number, tier, pieces, warn)
        found.append(one)
        log.info(
            "packed tier=%s codec=%s ratio=%.2f why=%s",
            *(tier.name, one.packing.codec, one.ratio, one.why or "given"),
        )
    return tuple(found)


def _given(
    number: int, tier: Tier, pieces: Pieces, warn: Callable[[str], None]
) -> PackedTier:
    """Return a Tier with the configured codec, as far as this node can have it."""
    from monarch.origins.trials import try_codecs

    codec = Codec.parse(tier.settings.codec)
    if codec_library(codec) is None:
        warn(
            f"tier {tier.name}: files are packed but not compressed: this node has "
            f"not the library of {codec.method}"
        )
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
    from monarch.selector import Candidate, Link, Load, Rule, choose
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
    candidates = [
        Candidate(
            str(trial.codec),
            trial.ratio,
            trial.unpack_s_per_byte * file_bytes,
            trial.pack_bytes_per_s,
        )
        for trial in trials
    ]
    choice = choose(load, candidates, Rule.SYNC)
    chosen = choice.judged.index(choice.chosen)
    held = format_size(int(inventory.total_bytes * choice.chosen.held))
    why = f"ratio {choice.chosen.candidate.ratio:.2f}, for {held}: {choice.why}"
    return _packed(number, trials[chosen], pieces, why)


def _packed(number: int, trial: Trial, pieces: Pieces, why: str = "") -> PackedTier:
    from monarch.origins.trials import train

    codec, dictionary = trial.codec, b""
    if codec.dictionary:
        dictionary = train(pieces.bytes_of) or b""
    return PackedTier(Packing(number, codec, dictionary), trial.ratio, why)
