"""Turns requests into Transfers and their ends into states: decides by the Ledger."""

import errno
import logging
import os
import time
from collections.abc import Sequence

from monarch.metrics import Tally
from monarch.native import (
    Arrival,
    Completion,
    Order,
    OrderKind,
    Reason,
    Step,
)
from monarch.placement import FillOrder
from monarch.stager.adoption import Adoption
from monarch.stager.capacity import Ledger, Outcome, Room, Verdict
from monarch.stager.fill import Background, FillSettings
from monarch.stager.losses import Losses
from monarch.stager.planner import Exchange, Fate, Sharing
from monarch.stager.postponed import Postponed
from monarch.stager.removal import Shelf
from monarch.stager.replicas import Event, Replicas
from monarch.stager.transfer import Engine, Flight
from monarch.tiers import Tier
from monarch.tiers.probe import Finding

FILL_STEP = 8
FILL_STEPS_MAX = 16

_AT_TIER = frozenset({Step.CREATE, Step.WRITE, Step.VERIFY, Step.PUBLISH})

log = logging.getLogger("monarch.stager")


class Stager:
    """Owns the Ledger and every state but READY; single flight by the STAGING state."""

    def __init__(
        self,
        replicas: Replicas,
        engine: Engine,
        tiers: Sequence[Tier],
        fill: FillSettings,
        tally: Tally,
    ) -> None:
        self.replicas = replicas
        self.engine = engine
        self.tiers = tiers
        self.tally = tally
        self.ledger = Ledger([tier.capacity_bytes for tier in tiers])
        self.shelf = Shelf(replicas, engine, tiers, self.ledger, tally)
        self.adoption = Adoption()
        self.changed: list[int] = []
        self._background = Background(fill, replicas.sizes)
        self._exchange: Exchange | None = None
        self._flying: dict[int, Flight] = {}
        self.shelf.flying = self._flying
        self.postponed = Postponed(replicas, self._flying)
        self.losses = Losses(self.shelf, self._renew, self._refill)
        self._waiting: list[Order] = []
        self._busy_since_ns = 0
        self._stopping = False

    def __repr__(self) -> str:
        return f"<Stager {len(self._flying)} in flight, {self._background!r}>"

    @property
    def in_flight(self) -> int:
        """How many Transfers run or wait in the engine."""
        return len(self._flying)

    @property
    def idle(self) -> bool:
        """Whether nothing is left to do until a program asks."""
        waits = self._flying or self.adoption.tiers
        return self._background.is_done and not waits

    @property
    def wake_s(self) -> float | None:
        """After how long a turn is due even if nothing happens; None: none is."""
        pool = None if self._exchange is None else self._exchange.pool.wake_s
        waits = (pool, self.postponed.wake_s)
        return min((wait for wait in waits if wait is not None), default=None)

    def share(self, sharing: Sharing) -> None:
        """Go on as one of several nodes; before this, a node works alone."""
        assert self._exchange is None
        self._exchange = Exchange(sharing, self.shelf, self._background)
        self._background.clock = self.postponed.clock = sharing.sources.clock
        self._exchange.admit(self.adoption, self._refuse_adoption)
        self._exchange.fill(self._background)

    def turn(self) -> bool:
        """Take what the engine and peers have to tell and order what follows from it.

        Returns:
            Whether there is more to do at once, without waiting for the engine.
        """
        for step in (
            self._look_at_roots,
            self._end_transfers,
            self._end_fetches,
            self._serve_requests,
            self._pass_on,
            self._try_postponed,
            self._fill_up,
        ):
            try:
                step()
            except Exception as error:
                self._survive("turn of the stager failed", error)
        self._submit()
        return self._fills() and self._background.next(len(self._flying))[1] > 0

    def rest(self, *, rests: bool) -> None:
        """Fetch nothing unasked while no program runs on this node."""
        self._background.rests = rests

    def stop(self) -> None:
        """Order nothing more; what nobody has begun ends at once."""
        self._stopping = True
        files = [order.file for order in self._waiting]
        self._waiting.clear()
        if self._exchange is not None:
            files += self._exchange.cancel()
            self._exchange.pool.close()
        for file in files:
            self._drop(self._flying[file])

    def abandon(self) -> None:
        """Tell all who wait that nothing will come; engine and receiver have ended."""
        for flight in list(self._flying.values()):
            if self.replicas.ready_tier(flight.file) is not None:
                self._land(flight)
                self._note_published(flight)
            else:
                self._drop(flight)
        if self._exchange is not None:
            self._exchange.pool.close()
        self._note_busy()

    # -- requests ---------------------------------------------------------------

    def _serve_requests(self) -> None:
        if self._stopping:
            return
        for file in self.engine.requests():
            try:
                self._serve(file)
            except Exception as error:
                self._survive(f"request failed file={file}", error)
        self._submit()

    def _serve(self, file: int) -> None:
        if not self.replicas.is_absent(file):
            tier = self.replicas.ready_tier(file)
            if tier is not None:
                # Looking for it may take as long as a broken medium does: not here.
                self.losses.doubted[file] = tier
        elif self._hangs(file):
            self.postponed.refuse(file)
        else:
            self._order(file, self._demand(file))

    def _demand(self, file: int) -> OrderKind:
        """No program waits for a large File, so it yields to those they wait for."""
        large = self._background.is_large(file)
        return OrderKind.BACKGROUND if large else OrderKind.DEMAND

    def _order(self, file: int, kind: OrderKind, *, asked: bool = True) -> None:
        """Reserve room and send for the File, or say why not."""
        if file in self._flying:
            return
        if self.replicas.is_written(file):
            self.replicas.change(file, Event.REFUSED, reason=Reason.CHANGED)
            return
        flight = self._plan(file, kind, asked=asked)
        if flight is None:
            return
        # Nobody needs to be woken: those who wait go on waiting for READY.
        self.replicas.change(file, Event.ORDERED, tier=flight.tier)
        if not self._flying:
            self._busy_since_ns = time.monotonic_ns()
        self._flying[file] = flight
        self._background.begin(flight)
        if flight.is_background:
            self.tally.background_transfers += 1
        else:
            self.tally.demand_transfers += 1
        self._send(flight)

    def _plan(self, file: int, kind: OrderKind, *, asked: bool) -> Flight | None:
        tier = self.adoption.take(file)
        if tier is not None:
            return Flight(file, tier, OrderKind(kind | OrderKind.ADOPT), asked)
        if self._exchange is not None:
            return self._exchange.plan(file, kind, asked=asked)
        tier = self.ledger.reserve(self.replicas.size_of(file))
        if tier is None:
            self.replicas.change(file, Event.REFUSED, reason=Reason.NO_ROOM)
            return None
        return Flight(file, tier, kind, asked)

    def _send(self, flight: Flight) -> None:
        if flight.peer is None:
            self._waiting.append(Order(flight.file, flight.tier, flight.kind))
        else:
            assert self._exchange is not None
            self._exchange.send(flight)

    def _submit(self) -> None:
        if self._waiting:
            taken = self.engine.submit(self._waiting)
            del self._waiting[:taken]
        if self._exchange is not None:
            self._exchange.submit()

    def _pass_on(self) -> None:
        """Let the transit pool move, and Files in that have waited for room in it."""
        if self._exchange is None or self._stopping:
            return
        for file in self._exchange.pool.turn():
            self._order(file, self._demand(file))

    # -- origins that do not answer, and what the node lacks -----------------------

    def _look_at_roots(self) -> None:
        health = self.engine.health()
        stuck = health.stuck_background
        self._background.stuck = (health.stuck_demand + stuck, stuck)
        if self.postponed.note_stalled(health.stalled):
            self._begin_fill()

    def _hangs(self, file: int) -> bool:
        """Return whether a File would have to be read from an origin that hangs."""
        if not self.postponed.is_stalled(file):
            return False
        exchange = self._exchange
        return exchange is None or exchange.sources.source(file) is None

    def _try_postponed(self) -> None:
        if self._stopping:
            return
        for file in self.postponed.probes():
            self._order(file, self._demand(file))
        for file in self.postponed.due():
            self._order(file, OrderKind.BACKGROUND, asked=False)

    # -- background fill --------------------------------------------------------

    def _fills(self) -> bool:
        return not self._background.is_done and not self._stopping

    def _fill_up(self) -> None:
        if self._stopping:
            return
        self._adopt()
        if self._background.is_done and self._exchange is not None:
            self._exchange.refill(self._background)
        for _ in range(FILL_STEPS_MAX):
            order, room = self._background.next(len(self._flying))
            if room <= 0 or not self._fills():
                return
            for file in order.take(min(FILL_STEP, room), self._is_due):
                self._order(file, OrderKind.BACKGROUND, asked=False)

    def _is_due(self, file: int) -> bool:
        return self.replicas.is_due(file) and not self._hangs(file)

    def _begin_fill(self) -> None:
        """Let fill look at every File again."""
        if self._exchange is None:
            every = FillOrder(range(len(self.replicas.sizes)))
            self._background.begin_with(every, FillOrder(range(0)))
        else:
            self._exchange.fill(self._background)

    def _adopt(self) -> None:
        room = self._background.room
        while room(len(self._flying)) > 0 and (file := self.adoption.any()) is not None:
            self._order(file, OrderKind.BACKGROUND, asked=False)
            tier = self.adoption.take(file)
            if tier is not None:
                self._refuse_adoption(file, tier)

    # -- ends of Transfers ------------------------------------------------------

    def _end_transfers(self) -> None:
        for completion in self.engine.completions():
            try:
                self._end(completion)
            except Exception as error:
                self._survive(f"end failed file={completion.file}", error)
        self._note_busy()

    def _end(self, done: Completion) -> None:
        flight = self._flying[done.file]
        self.tally.origin_read_bytes += done.bytes
        self.tally.transfer_ns += done.ns
        if done.status == 0:
            self._land(flight)
            self._note_published(flight)
        else:
            self._fail(flight, done.step, done.status)

    def _end_fetches(self) -> None:
        if self._exchange is None:
            return
        for arrival in self._exchange.receiver.arrivals():
            try:
                self._arrive(arrival, self._exchange)
            except Exception as error:
                self._survive(f"arrival failed file={arrival.file}", error)
        self._note_busy()

    def _arrive(self, arrival: Arrival, exchange: Exchange) -> None:
        flight = self._flying[arrival.file]
        self.tally.transfer_ns += arrival.ns
        fate = exchange.judge(flight, arrival)
        if fate is Fate.ARRIVED:
            self._land(flight)
            self._note_published(flight)
        elif fate is Fate.OURS:
            self._fail(flight, arrival.step, arrival.status)
        elif self._stopping:
            self._drop(flight)
        elif fate is Fate.NOWHERE:
            # Programs that came to wait for it meanwhile are woken, and ask themselves.
            self._drop(flight, Reason.NONE)
            exchange.allotment.owe(flight.file)
        else:
            exchange.redirect(flight, fate)
            self._send(flight)

    def _land(self, flight: Flight) -> None:
        del self._flying[flight.file]
        self._background.end(flight)

    def _drop(self, flight: Flight, reason: Reason = Reason.STOPPING) -> None:
        """End a Transfer that nobody carries on."""
        self._land(flight)
        self.replicas.change(flight.file, Event.FAILED, reason=reason)
        self.ledger.release(flight.tier, self.replicas.size_of(flight.file))

    def _note_published(self, flight: Flight) -> None:
        size, tally = self.replicas.size_of(flight.file), self.tally
        self.ledger.failures.pop(flight.file, None)
        self.postponed.succeeded(flight.file)
        self.ledger.settle(flight.tier, size)
        if not self.ledger.account(flight.tier).in_service:
            self.shelf.leave(flight.file, flight.tier)
            return
        if flight.is_adoption:
            tally.adopted_files += 1
            tally.adopted_bytes += size
        elif flight.peer is not None:
            tally.peer_files += 1
            tally.peer_bytes += size
        else:
            tally.staged_files += 1
            tally.staged_bytes += size
        if self._exchange is not None and flight.tier == self._exchange.pool.number:
            self._exchange.pool.published(flight.file)

    def _fail(self, flight: Flight, step: Step, status: int) -> None:
        self._land(flight)
        adoption, file, tier = flight.is_adoption, flight.file, flight.tier
        taken = status == -errno.EEXIST
        at_tier = step in _AT_TIER or (adoption and step != Step.STAT)
        # Somebody has written to the File: nothing is wrong with the Tier.
        foreign = taken or (status == -errno.ESTALE and not adoption)
        outcome = Outcome(status, at_tier and not foreign, adoption)
        verdict, room = self.ledger.judge(file, tier, outcome)
        self._note_failed(flight, step, status)
        self.ledger.release(tier, self.replicas.size_of(file))
        if adoption or taken:
            self.shelf.unlink(file, tier)
        self._mend_tier(tier, room, status)
        self._mark_failed(flight, verdict)

    def _note_failed(self, flight: Flight, step: Step, status: int) -> None:
        self.tally.transfers_failed += 1
        if flight.is_adoption:
            self.tally.adoptions_refused += 1
        elif status == -errno.EBADMSG:
            self.tally.copies_refused += 1
        log.warning(
            "transfer failed file=%d tier=%s step=%s error=%s",
            flight.file,
            self.shelf.places[flight.tier].name,
            step.name.lower(),
            os.strerror(-status),
        )

    def _mend_tier(self, tier: int, room: Room, status: int) -> None:
        if room is Room.SHRUNK:
            self.tally.tiers_full += 1
            self.ledger.shrink(tier)
            log.warning("tier is full tier=%s", self.shelf.places[tier].name)
        elif room is Room.LOST:
            self.losses.withdraw(tier, os.strerror(-status))

    def _mark_failed(self, flight: Flight, verdict: Verdict) -> None:
        file, reason = flight.file, Reason.NONE
        if verdict is Verdict.CHANGED:
            reason = Reason.CHANGED
            self.replicas.mark_written(file)
            self.tally.files_changed += 1
            self.changed.append(file)
        elif verdict is Verdict.GIVEN_UP:
            reason = Reason.ERROR
        elif self._exchange is not None:
            self._exchange.allotment.owe(file)
        if verdict is Verdict.LATER and not self._stopping:
            self.postponed.put_off(file)
            return
        if verdict is Verdict.ANEW and not self._stopping:
            self.replicas.change(file, Event.RESTARTED)
            kind = OrderKind(flight.kind & OrderKind.BACKGROUND)
            self._order(file, kind, asked=flight.asked)
            return
        self.replicas.change(file, Event.FAILED, reason=reason)

    def _note_busy(self) -> None:
        if self._busy_since_ns and not self._flying:
            self.tally.busy_ns += time.monotonic_ns() - self._busy_since_ns
            self._busy_since_ns = 0

    # -- losses -------------------------------------------------------------------

    def note_found(self, file: int, tier: int, finding: Finding) -> None:
        """Note what was found of a Replica that a program could not open."""
        try:
            self.losses.note_found(file, tier, finding)
        except Exception as error:
            self._survive(f"loss failed file={file}", error)
        self._submit()

    def _renew(self, file: int, again: bool) -> None:
        if self._exchange is not None:
            self._exchange.pool.dropped(file)
        if again:
            self._order(file, OrderKind.DEMAND)

    def _refill(self, tier: int) -> None:
        if self._exchange is not None and tier == self._exchange.pool.number:
            self._exchange.pool.clear()
        else:
            self._begin_fill()

    def _refuse_adoption(self, file: int, tier: int) -> None:
        """Give up a Replica of an earlier job whose room others need."""
        self.ledger.release(tier, self.replicas.size_of(file))
        self.shelf.unlink(file, tier)

    def _survive(self, what: str, error: Exception) -> None:
        """Log and count what must not stop the agent."""
        self.tally.agent_errors += 1
        log.error("%s", what, exc_info=error)
