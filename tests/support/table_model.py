"""A plain model of the staging table, written from its rules and not from its code."""

from bisect import bisect_right
from collections import Counter
from dataclasses import dataclass
from random import Random
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from monarch.native import (
    NO_PEER,
    NO_SOURCE,
    SOURCES_MAX,
    TABLE_ROW,
    Account,
    Order,
    OrderKind,
    Reason,
    ReplicaState,
    Verdict,
    state_word,
)
from monarch.stager import Destination

PAGE = 4096
LARGE_BYTES = 1 << 20
TIERS, POOL, PEERS = 2, 2, 4
GENERATION, CONFIRMED = 1 << 12, 1 << 31
ENXIO, ECANCELED = -6, -125
TALLIED = (
    *("demand_transfers", "background_transfers", "passed_over"),
    *("rehomed_files", "origin_instead_files"),
    *("staged_files", "staged_bytes", "peer_files", "peer_bytes"),
    *("adopted_files", "adopted_bytes", "transit_files", "transit_bytes"),
    *("hinted_files", "hinted_bytes"),
)
ASKABLE = (ReplicaState.ABSENT, 0, Reason.NONE)


class Row(NamedTuple):
    """The destination and the sources of a File."""

    destination: Destination
    sources: tuple[int, ...]


@dataclass
class Room:
    """The bytes of a Tier, or of the Pool.

    Args:
        taken_when_shrunk: what it held when its capacity was last set below that.
    """

    capacity: int = 0
    used: int = 0
    reserved: int = 0
    in_service: bool = True
    taken_when_shrunk: int = 0

    def seen(self) -> Account:
        """The account that the table must have."""
        return Account(self.capacity, self.used, self.reserved, self.in_service)

    @property
    def free(self) -> int:
        """The bytes that may still be reserved."""
        return max(0, self.capacity - self.used - self.reserved) * self.in_service


