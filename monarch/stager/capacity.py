"""The capacity of the Tiers and the Pool, and how failed Transfers affect it."""

import errno
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import Final

import numpy as np
import numpy.typing as npt

from monarch.codec import PLAIN
from monarch.native import Account, Table, following_generation
from monarch.tiers import Tier
from monarch.tiers.probe import grants_leases
from monarch.tiers.tier import PAGE_BYTES

_NO_FILES: Final = np.zeros(0, np.intp)
FILE_FAILURES_MAX: Final = 2
LACKS: Final = frozenset(
    {errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS, errno.EAGAIN}
)
"""Temporary shortages of the node: no fault of a File, a Tier or the origin."""

_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
# Errors of one copy on a working Tier.
_ONE_COPY: Final = frozenset({errno.EBADMSG, errno.EEXIST, errno.ESTALE})
_DENIED: Final = frozenset({errno.EACCES, errno.EPERM})
_CHANGED: Final = frozenset({errno.ESTALE, errno.ENOENT, errno.ENOTDIR, errno.ELOOP})


log = logging.getLogger("monarch.stager")


class FileOutcome(Enum):
    """The action on a File after a Transfer."""

    CHANGED = "it differs from the Catalog, and is not served any more"
    RESTART = "order it again at once: the fault was the Tier's"
    RETRY = "order it again when it is asked for"
    POSTPONE = "order it again after a while: the node lacks something"
    GIVE_UP = "do not order it again: it has failed too often"
    DENIED = "do not order it again: the agent may not read it"


class TierOutcome(Enum):
    """The action on a Tier after a Transfer."""

    UNCHANGED = "nothing"
    FULL = "it takes no more than it holds"
    FAILED = "it is taken out of service"


@dataclass(frozen=True, slots=True)
class TransferEnd:
    """The failure of a Transfer as the data plane reports it.

    Args:
        status: a negative errno.
        at_tier: whether the call that failed was on the Tier, not on the Origin.
        adoption: whether an existing Replica was being verified.
    """

    status: int
    at_tier: bool = False
    adoption: bool = False


