"""Chooses the codecs of packed Tiers at the start of a job."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Final

import numpy as np

from monarch.agent.codec_choice import (
    Files,
    Question,
    Space,
    are_small,
    candidates,
    decide,
    read_sample,
)
from monarch.agent.job_spec import TierCodec
from monarch.background import within
from monarch.codec import AUTO, PLAIN, Codec
from monarch.metrics import AgentCounters
from monarch.native import Packing, codec_library
from monarch.tiers.packed import Packs, configuration

if TYPE_CHECKING:
    import numpy.typing as npt

    from monarch.agent.setup import Setup
    from monarch.catalog.inventory import Inventory
    from monarch.origins.trials import Pieces, Trial
    from monarch.selector import Link
    from monarch.tiers import Tier

SPEED_MAX_S: Final = 2.0
"""A Tier that takes longer to be measured does not delay the job."""
MEMORY: Final = (100_000.0, 4e9)
"""Files and bytes per second that one reader gets from memory."""

log = logging.getLogger("monarch.agent")


@dataclass(frozen=True, slots=True)
class PackedTier:
    """A Tier that is packed.

    Attributes:
        packings: for the Files without a rule, and for those of each rule.
        ratio: the expected compression ratio of its Files.
        why: the reason for the choice of this codec; "" if it was given.
        patterns: of each rule, from the first on.
    """

    packings: tuple[Packing, ...]
    ratio: float
    why: str = ""
    patterns: tuple[tuple[str, ...], ...] = ()

    @property
    def tier(self) -> int:
        """Return the number of the Tier."""
        return self.packings[0].tier

    @property
    def codec(self) -> str:
        """Return its codecs as text for users."""
        main, *others = (str(packing.codec) for packing in self.packings)
        rules = zip(others, self.patterns, strict=True)
        return ", ".join(
            (main, *(f"{one} for {_shown(files)}" for one, files in rules))
        )

    @property
    def text(self) -> str:
        """Return what the start line says of it."""
        return f"packed with {self.codec} ({self.ratio:.2f} x)"

    @property
    def spec(self) -> TierCodec:
        """Return its codec and ratio for all nodes of the job."""
        return TierCodec(self.tier, str(self.packings[0].codec), self.ratio)


@dataclass(frozen=True, slots=True)
class PlainTier:
    """A Tier that is not packed: no codec of `auto` would hold more in it."""

    tier: int
    why: str = ""
    codec: str = PLAIN
    ratio: float = 1.0

    @property
    def text(self) -> str:
        """Return what the start line says of it."""
        return f"not packed ({self.why})" if self.why else "not packed"

    @property
    def spec(self) -> TierCodec:
        """Return this for all nodes of the job."""
        return TierCodec(self.tier, self.codec, self.ratio)


@dataclass(frozen=True, slots=True)
class Known:
    """The facts that are available before a codec is tried.

    Attributes:
        told: the choice of the first node for all.
        left: the packs of earlier jobs, by Tier: while the Tier's configuration is the
            same, no codec is tried again.
        for_others: this node chooses for all. No dictionary is chosen then: each node
            would read a sample of the origin to train it.
        rooms: the space of all nodes for one copy of each File, as a multiple of this
            node's Tiers.
        alone: the job has one node.
    """

    told: Sequence[TierCodec] = ()
    left: Mapping[int, Packs] = field(default_factory=dict)
    for_others: bool = False
    rooms: float = 1.0
    alone: bool = False


@dataclass(frozen=True, slots=True)
class Choice:
    """The packing of Tiers, and the reads of the origin for this choice.

    Attributes:
        busy_ns: the total duration of these reads.
    """

    tiers: tuple[PackedTier | PlainTier, ...] = ()
    read_bytes: int = 0
    reads: int = 0
    busy_ns: int = 0

    @property
    def packed(self) -> tuple[PackedTier, ...]:
        """The Tiers that are packed."""
        return tuple(one for one in self.tiers if isinstance(one, PackedTier))

    def count(self, counters: AgentCounters) -> None:
        """Add the reads to the agent's counters."""
        counters.tried_bytes += self.read_bytes
        counters.tried_reads += self.reads
        counters.origin_read_bytes += self.read_bytes
        counters.origin_busy_ns += self.busy_ns


def _shown(patterns: Sequence[str]) -> str:
    more = len(patterns) - 1
    return f"{patterns[0]} and {more} more" if more else patterns[0]


