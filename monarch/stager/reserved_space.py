"""The room that is promised to the Files which this node keeps."""

import numpy as np
import numpy.typing as npt

from monarch.native import ReplicaState
from monarch.stager.capacity import Ledger, footprint, footprints
from monarch.stager.replicas import Replicas


class Allotment:
    """Lets other Files take only what the kept ones leave.

    Args:
        kept: which Files this node is to hold.
    """

    def __init__(
        self, kept: npt.NDArray[np.bool_], replicas: Replicas, ledger: Ledger
    ) -> None:
        self._ledger = ledger
        self._sizes = replicas.sizes
        self._kept = kept
        self._owed = kept & replicas.in_state(ReplicaState.ABSENT)
        self.owed_bytes = int(footprints(replicas.sizes[self._owed]).sum())

    def __repr__(self) -> str:
        return f"<Allotment {self.owed_bytes} bytes owed>"

    @property
    def spare_bytes(self) -> int:
        """What the kept Files will not need; below 0: they cannot all have room."""
        free = sum(account.free_bytes for account in self._ledger.accounts)
        return free - self.owed_bytes

    def settle(self, file: int) -> None:
        """Owe a File nothing more: it has its room, or will not need any."""
        if self._owed[file]:
            self._owed[file] = False
            self.owed_bytes -= footprint(int(self._sizes[file]))

    def settle_all(self, files: npt.NDArray[np.intp]) -> None:
        """Owe all of these Files nothing more."""
        owed = files[self._owed[files]]
        self._owed[owed] = False
        self.owed_bytes -= int(footprints(self._sizes[owed]).sum())

    def owe(self, file: int) -> None:
        """Promise a File room again: its Transfer came to nothing."""
        if self._kept[file] and not self._owed[file]:
            self._owed[file] = True
            self.owed_bytes += footprint(int(self._sizes[file]))

    def reserve_spare(self, file: int) -> int | None:
        """Reserve room for a File that this node need not keep; None: there is none."""
        size = int(self._sizes[file])
        if footprint(size) > self.spare_bytes:
            return None
        return self._ledger.reserve(size)
