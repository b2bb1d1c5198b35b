"""The progress of a loader: the state for checkpoints, and the order of delivery."""

from __future__ import annotations

import base64
import json
import os
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from monarch.errors import UsageError

STATE_VERSION: Final = 1
Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Progress:
    """A place in the sequence of epochs.

    Attributes:
        epoch: the current or next epoch.
        place: the place up to which its Records were delivered, over all ranks.
        start: the place at which its batches began, if it was resumed.
        late: Records delivered out of order after the first undelivered one, as
            distances from that one in the sequence of the rank.
    """

    epoch: int = 0
    place: int = 0
    start: int = 0
    late: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Identity:
    """The values that must be equal to continue an order.

    Attributes:
        fingerprint: fingerprint of the index.
        order: the arguments that determine the order, by name.
        ranks: the arguments that distribute batches to ranks, by name.
    """

    fingerprint: str
    order: Mapping[str, Any]
    ranks: Mapping[str, int]

    def state(self, progress: Progress) -> dict[str, Any]:
        """Return the state for a checkpoint."""
        return {
            "version": STATE_VERSION,
            "epoch": progress.epoch,
            "place": progress.place,
            "start": progress.start,
            "late": _packed(progress.late),
            "fingerprint": self.fingerprint,
            **self.order,
            **self.ranks,
        }

    def progress(self, state: Mapping[str, Any]) -> Progress:
        """Return the progress in the state of a checkpoint.

        Raises:
            UsageError: the state belongs to other records, or to another order.
        """
        if "early" in state:
            text = "the state is of an epoch that began early: use start='early'"
            raise UsageError(text)
        try:
            if state["version"] != STATE_VERSION:
                raise UsageError(f"a loader's state has version {state['version']}")
            if state["fingerprint"] != self.fingerprint:
                raise UsageError("the state is of other records, or they have changed")
            late = _unpacked(state["late"])
            must = dict(self.order) | (dict(self.ranks) if late else {})
            for name, value in must.items():
                if state[name] != value:
                    text = (
                        f"the state has {name}={state[name]!r}, this loader {value!r}"
                    )
                    raise UsageError(f"{text}: the order would differ")
            return Progress(state["epoch"], state["place"], state["start"], late)
        except (KeyError, TypeError, ValueError) as error:
            raise UsageError(f"not a state of a loader: {error!r}") from error


def _packed(late: Sequence[int]) -> str:
    if not late:
        return ""
    bits = np.zeros(max(late) + 1, bool)
    bits[list(late)] = True
    return base64.b85encode(zlib.compress(np.packbits(bits).tobytes(), 9)).decode()


def _unpacked(text: str) -> tuple[int, ...]:
    if not text:
        return ()
    packed = zlib.decompress(base64.b85decode(text))
    bits = np.unpackbits(np.frombuffer(packed, np.uint8))
    return tuple(np.flatnonzero(bits).tolist())


# -- out of order ----------------------------------------------------------------------


@dataclass(slots=True)
class Backlog:
    """The Records of a rank's epoch that were requested and not delivered yet.

    Records are numbered in the sequence of the rank. A late one does not delay its
    batch, which takes the first ready ones. No batch takes a Record of the next epoch.

    Args:
        ends: cumulative number of Records at the end of each batch.
        window: number of batches by which a Record may be late.
        batch: number of the next batch.
        late_before: Records delivered already, as `late` returns them.
        step: distance of the batches of this process, if others deliver those between;
            only without a window.
    """

    ends: Sequence[int]
    window: int
    batch: int = 0
    late_before: tuple[int, ...] = ()
    step: int = 1
    _open: list[int] = field(default_factory=list)
    _asked: int = 0
    _given: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        """Begin at the place where the epoch is resumed."""
        self._asked = self._end(self.batch) - len(self.late_before)
        self._given = {self._asked + one for one in self.late_before}

    def ask(self, ahead: int) -> int:
        """Request Records of the next batches; return the first undelivered one.

        Args:
            ahead: number of batches after this one whose Records may be taken.
        """
        end = self._end(self.batch + 1 + min(ahead, self.window))
        self._open += [n for n in range(self._asked, end) if n not in self._given]
        self._asked = max(self._asked, end)
        return self.low

    @property
    def frontier(self) -> int:
        """Return the end of the delivered batches; Records open before it are late."""
        return self._end(self.batch)

    @property
    def low(self) -> int:
        """Return the first undelivered Record."""
        return self._open[0] if self._open else self._asked

    @property
    def open(self) -> list[int]:
        """Return the Records that were requested and not delivered."""
        return self._open

    @property
    def size(self) -> int:
        """Return the number of Records of the next batch."""
        return self._end(self.batch + 1) - self._end(self.batch)

    def choose(self, is_ready: Array) -> list[int] | None:
        """Return the Records of the next batch; None: too few are ready.

        Args:
            is_ready: whether each Record of `open` is ready.
        """
        ready = np.flatnonzero(is_ready)[: self.size]
        if len(ready) < self.size:
            return None
        return [self._open[n] for n in ready]

    def give(self, chosen: Sequence[int]) -> int:
        """Mark a batch as delivered; return the number of its late Records."""
        first = self._end(self.batch)
        self.batch += self.step
        self._asked = max(self._asked, self._end(self.batch))
        gone = set(chosen)
        self._open = [n for n in self._open if n not in gone]
        return sum(n < first for n in chosen)

    def late(self) -> tuple[int, ...]:
        """Return the delivered Records behind the first open one, relative to it."""
        low = self.low
        waiting = set(self._open)
        upto = max(self._asked, max(self._given, default=-1) + 1)
        return tuple(
            n - low
            for n in range(low, upto)
            if n not in waiting and (n < self._asked or n in self._given)
        )

    def _end(self, batches: int) -> int:
        """Return the total number of Records of the first batches."""
        if not batches or not self.ends:
            return 0
        return int(self.ends[min(batches, len(self.ends)) - 1])


class OrderLog:
    """A log with the Records of each batch in the order of delivery, one line each."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._file = Path(path).open("a", encoding="utf-8")  # noqa: SIM115

    def add(self, epoch: int, batch: int, chosen: Sequence[int]) -> None:
        """Write the numbers of a batch's Records in the sequence of the rank."""
        self._file.write(json.dumps([epoch, batch, list(chosen)]) + "\n")
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def replayed(path: str | os.PathLike[str]) -> dict[tuple[int, int], list[int]]:
    """Return the Records of each batch of a log.

    Raises:
        UsageError: it cannot be read.
    """
    found = {}
    try:
        for line in Path(path).read_text(encoding="utf-8").splitlines():
            epoch, batch, chosen = json.loads(line)
            found[int(epoch), int(batch)] = [int(one) for one in chosen]
    except (OSError, ValueError, TypeError) as error:
        raise UsageError(f"replay: {path}: {error}") from error
    return found