def footprint(size_bytes: int) -> int:
    """Return the bytes that a file of this size takes in a Tier: whole pages."""
    return max(1, -(-size_bytes // PAGE_BYTES)) * PAGE_BYTES


def footprints(sizes: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Return the footprint of each of many files."""
    page = np.uint64(PAGE_BYTES)
    pages = np.maximum((sizes + (page - np.uint64(1))) // page, np.uint64(1))
    room: npt.NDArray[np.uint64] = pages * page
    return room


@dataclass(frozen=True, slots=True)
class CodecInUse:
    """How a Tier is packed.

    Args:
        ratio: the expected compression ratio of its Files.
        why: the reason for choosing it; "" if it was configured.
    """

    name: str = PLAIN
    ratio: float = 1.0
    why: str = ""


class InARow:
    """Counts the Transfers of each File that have failed in a row."""

    def __init__(self) -> None:
        self._counts: dict[int, tuple[int, int]] = {}

    def __repr__(self) -> str:
        return f"<InARow {len(self._counts)} files>"

    def count(self, file: int, generation: int) -> int:
        """Count one more; each Transfer of a File has the next generation."""
        count, last = self._counts.get(file, (0, generation))
        if generation not in (last, following_generation(last)):
            count = 0  # the Transfers in between have not failed
        self._counts[file] = (count + 1, generation)
        return count + 1


class Ledger:
    """The capacity of all Tiers, fastest first, and of the Pool; failures of Files.

    The staging table keeps the accounts: the data plane reserves from them.
    """

    def __init__(self, table: Table, tiers: int) -> None:
        self._table = table
        self._tiers = tiers
        self._limits = {
            tier: account.capacity_bytes for tier, account in enumerate(self.accounts)
        }
        self._failures = InARow()

    def __repr__(self) -> str:
        texts = [
            f"{a.used_bytes}+{a.reserved_bytes}/{a.capacity_bytes}"
            + ("" if a.in_service else " lost")
            for a in self.accounts
        ]
        return f"<Ledger {', '.join(texts)}>"

    @property
    def accounts(self) -> list[Account]:
        """The accounts of the Tiers as they are now."""
        return [self._table.account(tier) for tier in range(self._tiers)]

    def account(self, tier: int) -> Account:
        """Return the account of a Tier, or of the Pool, as it is now."""
        return self._table.account(tier)

    def free(self, file: int, tier: int) -> None:
        """Free the space of a Replica whose name has been removed."""
        self._table.remove(file, tier)

    def limit(self, tier: int) -> int:
        """Return how many bytes of a Tier may be used if memory is available."""
        return self._limits[tier]

    def set_limit(self, tier: int, size_bytes: int) -> None:
        """Reduce the limit of a Tier permanently."""
        self._limits[tier] = size_bytes
        admitted_bytes = self.account(tier).capacity_bytes
        self._table.set_capacity(tier, min(size_bytes, admitted_bytes))

    def shrink(self, tier: int) -> None:
        """Limit the Tier to its bytes that are used or reserved now."""
        self._table.shrink(tier)
        self._limits[tier] = self.account(tier).capacity_bytes

    def admit(self, tiers: Sequence[int], room_bytes: int) -> None:
        """Let Tiers take this much more together, but each no more than its limit."""
        accounts = [(tier, self.account(tier)) for tier in tiers]
        if not self._table.tally()["offered"]:
            # Reserved bytes will be written; those of offered Replicas already are.
            room_bytes -= sum(account.reserved_bytes for _, account in accounts)
        for tier, account in accounts:
            taken = account.used_bytes + account.reserved_bytes
            capacity = min(self._limits[tier], taken + max(0, room_bytes))
            self._table.set_capacity(tier, capacity)
            room_bytes -= max(0, capacity - taken)

    def retire(self, tier: int) -> bool:
        """Take a Tier out of service; return False if it already was."""
        return self._table.retire(tier)

    def classify(
        self, file: int, generation: int, end: TransferEnd
    ) -> tuple[FileOutcome, TierOutcome]:
        """Return the actions on the File and the Tier of a failed Transfer.

        Args:
            generation: of the state word of the Transfer.
        """
        cause = -end.status
        if cause in LACKS:
            return FileOutcome.POSTPONE, TierOutcome.UNCHANGED
        if cause == errno.ECANCELED and end.at_tier:
            return FileOutcome.RETRY, TierOutcome.UNCHANGED
        if end.adoption and not (end.at_tier and cause in _FULL):
            # A Replica that fails verification proves no fault of its File or Tier.
            return FileOutcome.RESTART, TierOutcome.UNCHANGED
        tier = TierOutcome.UNCHANGED
        if end.at_tier and cause in _FULL:
            tier = TierOutcome.FULL
        elif end.at_tier and cause not in _ONE_COPY:
            # A Tier that has failed once may have lost its contents, too.
            tier = TierOutcome.FAILED
        if tier is not TierOutcome.UNCHANGED:
            return FileOutcome.RESTART, tier
        if not end.at_tier and cause in _CHANGED:
            return FileOutcome.CHANGED, tier
        count = self._failures.count(file, generation)
        if count < FILE_FAILURES_MAX:
            return FileOutcome.RETRY, tier
        denied = not end.at_tier and cause in _DENIED
        return (FileOutcome.DENIED if denied else FileOutcome.GIVE_UP), tier


class Storage:
    """The places of this node's Replicas: Tiers and the Pool, with their accounts.

    Attributes:
        tiers: fastest first.
        places: the Tiers and, after them, the Pool if it exists.
        pool_number: the number of the Pool, even if it does not exist.
        table: the staging table of the data plane, with the accounts of all places.
        pool_wanted_bytes: the size that the Pool may have.
        codecs: those of the packed Tiers, by Tier number.

    Args:
        pool_at_once: open the Pool now; otherwise the caller calls open_pool() later.
    """

    def __init__(
        self,
        tiers: Sequence[Tier],
        table: Table,
        pool: Tier | None = None,
        *,
        pool_at_once: bool = True,
        codecs: Mapping[int, CodecInUse] = MappingProxyType({}),
    ) -> None:
        self.codecs = codecs
        self.tiers = tuple(tiers)
        self.places = self.tiers if pool is None else (*self.tiers, pool)
        self.pool_number = len(self.tiers)
        self.table = table
        for number, tier in enumerate(self.tiers):
            is_packed = number in codecs
            room = tier.usable_bytes if is_packed else tier.capacity_bytes
            table.set_capacity(number, room)
        self.ledger = Ledger(table, len(self.tiers))
        self._pool = pool
        self.pool_wanted_bytes = 0 if pool is None else pool.capacity_bytes
        if pool_at_once:
            self.open_pool(self.pool_wanted_bytes)

    def __repr__(self) -> str:
        return f"<Storage {len(self.places)} places, {self.ledger!r}>"

    @property
    def pool(self) -> Account:
        """The account of the Pool as it is now."""
        return self.ledger.account(self.pool_number)

    def open_pool(self, size_bytes: int) -> None:
        """Set the Pool's capacity, unless nothing can prove a Replica closed."""
        if self._pool is None or not size_bytes:
            return
        if not grants_leases(self._pool.directory):
            log.warning("no leases, so no pool path=%s", self._pool.directory)
            return
        self.table.set_capacity(self.pool_number, size_bytes)

    @property
    def packs(self) -> bool:
        """Whether a Tier is packed."""
        return bool(self.codecs)

    def packed_in(self, tier: int | None = None) -> npt.NDArray[np.intp]:
        """Return the packed Files of one Tier, or of all."""
        if not self.packs:
            return _NO_FILES
        packed = self.table.packed()
        return np.flatnonzero(packed >= 0 if tier is None else packed == tier)

    def lost_tiers(self) -> list[int]:
        """Return the numbers of the Tiers that are out of service."""
        return [n for n in range(len(self.tiers)) if not self.in_service(n)]

    def in_service(self, tier: int) -> bool:
        """Return whether a Tier is used."""
        return self.ledger.account(tier).in_service
