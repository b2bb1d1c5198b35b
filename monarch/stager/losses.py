"""Replicas and Tiers that are lost while the job runs, and what is done about it."""

from collections.abc import Callable

from monarch.native import Reason
from monarch.stager.removal import Shelf
from monarch.stager.replicas import Event
from monarch.tiers.probe import Finding

LOST_MAX = 2


class Losses:
    """Forgets what is lost, and has it staged again a bounded number of times.

    Looking for a Replica may take as long as a broken medium does, so somebody else
    does that: he takes what is doubted, and tells what he has found.

    Args:
        renew: called with a File whose Replica is lost, and whether to stage it again.
        refill: called with a Tier that was withdrawn.

    Attributes:
        doubted: Files that programs could not open although they are ready, with the
            Tiers in which they are.
        warnings: what the user should know, each once; taken out by who says it.
    """

    def __init__(
        self,
        shelf: Shelf,
        renew: Callable[[int, bool], None],
        refill: Callable[[int], None],
    ) -> None:
        self.doubted: dict[int, int] = {}
        self.warnings: list[str] = []
        self._shelf = shelf
        self._renew = renew
        self._refill = refill
        self._counts: dict[int, int] = {}

    def __repr__(self) -> str:
        return f"<Losses of {len(self._counts)} Files, {len(self.doubted)} doubted>"

    @property
    def tiers(self) -> list[int]:
        """The numbers of the Tiers that are used no more."""
        accounts = enumerate(self._shelf.ledger.accounts)
        return [number for number, account in accounts if not account.in_service]

    def note_found(self, file: int, tier: int, finding: Finding) -> None:
        """Note what was found of a Replica that a program could not open."""
        replicas = self._shelf.replicas
        if finding is Finding.HELD or replicas.ready_tier(file) != tier:
            return
        if finding is Finding.TIER_GONE:
            self.withdraw(tier, "its directory has gone")
        if file in self._shelf.flying:
            return  # the end of its Transfer is not known yet: programs ask again
        if finding is not Finding.TIER_GONE:
            self._shelf.forget(file, tier)
        count = self._counts[file] = self._counts.get(file, 0) + 1
        self._renew(file, count <= LOST_MAX)
        if count > LOST_MAX:
            replicas.change(file, Event.REFUSED, reason=Reason.ERROR)

    def withdraw(self, tier: int, why: str) -> None:
        """Use a Tier no more; its Files are worth staging into another one."""
        if self._shelf.retire(tier):
            name = self._shelf.places[tier].name
            self.warnings.append(f"tier {name} is used no more: {why}")
            self._refill(tier)
