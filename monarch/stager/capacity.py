"""The room of the Tiers and the Pool, and what the end of a Transfer means for it."""

import errno
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

import numpy as np
import numpy.typing as npt

from monarch.tiers import Tier

PAGE_BYTES: Final = 4096
FILE_FAILURES_MAX: Final = 2
LACKS: Final = frozenset(
    {errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS, errno.EAGAIN}
)
"""What the node lacks for a moment: no fault of a File, a Tier or the origin."""

_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
# Errors of one copy, on a Tier that works.
_ONE_COPY: Final = frozenset({errno.EBADMSG, errno.EEXIST, errno.ESTALE})
_CHANGED: Final = frozenset({errno.ESTALE, errno.ENOENT, errno.ENOTDIR, errno.ELOOP})


class FileOutcome(Enum):
    """What happens to a File after a Transfer."""

    PUBLISHED = "it is served from its Replica"
    CHANGED = "it differs from the Catalog, and is not served any more"
    RESTART = "order it again at once: the fault was the Tier's"
    RETRY = "order it again when it is asked for"
    POSTPONE = "order it again after a while: the node lacks something"
    GIVE_UP = "do not order it again: it has failed too often"


class TierOutcome(Enum):
    """What happens to a Tier after a Transfer."""

    UNCHANGED = "nothing"
    FULL = "it takes no more than it holds"
    FAILED = "it is taken out of service"


@dataclass(frozen=True, slots=True)
class TransferEnd:
    """The end of a Transfer as the engine reports it.

    Args:
        status: 0, or a negative errno.
        at_tier: whether the failing call was one on the Tier, not on the Origin.
        adoption: whether an existing Replica was being verified.
    """

    status: int
    at_tier: bool = False
    adoption: bool = False


