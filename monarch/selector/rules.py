"""Chooses the codec with which a Tier holds most without slowing the job down.

The question and its two rules are those of FanStore (Zhang et al., IPDPS 2020): with
synchronous reading, a batch from compressed files must not take longer than one from
plain files; with asynchronous reading, not longer than the computation beside it. Here
a batch also includes the files that do not fit the Tier and are read from the origin,
because compression serves to hold more of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

RATIO_DOUBT: Final = 0.03
"""Uncertainty of a sampled ratio: files that only just fit may turn out not to."""


class Rule(Enum):
    """The limit on the time of a batch."""

    SYNC = "sync"
    """The same batch from plain files."""
    ASYNC = "async"
    """That, or the computation that runs at the same time, whichever takes longer."""


@dataclass(frozen=True, slots=True)
class Link:
    """A medium: files that it opens per second, and bytes that it delivers."""

    files_per_s: float
    bytes_per_s: float

    def read_s(self, files: float, file_bytes: float) -> float:
        """Return the time to read a number of files of one size."""
        return max(files / self.files_per_s, files * file_bytes / self.bytes_per_s)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A codec with its measurements.

    Attributes:
        ratio: plain bytes by stored bytes; below 1 for files that fill whole pages.
        decode_s: time to decompress one file of the mean size, on one thread.
        pack_bytes_per_s: plain bytes that one thread compresses per second.
    """

    name: str
    ratio: float
    decode_s: float
    pack_bytes_per_s: float = float("inf")


PLAIN: Final = Candidate("plain", 1.0, 0.0)


@dataclass(frozen=True, slots=True)
class Load:
    """The reads of a job, their sources, and the capacity of the Tier.

    Attributes:
        batch_files: files in a batch.
        file_bytes: their mean size.
        threads: threads that decompress at the same time.
        dataset_bytes: uncompressed bytes of all files that the node is to hold.
        budget_bytes: the capacity of the Tier.
        origin: serves files that the Tier does not hold; None: they are never read.
        remote: share of the held files that is read from other nodes, and their link.
        compute_s: computation time of the job for a batch.
        tolerance: share by which a batch may take longer.
        pack_bytes_per_s: minimum rate at which a thread must compress, to keep up with
            the origin.
        as_is: the files without a codec, the measure of all others.
        spared_bytes: space in the Tier that only packing needs, for decoded files.
    """

    batch_files: int
    file_bytes: float
    threads: int
    dataset_bytes: float
    budget_bytes: float
    tier: Link
    origin: Link | None = None
    remote: tuple[float, Link] | None = None
    compute_s: float = 0.0
    tolerance: float = 0.0
    pack_bytes_per_s: float = 0.0
    as_is: Candidate = PLAIN
    spared_bytes: float = 0.0

    def held(self, candidate: Candidate, doubt: float = 0.0) -> float:
        """Return the share of the dataset that fits.

        Args:
            doubt: the share by which its ratio may turn out lower, unless it is as_is.
        """
        if not self.dataset_bytes:
            return 1.0
        room = self.budget_bytes * (1 - doubt)
        if candidate is self.as_is:
            room = self.budget_bytes + self.spared_bytes
        return min(1.0, room * candidate.ratio / self.dataset_bytes)

    def tier_s(self, ratio: float) -> float:
        """Return the time to read a batch of held files, without decompression."""
        stored = self.file_bytes / max(1.0, ratio)  # pages are not read beyond the end
        if self.remote is None:
            return self.tier.read_s(self.batch_files, stored)
        share, link = self.remote
        near = self.tier.read_s(self.batch_files * (1 - share), stored)
        return near + link.read_s(self.batch_files * share, stored)

    def batch_s(self, candidate: Candidate) -> float:
        """Return the predicted time of I/O for a batch."""
        held = self.held(candidate) if self.origin else 1.0
        decode = self.batch_files * candidate.decode_s / self.threads
        time = held * (self.tier_s(candidate.ratio) + decode)
        if self.origin and held < 1:
            missing = self.batch_files * (1 - held)
            time += self.origin.read_s(missing, self.file_bytes)
        return time


