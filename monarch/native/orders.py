"""Orders of Transfers and their ends, as Python and the data plane exchange them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from monarch.native.layout import CONSTANTS, DTYPES, OrderKind, Step

BATCH_MAX = 1024
NO_PEER = CONSTANTS["NO_PEER"]


class Order(NamedTuple):
    """One Transfer.

    Attributes:
        kind: bits of `OrderKind`.
        peer: the peer that sends the File; NO_PEER: the Origin, or the Tier itself.
        word: the state word with which it began, for its generation.
    """

    file: int
    tier: int
    kind: int
    peer: int = NO_PEER
    word: int = 0

    @property
    def is_adoption(self) -> bool:
        """Whether a Replica of an earlier job is verified."""
        return bool(self.kind & OrderKind.ADOPT)

    @property
    def is_asked(self) -> bool:
        """Whether a program or a peer requested it, and not background fill."""
        return bool(self.kind & OrderKind.ASKED)


class Completion(NamedTuple):
    """The end of an order: status 0: READY is published; otherwise -errno at `step`.

    Attributes:
        expired: Python was silent for too long, and the File is absent already.
        pages: the number of requested Pages of a large File; 0: the whole File.
        bytes: read from the Origin or received, also by a failed Transfer.
        alone: it reports on the Tier, or on Pages that others now transfer; the
            Transfer of the File continues.
    """

    file: int
    tier: int
    kind: int
    step: Step
    peer: int
    word: int
    status: int
    expired: bool
    bytes: int
    ns: int
    pages: int = 0
    alone: bool = False

    @property
    def order(self) -> Order:
        """The order that has ended."""
        return Order(self.file, self.tier, self.kind, self.peer, self.word)


def pack(orders: Iterable[Order]) -> npt.NDArray[Any]:
    """Return orders as records of the data plane."""
    rows = [(o.file, o.tier, int(o.kind), 0, o.peer, o.word, 0, 0) for o in orders]
    return np.array(rows, DTYPES["monarch_order"])


def unpack(row: npt.NDArray[Any]) -> Order:
    """Return the order of a single record."""
    file, tier, kind, _, peer, word, _, _ = row[0].tolist()
    return Order(file, tier, kind, peer, word)


def completions(rows: npt.NDArray[Any]) -> list[Completion]:
    """Return the completions of some records."""
    return [_completion(row) for row in rows.tolist()]


def _completion(row: tuple[int, ...]) -> Completion:
    file, tier, kind, step, peer, word, status, late, pages, alone, n, ns, _ = row
    return Completion(
        *(file, tier, kind, Step(step), peer, word, status),
        expired=bool(late),
        bytes=n,
        ns=ns,
        pages=pages,
        alone=bool(alone),
    )