def footprint(size_bytes: int) -> int:
    """Return the bytes that a file of this size takes of a Tier: whole pages."""
    return max(1, -(-size_bytes // PAGE_BYTES)) * PAGE_BYTES


def footprints(sizes: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Return the footprint of each of many files."""
    page = np.uint64(PAGE_BYTES)
    pages = np.maximum((sizes + (page - np.uint64(1))) // page, np.uint64(1))
    room: npt.NDArray[np.uint64] = pages * page
    return room


@dataclass(slots=True)
class Account:
    """The bytes of one Tier; reserved + used never exceed the capacity."""

    capacity_bytes: int
    used_bytes: int = 0
    reserved_bytes: int = 0
    in_service: bool = True

    @property
    def free_bytes(self) -> int:
        """What may still be reserved."""
        if not self.in_service:
            return 0
        return self.capacity_bytes - self.used_bytes - self.reserved_bytes


class Ledger:
    """The accounts of all Tiers, fastest first, and of the Pool; failures of Files.

    Attributes:
        accounts: those of the Tiers.
        pool: that of the Pool, whose number is behind those of the Tiers; `reserve`
            never touches it.
    """

    def __init__(self, capacities: Sequence[int], pool_bytes: int = 0) -> None:
        self.accounts = [Account(max(0, capacity)) for capacity in capacities]
        self.pool = Account(pool_bytes)
        self._failures: dict[int, int] = {}

    def __repr__(self) -> str:
        texts = [
            f"{a.used_bytes}+{a.reserved_bytes}/{a.capacity_bytes}"
            + ("" if a.in_service else " lost")
            for a in self.accounts
        ]
        return f"<Ledger {', '.join(texts)}>"

    def account(self, tier: int) -> Account:
        """Return the account of a Tier, or of the Pool."""
        if tier < len(self.accounts):
            return self.accounts[tier]
        assert tier == len(self.accounts)
        return self.pool

    def reserve(self, size_bytes: int) -> int | None:
        """Reserve room in the first Tier that has it; None if none has."""
        need = footprint(size_bytes)
        for number, account in enumerate(self.accounts):
            if need <= account.free_bytes:
                account.reserved_bytes += need
                return number
        return None

    def reserve_in(self, tier: int, size_bytes: int) -> bool:
        """Reserve room in this very Tier, for a Replica that is there already."""
        account, need = self.account(tier), footprint(size_bytes)
        if need > account.free_bytes:
            return False
        account.reserved_bytes += need
        return True

    def commit(self, tier: int, size_bytes: int) -> None:
        """Turn a reservation into use: the Replica is published."""
        account, amount = self.account(tier), footprint(size_bytes)
        assert account.reserved_bytes >= amount
        account.reserved_bytes -= amount
        account.used_bytes += amount

    def release(self, tier: int, size_bytes: int) -> None:
        """Return a reservation: the Transfer has failed."""
        account, amount = self.account(tier), footprint(size_bytes)
        assert account.reserved_bytes >= amount
        account.reserved_bytes -= amount

    def free(self, tier: int, size_bytes: int) -> None:
        """Return what a Replica used: its name is gone."""
        account, amount = self.account(tier), footprint(size_bytes)
        assert account.used_bytes >= amount
        account.used_bytes -= amount

    def shrink(self, tier: int) -> None:
        """Limit the Tier to what it holds and what is reserved now."""
        account = self.account(tier)
        account.capacity_bytes = account.used_bytes + account.reserved_bytes

    def retire(self, tier: int) -> None:
        """Take a Tier out of service; reservations come back as Transfers end."""
        self.account(tier).in_service = False

    def classify(
        self, file: int, tier: int, end: TransferEnd
    ) -> tuple[FileOutcome, TierOutcome]:
        """Return what a Transfer's end means for its File and its Tier."""
        if end.status == 0:
            self.forget_failures(file)
            return FileOutcome.PUBLISHED, TierOutcome.UNCHANGED
        cause = -end.status
        if cause in LACKS:
            return FileOutcome.POSTPONE, TierOutcome.UNCHANGED
        if end.adoption and not (end.at_tier and cause in _FULL):
            # A Replica that does not verify says nothing about the File or the Tier.
            return FileOutcome.RESTART, TierOutcome.UNCHANGED
        if end.at_tier:
            return self._classify_at_tier(file, cause)
        if cause in _CHANGED:
            return FileOutcome.CHANGED, TierOutcome.UNCHANGED
        return self._count_failure(file), TierOutcome.UNCHANGED

    def forget_failures(self, file: int) -> None:
        """Count the failures of a File from zero, after a Transfer that succeeded."""
        self._failures.pop(file, None)

    def _classify_at_tier(
        self, file: int, cause: int
    ) -> tuple[FileOutcome, TierOutcome]:
        if cause in _FULL:
            return FileOutcome.RESTART, TierOutcome.FULL
        if cause not in _ONE_COPY:
            # A Tier that has failed once may have lost what it holds, too.
            return FileOutcome.RESTART, TierOutcome.FAILED
        return self._count_failure(file), TierOutcome.UNCHANGED

    def _count_failure(self, file: int) -> FileOutcome:
        count = self._failures.get(file, 0) + 1
        self._failures[file] = count
        return FileOutcome.GIVE_UP if count >= FILE_FAILURES_MAX else FileOutcome.RETRY


class Storage:
    """Where the Replicas of this node are: its Tiers and the Pool, with their accounts.

    Attributes:
        tiers: fastest first.
        places: the Tiers and, behind them, the Pool if there is one.
        pool_number: the number of the Pool, also where there is none.
    """

    def __init__(self, tiers: Sequence[Tier], pool: Tier | None = None) -> None:
        self.tiers = tuple(tiers)
        self.places = self.tiers if pool is None else (*self.tiers, pool)
        self.pool_number = len(self.tiers)
        self.ledger = Ledger(
            [tier.capacity_bytes for tier in self.tiers],
            0 if pool is None else pool.capacity_bytes,
        )

    def lost_tiers(self) -> list[int]:
        """Return the numbers of the Tiers that are not used any more."""
        return [n for n in range(len(self.tiers)) if not self.in_service(n)]

    def in_service(self, tier: int) -> bool:
        """Return whether a Tier is used."""
        return self.ledger.account(tier).in_service

    def __repr__(self) -> str:
        return f"<Storage {len(self.places)} places, {self.ledger!r}>"