@dataclass(frozen=True, slots=True)
class Judged:
    """Predictions for a candidate.

    Attributes:
        batch_s: the predicted time of I/O for a batch.
        held: the share of the dataset that would fit.
        missing: the share that would not, if the ratio turns out a bit lower.
        feasible: whether each rule allows it.
    """

    candidate: Candidate
    batch_s: float
    held: float
    missing: float
    feasible: dict[Rule, bool]


@dataclass(frozen=True, slots=True)
class Choice:
    """The chosen codec, the reason, and the predictions for each candidate."""

    chosen: Judged
    why: str
    judged: tuple[Judged, ...]


def choose(load: Load, candidates: Sequence[Candidate], rule: Rule) -> Choice:
    """Return the feasible candidate that lets the Tier hold most of the dataset.

    Ties are broken by the fastest batch, then the fastest decompression, then order.
    If others hold as much and are read as fast within the tolerance, the one of them
    that packs fastest is chosen: files that are packed sooner are held sooner. The
    files as they are compete first, and are always feasible.
    """
    judged = tuple(_judge(load, one) for one in (load.as_is, *candidates))
    allowed = [one for one in judged if one.feasible[rule]]
    best = max(allowed, key=_merit)
    alike = [one for one in allowed if _is_alike(one, best, load.tolerance)]
    fastest_s = min(one.batch_s for one in alike)
    alike = [one for one in alike if one.batch_s <= (1 + load.tolerance) * fastest_s]
    best = max(alike, key=lambda one: one.candidate.pack_bytes_per_s)
    return Choice(best, _why(best, judged, rule), judged)


def _judge(load: Load, candidate: Candidate) -> Judged:
    time, plain = load.batch_s(candidate), load.batch_s(load.as_is)
    is_raw = candidate is load.as_is
    most = {Rule.SYNC: plain, Rule.ASYNC: max(plain, load.compute_s)}
    keeps_up = candidate.pack_bytes_per_s >= load.pack_bytes_per_s
    feasible = {
        rule: is_raw or (keeps_up and time <= (1 + load.tolerance) * limit)
        for rule, limit in most.items()
    }
    held, missing = load.held(candidate), 1 - load.held(candidate, RATIO_DOUBT)
    return Judged(candidate, time, held, missing, feasible)


def _merit(one: Judged) -> tuple[float, float, float]:
    # Holding more than the whole dataset gains nothing. While it is not whole, the
    # higher ratio holds more.
    return -one.missing, -one.batch_s, -one.candidate.decode_s


def _is_alike(one: Judged, best: Judged, tolerance: float) -> bool:
    """Return whether a candidate is as good as the best, apart from packing.

    It must also be feasible by the synchronous rule, so that a choice does not change
    to a lower ratio when the job computes longer.
    """
    may = one is best or one.feasible[Rule.SYNC]
    as_fast = one.batch_s <= (1 + tolerance) * best.batch_s
    as_full = one.held >= (1 - tolerance) * best.held
    return may and as_fast and as_full and one.missing <= (1 + tolerance) * best.missing


def _why(best: Judged, judged: Sequence[Judged], rule: Rule) -> str:
    raw = judged[0]
    part = "all of it fits" if best.held >= 1 else "it holds most"
    if best is not raw:
        beside = "the computation" if rule is Rule.ASYNC else "plain files"
        faster = "and reads faster than plain files"
        slower = f"and takes no longer than {beside}"
        return f"{part}, {faster if best.batch_s < raw.batch_s else slower}"
    if best.held >= 1:
        return "all of it fits as it is"
    reason = "nothing shrinks"
    if any(one.missing < raw.missing and not one.feasible[rule] for one in judged):
        reason = "each codec would slow the job down, or pack too slowly"
    elif any(one.candidate.ratio > 1 for one in judged):
        reason = "no codec holds more"
    return f"{reason}; files are staged in part"