@dataclass(frozen=True, slots=True, eq=False)
class _Wanted:
    """A Tier that is to be packed.

    Attributes:
        rules: the rule of each File, 0 for none; None: no rules.
        codecs: the codecs of the rules.
        shares_words: a dictionary may be chosen.
        rooms: see Known.
        space: of this node.
    """

    number: int
    tier: Tier
    rules: npt.NDArray[np.uint8] | None
    space: Space
    shares_words: bool = True
    rooms: float = 1.0

    @property
    def codecs(self) -> tuple[Codec, ...]:
        return tuple(Codec.parse(codec) for _, codec in self.tier.settings.codecs)

    def rule_of_each(self, inventory: Inventory) -> npt.NDArray[np.uint8]:
        """Return the rule of each File, 0 for none."""
        if self.rules is None:
            return np.zeros(len(inventory), np.uint8)
        return self.rules

    def shares(self, inventory: Inventory) -> npt.NDArray[np.float64]:
        """Return each rule's share of the dataset's bytes, from rule 0 on."""
        found = np.zeros(1 + len(self.tier.settings.codecs))
        found[0] = 1.0
        if self.rules is not None and inventory.total_bytes:
            sums = np.bincount(self.rules, inventory.sizes, minlength=len(found))
            found = sums / inventory.total_bytes
        return found

    def packed(
        self, packings: Sequence[Packing], ratio: float, why: str = ""
    ) -> PackedTier:
        """Return the packed Tier with its rules."""
        first, *others = packings
        numbered = (replace(one, rule=rule) for rule, one in enumerate(others, start=1))
        patterns = tuple(files for files, _ in self.tier.settings.codecs)
        first = replace(first, rules=self.rules)
        return PackedTier((first, *numbered), ratio, why, patterns)


def choose_packing(
    setup: Setup,
    inventory: Inventory,
    warn: Callable[[str], None],
    beside: Known,
) -> Choice:
    """Try codecs on pieces of the datasets for each Tier that is to be packed.

    It takes one or a few seconds, and must not run in the event loop's thread.

    Args:
        warn: called with problems, such as a missing library.
    """
    given, left = {one.tier: one for one in beside.told}, beside.left
    shares_words = not beside.for_others and are_small(inventory)
    wanted = [
        _Wanted(
            *(number, tier, _rules(tier, inventory)),
            Space.of(setup.tiers, number, alone=beside.alone),
            *(shares_words, beside.rooms),
        )
        for number, tier in enumerate(setup.tiers)
        if tier.settings.codec != PLAIN
    ]
    if not wanted:
        return Choice()
    known = {
        one.number: _left(one, inventory, left.get(one.number), given.get(one.number))
        or _agreed(one, given.get(one.number), warn)
        for one in wanted
    }
    if all(known.values()):
        return Choice(tuple(one for one in known.values() if one))
    samples = _samples(wanted, known, inventory)
    found = tuple(
        known[one.number]
        or _tried(one, inventory, samples[one.number], warn, given.get(one.number))
        for one in wanted
    )
    for one in found:
        log.info(
            "packed tier=%s codec=%s ratio=%.2f why=%s",
            *(setup.tiers[one.tier].name, one.codec, one.ratio, one.why or "given"),
        )
    read = {id(one): one for parts in samples.values() for one in parts}.values()
    busy_ns = int(sum(one.busy_s for one in read) * 1e9)
    reads = sum(len(one) + one.failed for one in read)
    return Choice(found, sum(one.total_bytes for one in read), reads, busy_ns)


def _samples(
    wanted: Sequence[_Wanted],
    known: Mapping[int, PackedTier | PlainTier | None],
    inventory: Inventory,
) -> dict[int, tuple[Pieces, ...]]:
    """Read the samples for Tiers with an unknown packing.

    Returns:
        For each Tier by number, the samples of the Files without a rule and of those of
        each rule. Tiers with the same rules share them.
    """
    read: dict[object, tuple[Pieces, ...]] = {}
    found = {}
    for one in wanted:
        if known[one.number]:
            continue
        patterns = tuple(files for files, _ in one.tier.settings.codecs)
        if patterns not in read:
            rules = one.rule_of_each(inventory)
            numbers = range(1 + len(patterns))
            read[patterns] = tuple(
                read_sample(inventory, rules != number) for number in numbers
            )
        found[one.number] = read[patterns]
    return found


def _rules(tier: Tier, inventory: Inventory) -> npt.NDArray[np.uint8] | None:
    """Return for each File the number of its codec's rule, or 0."""
    patterns = [files for files, _ in tier.settings.codecs]
    return inventory.first_matches(patterns) if patterns else None


def plain_facts(tier: Tier, inventory: Inventory) -> tuple[int, ...]:
    """Return the facts for which a Tier is left plain; with others it may be packed."""
    granted = tier.granted_bytes + tier.pool_part_bytes
    return granted, len(inventory), inventory.total_bytes


def _left(
    wanted: _Wanted, inventory: Inventory, left: Packs | None, told: TierCodec | None
) -> PackedTier | PlainTier | None:
    """Return a Tier packed as an earlier job has left it.

    Returns:
        None: its configuration is different, the job packs it differently, this node
        no longer has the libraries, or the Tier was left plain for other Files.
    """
    if left is None:
        return None
    facts = () if left.packings else plain_facts(wanted.tier, inventory)
    if left.configured != configuration(wanted.tier.settings, facts):
        return None
    if told is not None and told.codec != left.codec:
        return None
    if not left.packings:
        return PlainTier(wanted.number, left.why)
    if any(codec_library(packing.codec) is None for packing in left.packings):
        return None
    packings = [replace(one, tier=wanted.number) for one in left.packings]
    return wanted.packed(packings, told.ratio if told else left.ratio, left.why)


