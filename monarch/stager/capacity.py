"""Which Tier a File goes to, and what a failed Transfer means for its Tier."""

import errno
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

import numpy as np
import numpy.typing as npt

PAGE_BYTES: Final = 4096
FILE_FAILURES_MAX: Final = 2
LACKS: Final = frozenset(
    {errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS, errno.EAGAIN}
)
"""What the node lacks for a moment: no fault of a File, a Tier or the origin."""

_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
# What says that this one copy went wrong, on a Tier that works.
_ONE_COPY: Final = frozenset({errno.EBADMSG, errno.EEXIST, errno.ESTALE})
_CHANGED: Final = frozenset({errno.ESTALE, errno.ENOENT, errno.ENOTDIR, errno.ELOOP})


class Verdict(Enum):
    """What becomes of a File after a Transfer."""

    PUBLISHED = "published"
    CHANGED = "the origin differs from the Catalog"
    ANEW = "try at once; the fault was the Tier's"
    RETRY = "try when it is asked for again"
    LATER = "the node lacks something; try again after a while"
    GIVEN_UP = "failed too often"


class Room(Enum):
    """What becomes of a Tier after a Transfer."""

    KEPT = "as it was"
    SHRUNK = "takes no more than it holds"
    LOST = "out of service"


@dataclass(frozen=True, slots=True)
class Outcome:
    """The end of a Transfer as the engine tells it.

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
    """The accounts of all Tiers, fastest first, and the failures of Files.

    Attributes:
        transit: the account of the pool for Files that are not kept, whose number is
            behind those of the Tiers; `reserve` never touches it.
    """

    def __init__(self, capacities: Sequence[int]) -> None:
        self.accounts = [Account(max(0, capacity)) for capacity in capacities]
        self.transit: Account | None = None
        self.failures: dict[int, int] = {}

    def __repr__(self) -> str:
        texts = [
            f"{a.used_bytes}+{a.reserved_bytes}/{a.capacity_bytes}"
            + ("" if a.in_service else " lost")
            for a in self.accounts
        ]
        return f"<Ledger {', '.join(texts)}>"

    def account(self, tier: int) -> Account:
        """Return the account of a Tier, or of the transit pool."""
        if tier < len(self.accounts):
            return self.accounts[tier]
        assert self.transit is not None
        return self.transit

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

    def settle(self, tier: int, size_bytes: int) -> None:
        """Turn a reservation into use: the Replica is published."""
        account, amount = self.account(tier), footprint(size_bytes)
        assert account.reserved_bytes >= amount
        account.reserved_bytes -= amount
        account.used_bytes += amount

    def release(self, tier: int, size_bytes: int) -> None:
        """Return a reservation: the Transfer came to nothing."""
        account, amount = self.account(tier), footprint(size_bytes)
        assert account.reserved_bytes >= amount
        account.reserved_bytes -= amount

    def drop(self, tier: int, size_bytes: int) -> None:
        """Return what a Replica used: its name is gone."""
        account, amount = self.account(tier), footprint(size_bytes)
        assert account.used_bytes >= amount
        account.used_bytes -= amount

    def shrink(self, tier: int) -> None:
        """Let the Tier take no more than it holds and awaits now."""
        account = self.account(tier)
        account.capacity_bytes = account.used_bytes + account.reserved_bytes

    def retire(self, tier: int) -> None:
        """Take a Tier out of service; reservations come back as Transfers end."""
        self.account(tier).in_service = False

    def judge(self, file: int, tier: int, outcome: Outcome) -> tuple[Verdict, Room]:
        """Say what a Transfer's end means for its File and its Tier."""
        if outcome.status == 0:
            self.failures.pop(file, None)
            return Verdict.PUBLISHED, Room.KEPT
        cause = -outcome.status
        if cause in LACKS:
            return Verdict.LATER, Room.KEPT
        if outcome.adoption and not (outcome.at_tier and cause in _FULL):
            # An unfit leftover says nothing about the File, nor about the Tier.
            return Verdict.ANEW, Room.KEPT
        if outcome.at_tier:
            return self._judge_tier(file, tier, cause)
        if cause in _CHANGED:
            return Verdict.CHANGED, Room.KEPT
        return self._failed(file), Room.KEPT

    def _judge_tier(self, file: int, tier: int, cause: int) -> tuple[Verdict, Room]:
        if cause in _FULL:
            return Verdict.ANEW, Room.SHRUNK
        if cause not in _ONE_COPY:
            # A Tier that has failed once is not to be trusted with what it holds.
            return Verdict.ANEW, Room.LOST
        return self._failed(file), Room.KEPT

    def _failed(self, file: int) -> Verdict:
        count = self.failures.get(file, 0) + 1
        self.failures[file] = count
        return Verdict.GIVEN_UP if count >= FILE_FAILURES_MAX else Verdict.RETRY


def bytes_to_free(used_bytes: int, limit_bytes: int) -> int:
    """Return the bytes that RAM Replicas must give back to leave a tenth free."""
    return max(0, used_bytes - limit_bytes * 9 // 10)


def choose_victims(
    files: Sequence[int], size_of: Callable[[int], int], need_bytes: int
) -> list[int]:
    """Return Files, from the last one on, whose footprints add up to the need."""
    victims: list[int] = []
    freed = 0
    for file in reversed(files):
        if freed >= need_bytes:
            break
        victims.append(file)
        freed += footprint(size_of(file))
    return victims
