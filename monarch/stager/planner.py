"""Plans Transfers by the Policy: where a File comes from now, and where it has room."""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from monarch.native import OrderKind, Reason, ReplicaState
from monarch.stager.adoption import Adoption
from monarch.stager.capacity import Ledger, footprint, footprints
from monarch.stager.fetches import FetchOutcome
from monarch.stager.fill import StagerSettings
from monarch.stager.policy import Destination
from monarch.stager.pool import Pool
from monarch.stager.replicas import Event, Replicas
from monarch.stager.sources import Sources
from monarch.stager.transfer import Transfer


class ReservedSpace:
    """The room of the Tiers that is promised to kept Files; others take the rest.

    Args:
        kept: which Files this node is to keep.
    """

    def __init__(
        self, kept: npt.NDArray[np.bool_], replicas: Replicas, ledger: Ledger
    ) -> None:
        self._ledger = ledger
        self._sizes = replicas.sizes
        self._kept = kept
        self._promised = kept & replicas.in_state(ReplicaState.ABSENT)
        self.promised_bytes = int(footprints(self._sizes[self._promised]).sum())

    def __repr__(self) -> str:
        return f"<ReservedSpace {self.promised_bytes} bytes promised>"

    @property
    def spare_bytes(self) -> int:
        """What the kept Files will not need; below 0: they cannot all have room."""
        free = sum(account.free_bytes for account in self._ledger.accounts)
        return free - self.promised_bytes

    def end_promise(self, file: int) -> None:
        """Promise a File no room any more: it has its own, or will not need any."""
        if self._promised[file]:
            self._promised[file] = False
            self.promised_bytes -= footprint(int(self._sizes[file]))

    def end_promises(self, files: npt.NDArray[np.intp]) -> None:
        """Promise these Files no room any more."""
        promised = files[self._promised[files]]
        self._promised[promised] = False
        self.promised_bytes -= int(footprints(self._sizes[promised]).sum())

    def promise(self, file: int) -> None:
        """Promise a kept File room again: its Transfer has failed."""
        if self._kept[file] and not self._promised[file]:
            self._promised[file] = True
            self.promised_bytes += footprint(int(self._sizes[file]))

    def reserve_spare(self, file: int) -> int | None:
        """Reserve room for a File that this node need not keep; None: there is none."""
        size = int(self._sizes[file])
        if footprint(size) > self.spare_bytes:
            return None
        return self._ledger.reserve(size)


class Planner:
    """Plans Transfers by the Policy of this node."""

    def __init__(
        self,
        sources: Sources,
        replicas: Replicas,
        ledger: Ledger,
        pool: Pool,
        settings: StagerSettings,
    ) -> None:
        self._policy = sources.policy
        self._sources = sources
        self._replicas = replicas
        self._ledger = ledger
        self._pool = pool
        self._settings = settings
        self._space = ReservedSpace(self._policy.kept, replicas, ledger)

    def __repr__(self) -> str:
        return f"<Planner {self._policy!r} {self._space!r}>"

    def revise(self, adoption: Adoption) -> Iterator[int]:
        """Apply the Policy to what was decided by another one.

        Yields:
            Files that are not to be adopted, because kept Files need their room; the
            caller releases it.
        """
        placed = np.flatnonzero(self._policy.placed)
        self._replicas.retry_all(placed, Reason.NO_ROOM)
        files = np.fromiter(adoption.tiers, np.intp, len(adoption.tiers))
        self._space.end_promises(files)
        others = files[~self._policy.kept[files]].tolist()
        while others and self._space.spare_bytes < 0:
            yield others.pop()

    def plan(self, file: int, kind: OrderKind, *, asked: bool) -> Transfer | None:
        """Return the Transfer of a File, its room reserved; None: not now.

        Args:
            asked: by a program or a peer, not by background fill.
        """
        if self._pool.is_queued(file):
            return None
        if self._policy.destination(file) == Destination.NOWHERE:
            self._replicas.change(file, Event.REFUSED, reason=Reason.NO_ROOM)
            return None
        peer = None
        if not self._policy.owns(file):
            if not asked and not self._may_fill(file):
                return None
            peer = self._sources.source(file)
        tier = self._reserve(file, peer, asked=asked)
        if tier is None:
            self._go_without(file, asked=asked)
            return None
        return Transfer(file, tier, kind, asked, peer)

    def redirect(self, transfer: Transfer, outcome: FetchOutcome) -> None:
        """Point a Transfer at its next Source; its File stays STAGING meanwhile."""
        assert transfer.peer is not None
        transfer.tried += (transfer.peer,)
        transfer.peer = None
        if outcome is FetchOutcome.NEXT_PEER:
            transfer.peer = self._sources.source(transfer.file, transfer.tried)
        if transfer.peer is None and transfer.tier == self._pool.number:
            self._move_to_tier(transfer)

    def promise(self, file: int) -> None:
        """Promise a kept File room again: its Transfer has failed."""
        self._space.promise(file)

    def _may_fill(self, file: int) -> bool:
        """Return whether to order a peer's File that nobody has asked for."""
        reader = self._sources.reader(file)
        if reader == self._policy.own or self._sources.usable(reader):
            return True
        self._sources.note_passed_over()
        return False

    def _reserve(self, file: int, peer: int | None, *, asked: bool) -> int | None:
        """Reserve room in a Tier or, if somebody has asked, in the Pool."""
        tier, destination = None, self._policy.destination(file)
        if destination == Destination.TIER:
            self._space.end_promise(file)
            tier = self._ledger.reserve(self._replicas.size_of(file))
        elif peer is None or destination == Destination.SPARE:
            tier = self._space.reserve_spare(file)
        if tier is not None or not asked or not self._policy.uses_pool:
            return tier
        pool = self._pool
        reserve = pool.reserve_idle if self._is_large(file) else pool.reserve
        return pool.number if reserve(file) else None

    def _go_without(self, file: int, *, asked: bool) -> None:
        """Say that a File has no room, or let it wait for room in the Pool."""
        if not self._policy.uses_pool or (asked and not self._pool.fits(file)):
            self._replicas.change(file, Event.REFUSED, reason=Reason.NO_ROOM)
        elif asked and not self._is_large(file):
            self._pool.queue(file)

    def _move_to_tier(self, transfer: Transfer) -> None:
        """What this node reads from the Origin it also keeps, if there is room."""
        tier = self._space.reserve_spare(transfer.file)
        if tier is not None:
            size_bytes = self._replicas.size_of(transfer.file)
            self._ledger.release(transfer.tier, size_bytes)
            transfer.tier = tier
            self._replicas.change(transfer.file, Event.MOVED, tier=tier)

    def _is_large(self, file: int) -> bool:
        return self._settings.is_large(self._replicas.size_of(file))
