"""The staging table: the rows and capacities by which the data plane stages Files."""

from __future__ import annotations

import ctypes
import os
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from monarch.native.layout import CONSTANTS, DTYPES, Reason, Source, Verdict
from monarch.native.library import LIB, Closable, span
from monarch.native.orders import Order, pack, unpack

TABLE_ROW = DTYPES["monarch_table_row"]
SOURCES_MAX = CONSTANTS["SOURCES_MAX"]
NO_SOURCE = CONSTANTS["NO_SOURCE"]


class Account(NamedTuple):
    """The bytes of one Tier; reserved + used never exceed the capacity."""

    capacity_bytes: int
    used_bytes: int
    reserved_bytes: int
    in_service: bool
    evicted_files: int = 0
    """Evicted to free space for others, least recently used first."""
    evicted_bytes: int = 0
    """The space freed by them."""

    @property
    def free_bytes(self) -> int:
        """The bytes that may still be reserved."""
        if not self.in_service:
            return 0
        return self.capacity_bytes - self.used_bytes - self.reserved_bytes


@dataclass(frozen=True, slots=True)
class TableFiles:
    """The Files of a table, by number, in memory that it uses until close().

    Attributes:
        words: the state words.
        marks: the *written* marks of Files.
        root_marks: those of whole roots.
        bases: the first File of each root.
        first: the first row of each File, and the number of all rows.
    """

    sizes: npt.NDArray[np.uint64]
    words: npt.NDArray[np.uint32]
    marks: npt.NDArray[np.uint8]
    root_marks: npt.NDArray[np.uint8]
    bases: npt.NDArray[np.uint32]
    first: npt.NDArray[np.uint64]