class Model:
    """The inputs and the decisions of a staging table."""

    def __init__(self, sizes: list[int], bases: tuple[int, ...]) -> None:
        self.sizes, self.bases = sizes, bases
        self.states: list[tuple[ReplicaState, int, int]] = [ASKABLE] * len(sizes)
        self.generations = [0] * len(sizes)
        self.flights: dict[int, Order] = {}
        self.offers: dict[int, int] = {}
        self.written: set[int] = set()
        self.promised: set[int] = set()
        self.peers = [(False, False)] * PEERS
        self.accounts = [Room() for _ in range(TIERS + 1)]
        self.rows: list[Row] = []
        self.uses_pool = False
        self.evicts: set[int] = set()
        self.is_stopping = False
        self.fetched = [(0, 0)] * PEERS
        self.tally: Counter[str] = Counter(dict.fromkeys(TALLIED, 0))

    # -- Files ------------------------------------------------------------------------

    def need(self, file: int) -> int:
        """Whole pages, and one for an empty File."""
        return max(PAGE, -(-self.sizes[file] // PAGE) * PAGE)

    def is_large(self, file: int) -> bool:
        """Whether no program waits for it."""
        return self.sizes[file] > LARGE_BYTES

    def files_of(self, root: int) -> set[int]:
        """The Files of a root."""
        files = range(len(self.sizes))
        return {file for file in files if bisect_right(self.bases, file) - 1 == root}

    def word(self, file: int) -> int:
        """The state word, without its generation."""
        state, tier, reason = self.states[file]
        return state_word(state, tier, Reason(reason))

    def is_live(self, order: Order) -> bool:
        """Whether the Transfer of an order is under way."""
        flight = self.flights.get(order.file)
        return flight is not None and _number(flight) == _number(order)

    def ready_in(self, tier: int) -> list[int]:
        """The Files that are READY in a Tier."""
        place = (ReplicaState.READY, tier)
        return [file for file, state in enumerate(self.states) if state[:2] == place]

    # -- the plan ---------------------------------------------------------------------

    def make_rows(self, random: Random) -> list[Row]:
        """Some row for each File; this node is number 0."""
        return [
            Row(
                random.choice(list(Destination)),
                tuple(random.sample(range(1, PEERS), random.randint(0, SOURCES_MAX))),
            )
            for _ in self.sizes
        ]

    def follow(self, rows: list[Row], *, uses_pool: bool) -> None:
        """Promise room to the Files to keep that are absent and not offered."""
        self.rows, self.uses_pool = rows, uses_pool
        self.promised = {
            file
            for file, state in enumerate(self.states)
            if rows[file].destination is Destination.TIER
            if state[0] is ReplicaState.ABSENT and file not in self.offers
        }

    def set_capacity(self, place: int, size: int) -> None:
        """Credit may be given, and taken back below what is held."""
        room = self.accounts[place]
        room.capacity = size
        room.taken_when_shrunk = room.used + room.reserved

    def shrink(self, place: int) -> None:
        """Set the capacity to the bytes that it holds."""
        room = self.accounts[place]
        self.set_capacity(place, room.used + room.reserved)

    def retire(self, place: int) -> bool:
        """Drop all that it holds; reservations are freed by and by."""
        room = self.accounts[place]
        before, room.in_service, room.used = room.in_service, False, 0
        return before

    def spare_bytes(self) -> int:
        """The bytes that are free and not promised."""
        free = sum(room.free for room in self.accounts[:TIERS])
        return free - sum(map(self.need, self.promised))

    # -- beginnings -------------------------------------------------------------------

    def begin(self, file: int, kind: int) -> tuple[Verdict, Order | None]:
        """The verdict on a requested File."""
        state, _, reason = self.states[file]
        if state is ReplicaState.READY:
            return Verdict.READY, None
        # A hint may start a File that did not fit in any Tier.
        passing = {Reason.NONE} | ({Reason.NO_ROOM} if kind & OrderKind.HINT else set())
        if state is not ReplicaState.ABSENT or reason not in passing:
            return Verdict.NOTHING, None
        if self.is_stopping:
            return Verdict.NOTHING, None
        if file in self.written:
            refused = self._refuse(file, Reason.CHANGED)
            return (Verdict.WRITTEN, None) if file in self.offers else refused
        if self.is_large(file):
            kind |= OrderKind.BACKGROUND
        if file in self.offers:
            tier = self.offers.pop(file)
            return self._launch(file, tier, kind | OrderKind.ADOPT)
        return self._begin_copy(file, kind)

    def _begin_copy(self, file: int, kind: int) -> tuple[Verdict, Order | None]:
        asked, hinted = bool(kind & OrderKind.ASKED), bool(kind & OrderKind.HINT)
        nowhere = self.rows[file].destination is Destination.NOWHERE
        makes = (asked or hinted) and self._makes_room(file)
        if nowhere and not (hinted or makes):
            if self._can_evict(file):
                return Verdict.PASSED, None
            return self._refuse(file, Reason.NO_ROOM)
        if not asked and not nowhere and not self._may_fill(file):
            self.tally["passed_over"] += 1
            return Verdict.PASSED, None
        peer = NO_PEER if nowhere else self._source(file)
        pooled = (hinted or (asked and self.uses_pool)) and not makes
        place = self._reserve(file, peer, pooled=pooled, makes=makes)
        if place is not None:
            return self._launch(file, place, kind, peer)
        if makes or hinted:
            return Verdict.EVICT if makes else Verdict.POOL, None
        if not asked and self._can_evict(file):
            return Verdict.PASSED, None
        pool = self.accounts[POOL]
        fits = pool.in_service and self.need(file) <= pool.capacity
        if not self.uses_pool or (asked and not fits):
            return self._refuse(file, Reason.NO_ROOM)
        waits = asked and not self.is_large(file)
        return (Verdict.POOL if waits else Verdict.PASSED), None

    def _refuse(self, file: int, reason: Reason) -> tuple[Verdict, None]:
        self.states[file] = ReplicaState.ABSENT, 0, reason
        return Verdict.NOTHING, None

    def _source(self, file: int) -> int:
        """The first peer that may be asked, else the origin."""
        usable = [one for one in self.rows[file].sources if self.peers[one][0]]
        return usable[0] if usable else NO_PEER

    def _may_fill(self, file: int) -> bool:
        """Whether the first peer that is not known to have left can be asked."""
        there = [one for one in self.rows[file].sources if not self.peers[one][1]]
        return not there or self.peers[there[0]][0]

    def _can_evict(self, file: int) -> bool:
        """Whether a Tier would have room if others left it."""
        tiers = [self.accounts[tier] for tier in self.evicts]
        return any(t.in_service and self.need(file) <= t.capacity for t in tiers)

    def _makes_room(self, file: int) -> bool:
        """Whether others are evicted: for Files kept by this node, or by no node."""
        here = self.rows[file].destination in (Destination.TIER, Destination.NOWHERE)
        return here and self._can_evict(file)

    def _reserve(
        self, file: int, peer: int, *, pooled: bool, makes: bool
    ) -> int | None:
        need, destination = self.need(file), self.rows[file].destination
        place = None
        if destination is Destination.TIER or makes:
            self.promised.discard(file)
            place = self._first_free(need)
        elif peer == NO_PEER or destination is Destination.SPARE:
            place = self._first_spare(need)
        if place is None and pooled:
            pool = self.accounts[POOL]
            ahead = pool.capacity // 8 if self.is_large(file) else 0
            place = POOL if need + ahead <= pool.free else None
        if place is not None:
            self.accounts[place].reserved += need
        return place

    def _first_free(self, need: int) -> int | None:
        free = [tier for tier in range(TIERS) if need <= self.accounts[tier].free]
        return free[0] if free else None

    def _first_spare(self, need: int) -> int | None:
        return self._first_free(need) if need <= self.spare_bytes() else None

    def _launch(
        self, file: int, place: int, kind: int, peer: int = NO_PEER
    ) -> tuple[Verdict, Order]:
        self.states[file] = ReplicaState.STAGING, place, 0
        self.generations[file] += 1
        word = self.generations[file] * GENERATION + self.word(file)
        order = Order(file, place, int(kind), peer, word)
        self.flights[file] = order
        background = bool(kind & OrderKind.BACKGROUND)
        self.tally["background_transfers" if background else "demand_transfers"] += 1
        if kind & OrderKind.HINT:
            self.tally["hinted_files"] += 1
            self.tally["hinted_bytes"] += self.sizes[file]
        owner = self.rows[file].sources[:1]
        if owner and not kind & OrderKind.ADOPT:
            self.tally["origin_instead_files"] += peer == NO_PEER
            self.tally["rehomed_files"] += peer not in (NO_PEER, owner[0])
        return Verdict.BEGUN, order

    def offer(self, file: int, tier: int) -> bool:
        """A Replica of an earlier job has its room until it is verified."""
        if file in self.offers or self.need(file) > self.accounts[tier].free:
            return False
        self.accounts[tier].reserved += self.need(file)
        self.offers[file] = tier
        self.promised.discard(file)
        return True

    def withdraw(self, file: int) -> int | None:
        """Nobody has asked for it."""
        tier = self.offers.pop(file, None)
        if tier is not None:
            self.accounts[tier].reserved -= self.need(file)
        return tier

    def move(self, order: Order) -> Order:
        """Out of the Pool, into what is spare."""
        place = self._first_spare(self.need(order.file))
        if not self.is_live(order) or place is None:
            return order
        self.accounts[place].reserved += self.need(order.file)
        self.accounts[order.tier].reserved -= self.need(order.file)
        self.states[order.file] = ReplicaState.STAGING, place, 0
        moved = order._replace(tier=place)
        self.flights[order.file] = moved
        return moved

    # -- ends -------------------------------------------------------------------------

    def publish(self, order: Order) -> int:
        """A verified copy is READY, unless its Tier or its generation has passed."""
        file, room = order.file, self.accounts[order.tier]
        if not room.in_service:
            return ENXIO
        if not self.is_live(order):
            return ECANCELED
        del self.flights[file]
        came = 0 if order.peer == NO_PEER else 1
        self.states[file] = ReplicaState.READY, order.tier, came
        room.reserved -= self.need(file)
        room.used += self.need(file)
        self._count_published(order)
        return 0

    def _count_published(self, order: Order) -> None:
        size = self.sizes[order.file]
        what = "staged" if order.peer == NO_PEER else "peer"
        if order.kind & OrderKind.ADOPT:
            what = "adopted"
        if what == "peer":
            files, total = self.fetched[order.peer]
            self.fetched[order.peer] = files + 1, total + size
        for kind in [what, "transit"] if order.tier == POOL else [what]:
            self.tally[f"{kind}_files"] += 1
            self.tally[f"{kind}_bytes"] += size

    def fail(self, order: Order, reason: Reason, *, promise: bool) -> bool:
        """Make it absent, and promise room again to a File to keep."""
        if not self.is_live(order):
            return False
        file = order.file
        del self.flights[file]
        self.states[file] = ReplicaState.ABSENT, 0, reason
        self.accounts[order.tier].reserved -= self.need(file)
        if promise and self.rows[file].destination is Destination.TIER:
            self.promised.add(file)
        elif promise:
            self.promised.discard(file)
        return True

    # -- what Python does to states ---------------------------------------------------

    def lose(self, file: int) -> int:
        """Its Tier has failed."""
        self.states[file] = ASKABLE
        return self.word(file)

    def evict(self, file: int) -> int | None:
        """It begins to leave; the Tier, or None if it is not READY."""
        state, tier, _ = self.states[file]
        if state is not ReplicaState.READY:
            return None
        self.states[file] = ReplicaState.EVICTING, tier, 0
        return tier

    def remove(self, file: int, tier: int, reason: Reason) -> int:
        """Remove its name, and free its room."""
        self.states[file] = ReplicaState.ABSENT, 0, reason
        room = self.accounts[tier]
        room.used -= self.need(file) * room.in_service
        return self.word(file)

    def retry(self, file: int) -> bool:
        """Let a File that is absent for a passing Reason be requested again."""
        state, _, reason = self.states[file]
        passes = reason in (Reason.NO_ROOM, Reason.BUSY)
        if state is ReplicaState.ABSENT and passes:
            self.states[file] = ASKABLE
        return state is ReplicaState.ABSENT and passes


def unconfirmed(order: Order) -> Order:
    """An order as it is whether or not its File is confirmed."""
    return order._replace(word=order.word & ~CONFIRMED)


def _number(order: Order) -> int:
    """The generation of an order."""
    return (order.word & ~CONFIRMED) // GENERATION


def rows_of(rows: list[Row], first: npt.NDArray[np.uint64]) -> npt.NDArray[Any]:
    """The rows as the table takes them: a File goes by its first one."""
    found = np.zeros(int(first[-1]), TABLE_ROW)
    found["sources"] = NO_SOURCE
    for row, place in zip(rows, first[:-1].astype(int).tolist(), strict=True):
        found["destination"][place] = row.destination
        found["sources"][place, : len(row.sources)] = row.sources
    return found