def _agreed(
    wanted: _Wanted, told: TierCodec | None, warn: Callable[[str], None]
) -> PackedTier | PlainTier | None:
    """Return a Tier packed as on the first node.

    Returns:
        None: no first node has chosen, or a dictionary needs files to be read first.
    """
    if told is None:
        return None
    if told.codec == PLAIN:
        return PlainTier(wanted.number)
    codecs = (Codec.parse(told.codec), *wanted.codecs)
    if any(codec.dictionary for codec in codecs):
        return None
    packings = [
        Packing(told.tier, _usable(wanted.tier, codec, warn)) for codec in codecs
    ]
    return wanted.packed(packings, told.ratio)


def _usable(tier: Tier, codec: Codec, warn: Callable[[str], None]) -> Codec:
    """Return the codec, or none if its library is not installed on this node."""
    if codec_library(codec) is not None:
        return codec
    warn(
        f"tier {tier.name}: files are packed but not compressed: this node has not "
        f"the library of {codec.method}"
    )
    return Codec()


def _tried(
    wanted: _Wanted,
    inventory: Inventory,
    samples: tuple[Pieces, ...],
    warn: Callable[[str], None],
    told: TierCodec | None = None,
) -> PackedTier | PlainTier:
    """Return a Tier with the codecs of its rules, and of all other Files.

    Args:
        samples: of the Files without a rule, and of those of each rule.
        told: the choice of the first node.
    """
    number, tier = wanted.number, wanted.tier
    (rest, *ruled), why = samples, ""
    if tier.settings.codec == AUTO and told is None:
        speed = _speed_of(tier, warn)
        chosen, why = _choose(wanted, inventory, rest, speed)
        if chosen is None:
            return PlainTier(number, why)
        trial = chosen
    else:
        name = told.codec if told is not None else tier.settings.codec
        trial = _given(tier, Codec.parse(name), rest, warn)
    packings, ratios = [_packing(number, trial, rest)], [trial.ratio]
    for codec, part in zip(wanted.codecs, ruled, strict=True):
        trial = _given(tier, codec, part, warn)
        packings.append(_packing(number, trial, part))
        ratios.append(trial.ratio)
    stored = wanted.shares(inventory) @ (1 / np.array(ratios))
    return wanted.packed(packings, 1 / float(stored), why)


def _given(
    tier: Tier, codec: Codec, pieces: Pieces, warn: Callable[[str], None]
) -> Trial:
    """Try a configured codec, as far as this node supports it."""
    from monarch.origins.trials import try_codecs

    codec = _usable(tier, codec, warn)
    trials, missing = try_codecs(pieces, [codec])
    if codec.dictionary and missing:
        warn(f"tier {tier.name}: no dictionary: {missing[codec]}")
        codec = Codec(codec.method, codec.level, codec.shuffle)
        trials, _ = try_codecs(pieces, [codec])
    return trials[0]


def _speed_of(tier: Tier, warn: Callable[[str], None]) -> Link:
    """Return the speed of a Tier, or of memory if it cannot be measured now.

    The choice is then cautious: a fast Tier does not wait for a slow codec.
    """
    from monarch.selector import Link
    from monarch.tiers.speed import measure_speed

    try:
        measure = partial(measure_speed, tier.directory, tier.capacity_bytes)
        return Link(*within(SPEED_MAX_S, measure))
    except OSError as error:
        why = error.strerror or "it does not answer"
        warn(
            f"tier {tier.name}: its speed cannot be measured ({why}): the "
            "codec is chosen as for memory"
        )
        return Link(*MEMORY)


def _choose(
    wanted: _Wanted, inventory: Inventory, pieces: Pieces, speed: Link
) -> tuple[Trial | None, str]:
    """Return the trial of the codec that lets a Tier hold most, and the reason.

    The trial is None if the Tier is better not packed.

    Args:
        pieces: of the Files without a rule; they also show the speed of the origin.
        speed: the speed of the Tier.
    """
    from monarch.origins.trials import try_codecs

    files = Files.of(inventory, wanted.rule_of_each(inventory) > 0)
    question = Question()
    space = Space(*(wanted.rooms * size for size in wanted.space))
    load = question.load(files, space, speed, pieces)
    codecs = candidates(
        files, dictionaries=wanted.shares_words, needed=load.pack_bytes_per_s
    )
    trials, _ = try_codecs(pieces, codecs)
    choice = decide(load, trials, question.rule)
    chosen = choice.judged.index(choice.chosen)
    if chosen:
        return trials[chosen - 1], choice.why
    if files.as_is.name == PLAIN:
        return None, choice.why
    return _given(wanted.tier, Codec(), pieces, log.warning), choice.why


def _packing(number: int, trial: Trial, pieces: Pieces) -> Packing:
    from monarch.origins.trials import train

    codec, dictionary = trial.codec, b""
    if codec.dictionary:
        dictionary = train(pieces.bytes_of) or b""
    return Packing(number, codec, dictionary)