class Table(Closable):
    """Decides the destination of each requested File, and reserves its space.

    Args:
        tiers: the number of Tiers; the Pool has the next number.
        large_bytes: no program waits for a larger File.
    """

    def __init__(self, files: TableFiles, tiers: int, large_bytes: int) -> None:
        self._files = files  # the data plane uses its memory
        record = np.zeros(1, DTYPES["monarch_table_options"])
        for name in ("sizes", "words", "marks", "root_marks", "bases", "first"):
            record[name] = span(getattr(files, name))[0]
        record["files"] = len(files.sizes)
        record["roots"] = len(files.bases)
        record["tiers"] = tiers
        record["large_bytes"] = min(large_bytes, 1 << 63)
        handle = ctypes.c_void_p()
        code = LIB.monarch_table_new(span(record)[0], ctypes.byref(handle))
        if code:
            raise OSError(-code, f"no staging table: {os.strerror(-code)}")
        self._handle: ctypes.c_void_p | None = handle

    @property
    def handle(self) -> ctypes.c_void_p:
        """The native table, for an engine; valid until close()."""
        if self._handle is None:
            raise ValueError("the staging table is closed")
        return self._handle

    @property
    def first_rows(self) -> npt.NDArray[np.uint64]:
        """The first row of each File, and the number of all rows."""
        return self._files.first

    def follow(
        self, rows: npt.NDArray[Any], own: int, peers: int, *, uses_pool: bool
    ) -> None:
        """Use these rows for new decisions; Transfers in flight continue.

        Args:
            rows: one for each Extent; copied.
            peers: the numbers of nodes are below this.
            uses_pool: whether a File that fits no Tier goes through the Pool.
        """
        if len(rows) < int(self._files.first[-1]):
            raise ValueError("there must be a row for each Extent")
        plan = np.zeros(1, DTYPES["monarch_plan"])
        plan["rows"] = span(rows)[0]
        plan["own"], plan["peers"], plan["uses_pool"] = own, peers, uses_pool
        code = LIB.monarch_table_follow(self.handle, span(plan)[0])
        if code:
            raise OSError(-code, os.strerror(-code))

    def set_peer(self, peer: int, *, usable: bool, gone: bool) -> None:
        """Set whether a peer is usable, and whether it has stopped reading."""
        bits = usable * CONSTANTS["PEER_USABLE"] | gone * CONSTANTS["PEER_GONE"]
        LIB.monarch_table_set_peer(self.handle, peer, bits)

    # -- Transfers ------------------------------------------------------------------

    def begin(self, file: int, kind: int) -> tuple[Verdict, Order]:
        """Begin the Transfer of a File if it is absent and fits.

        Returns:
            The verdict and the order, which is valid only if the verdict is BEGUN.
        """
        out = np.zeros(1, DTYPES["monarch_order"])
        code = LIB.monarch_table_begin(self.handle, file, kind, span(out)[0])
        return Verdict(code), unpack(out)

    def move(self, order: Order) -> Order:
        """Move a Transfer from the Pool to a Tier, if one has spare space."""
        record = pack([order])
        LIB.monarch_table_move(self.handle, span(record)[0])
        return unpack(record)

    def publish(self, order: Order, source: Source = Source.NONE) -> int:
        """Publish a verified copy as the data plane does, for models of it.

        Returns:
            0: it is READY; -ENXIO: its Tier is out of service; -ECANCELED: the
            generation of the order has passed.
        """
        record = pack([order])
        return int(LIB.monarch_table_publish(self.handle, span(record)[0], source))

    def fail(self, order: Order, reason: Reason, *, promise: bool) -> bool:
        """Make the File of a Transfer absent, and free its reservation.

        Args:
            promise: whether space is promised again to a File that is to be kept.

        Returns:
            False: the generation of the order has passed, and nothing is changed.
        """
        record = pack([order])
        return bool(
            LIB.monarch_table_fail(self.handle, span(record)[0], reason, promise)
        )

    def stop(self) -> None:
        """Begin no more Transfers."""
        LIB.monarch_table_stop(self.handle)

    # -- capacity -------------------------------------------------------------------

    def offer(self, file: int, tier: int) -> bool:
        """Offer a Replica of an earlier job; return False if it does not fit its Tier.

        It is verified before the File is read from another Source.
        """
        return bool(LIB.monarch_table_offer(self.handle, file, tier))

    def withdraw(self, file: int) -> int | None:
        """Withdraw the offer of a Replica; return its Tier, None if not offered."""
        tier = int(LIB.monarch_table_withdraw(self.handle, file))
        return tier if tier >= 0 else None

    def offers(self) -> npt.NDArray[np.int16]:
        """Return the Tier in which each File is offered; -1: in none."""
        out = np.zeros(len(self._files.sizes) + 1, np.uint8)
        LIB.monarch_table_offers(self.handle, span(out)[0])
        return out[:-1].astype(np.int16) - 1

    def remove(self, file: int, tier: int) -> None:
        """Free the space of a Replica whose name has been removed."""
        LIB.monarch_table_remove(self.handle, file, tier)

    def set_capacity(self, tier: int, capacity_bytes: int) -> None:
        """Set the capacity of a Tier."""
        LIB.monarch_table_set_capacity(self.handle, tier, capacity_bytes)

    def shrink(self, tier: int) -> None:
        """Limit a Tier to its bytes that are used or reserved now."""
        LIB.monarch_table_shrink(self.handle, tier)

    def retire(self, tier: int) -> bool:
        """Take a Tier out of service; return False if it already was."""
        return bool(LIB.monarch_table_retire(self.handle, tier))

    def account(self, tier: int) -> Account:
        """Return the account of a Tier, or of the Pool."""
        out = np.zeros(1, DTYPES["monarch_account"])
        LIB.monarch_table_account(self.handle, tier, span(out)[0])
        capacity, used, reserved, in_service, *evicted = out[0].tolist()
        return Account(capacity, used, reserved, bool(in_service), *evicted)

    @property
    def spare_bytes(self) -> int:
        """The space that kept Files will not need; negative: the space they lack."""
        return int(LIB.monarch_table_spare(self.handle))

    def evict(self, tier: int) -> None:
        """Let requested Files that do not fit evict Replicas from a Tier."""
        LIB.monarch_table_evict(self.handle, tier)

    # -- packed Tiers ----------------------------------------------------------------

    def pack(self, tier: int, ratio: float, last_pages: int = 0) -> None:
        """Declare a Tier as packed, with the expected compression ratio of its Files.

        Args:
            last_pages: the last pages of segments, beside the capacity of the Tier.
        """
        parts = max(1, int(ratio * 1024))
        LIB.monarch_table_pack(self.handle, tier, parts, last_pages)

    def packed(self) -> npt.NDArray[np.int16]:
        """Return the Tier in which each File is packed; -1: in none."""
        out = np.zeros(len(self._files.sizes) + 1, np.uint8)
        LIB.monarch_table_packed(self.handle, span(out)[0])
        return out[:-1].astype(np.int16) - 1

    # -- counts ---------------------------------------------------------------------

    def tally(self) -> dict[str, int]:
        """Return the counts of the data plane's own actions, by name."""
        out = np.zeros(1, DTYPES["monarch_tally"])
        LIB.monarch_table_tally(self.handle, span(out)[0])
        names = out.dtype.names or ()
        return dict(zip(names, out[0].tolist(), strict=True))

    def fetched(self, peer: int) -> tuple[int, int]:
        """Return the number of Files and bytes that a peer has delivered."""
        out = np.zeros(1, DTYPES["monarch_fetched"])
        LIB.monarch_table_fetched(self.handle, peer, span(out)[0])
        files, size = out[0].tolist()
        return files, size

    def close(self) -> None:
        """Free the table; no engine may use it any more."""
        if self._handle is not None:
            handle, self._handle = self._handle, None
            LIB.monarch_table_free(handle)
