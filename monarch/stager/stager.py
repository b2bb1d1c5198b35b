"""Orders Transfers: what programs ask for first, then background fill."""

import logging
from collections.abc import Mapping, Sequence
from typing import Final

from monarch.metrics import AgentCounters
from monarch.native import OrderKind, Reason
from monarch.stager.adoption import Adoption
from monarch.stager.capacity import Account, Storage
from monarch.stager.dispatch import Dispatch, Routes
from monarch.stager.eviction import Eviction
from monarch.stager.fetches import Fetches
from monarch.stager.fill import Fill, StagerSettings
from monarch.stager.node_share import Share
from monarch.stager.planner import Planner
from monarch.stager.policy import Policy
from monarch.stager.pool import Pool
from monarch.stager.postponed import Postponed
from monarch.stager.removal import Losses, Removal
from monarch.stager.replicas import Replicas
from monarch.stager.sources import Sources
from monarch.stager.transfer import Engine, InFlight, NoReceiver, Receiver
from monarch.stager.transfer_ends import Ends, Outcomes
from monarch.tiers.probe import Finding

FILL_STEP: Final = 8
FILL_STEPS_MAX: Final = 16

log = logging.getLogger("monarch.stager")


class Stager:
    """Carries out the Policy of this node by Transfers, one per File at most.

    It begins with the Policy of a node that works alone; `join` gives it another one.

    Attributes:
        replicas: the states of all Files.
        adoption: the Replicas of earlier jobs that are still to be verified.
        losses: what programs could not open, and Tiers that fail.
    """

    def __init__(
        self,
        replicas: Replicas,
        engine: Engine,
        storage: Storage,
        settings: StagerSettings,
        counters: AgentCounters,
    ) -> None:
        self.replicas = replicas
        self.storage = storage
        self.adoption = Adoption()
        self._engine = engine
        self._ledger = storage.ledger
        self._settings = settings
        self._counters = counters
        self._stopping = False
        self._fill = Fill(settings, replicas.sizes)
        self._in_flight = running = InFlight(self._fill, counters)
        self._removal = removal = Removal(replicas, storage, engine, counters, running)
        self._eviction = Eviction(replicas, storage, removal, counters, running)
        self._ends = Ends(replicas, storage, removal, running, counters)
        self.losses = Losses(removal, replicas, running, self._restage, self._refill)
        clock = settings.clock
        self._postponed = Postponed(replicas, running, clock)
        self._pool = Pool(replicas, storage, removal, counters, clock)
        alone = Sources(Policy.alone(len(replicas.sizes)), counters, clock)
        routes = self._make_routes(alone, NoReceiver())
        self._dispatch = Dispatch(engine, replicas, running, self.adoption, routes)
        self._outcomes = Outcomes(
            self._ends, self.losses, self._postponed, self._pool, self._dispatch
        )
        self._fill.start(alone.policy)

    def __repr__(self) -> str:
        return f"<Stager {len(self._in_flight)} in flight, {self._fill!r}>"

    # -- state --------------------------------------------------------------------

    @property
    def in_flight(self) -> int:
        """How many Transfers run or wait in the engine."""
        return len(self._in_flight)

    @property
    def policy(self) -> Policy:
        """What this node does with each File."""
        return self._dispatch.sources.policy

    @property
    def idle(self) -> bool:
        """Whether nothing is left to do until a program asks."""
        return self._fill.is_done and not (self.in_flight or self.adoption.tiers)

    @property
    def hangs(self) -> bool:
        """Whether all that is under way hangs at an origin that does not answer."""
        return 0 < self.in_flight <= self._fill.stuck[0]

    @property
    def share(self) -> Share:
        """What this node keeps, and what it lacks of that, at this moment."""
        return Share.of(self.replicas, self.policy, len(self.storage.tiers))

    @property
    def failures(self) -> Mapping[int, str]:
        """What went wrong with the first Files that failed, by number."""
        return self._ends.failures

    @property
    def changed(self) -> Sequence[int]:
        """Files whose Origin differs from the Catalog."""
        return self._ends.changed

    @property
    def wake_s(self) -> float | None:
        """After how long a turn is due even if nothing happens; None: none is."""
        pool_s, postponed_s = self._pool.wake_s, self._postponed.wake_s
        if pool_s is None or postponed_s is None:
            return postponed_s if pool_s is None else pool_s
        return min(pool_s, postponed_s)

    @property
    def pool_account(self) -> Account | None:
        """The account of the Pool; None while the Policy does not use it."""
        return self._ledger.pool if self.policy.uses_pool else None

    # -- commands -----------------------------------------------------------------

    def offer(self, file: int, tier: int) -> bool:
        """Adopt a Replica of an earlier job; False if there is no room for it."""
        size_bytes = self.replicas.size_of(file)
        if not self._ledger.reserve_in(tier, size_bytes):
            return False
        self.adoption.tiers[file] = tier
        return True

    def join(self, sources: Sources, receiver: Receiver) -> None:
        """Follow the Policy of a cluster from now on.

        Args:
            receiver: fetches Files from peers into the Tiers of this node.
        """
        assert not self.policy.uses_pool, "a node joins once"
        routes = self._make_routes(sources, receiver)
        self._dispatch.follow(routes)
        for file in routes.planner.revise(self.adoption):
            self.refuse_adoption(file)
        self._fill.start(sources.policy)

    def refuse_adoption(self, file: int) -> None:
        """Give up the Replica of an earlier job."""
        tier = self.adoption.take(file)
        if tier is not None:
            self._ledger.release(tier, self.replicas.size_of(file))
            self._removal.unlink(file, tier)

    def relieve(self, used_bytes: int, limit_bytes: int) -> int:
        """Evict some RAM Replicas if memory is short; return the bytes given back."""
        # What peers hold too may still come through the Pool, which is small.
        comes_back = self.policy.uses_pool
        reason = Reason.NONE if comes_back else Reason.MEMORY
        return self._eviction.relieve(used_bytes, limit_bytes, reason)

    def note_found(self, file: int, tier: int, finding: Finding) -> None:
        """Handle what was found of a Replica that a program could not open."""
        try:
            self.losses.note_found(file, tier, finding)
        except Exception as error:
            self._survive(f"loss failed file={file}", error)
        self._dispatch.submit()

    def pause_fetching(self, *, paused: bool) -> None:
        """Fetch nothing unasked while no program runs on this node."""
        self._fill.paused = paused

    def refill(self) -> None:
        """Let fill look again at every File that this node keeps."""
        self._fill.start(self.policy)

    def turn(self) -> bool:
        """Handle what the engine and peers have done, and order what follows from it.

        Returns:
            Whether there is more to do at once, without waiting for the engine.
        """
        for step in (
            self._check_roots,
            self._end_transfers,
            self._end_fetches,
            self._serve_requests,
            self._serve_queue,
            self._try_postponed,
            self._fill_up,
        ):
            try:
                step()
            except Exception as error:
                self._survive("turn of the stager failed", error)
        self._dispatch.submit()
        return self._fills() and self._fill.next(len(self._in_flight))[1] > 0

    def stop(self) -> None:
        """Order nothing more; end at once what has not been taken."""
        self._stopping = True
        files = self._dispatch.cancel()
        self._pool.close()
        self._outcomes.stop(self._in_flight[file] for file in files)

    def abandon(self) -> None:
        """Refuse all that is under way; engine and receiver have ended."""
        for transfer in self._in_flight.all():
            if self.replicas.ready_tier(transfer.file) is not None:
                self._outcomes.published(transfer)
            else:
                self._ends.drop(transfer, Reason.STOPPING)
        self._pool.close()
        self._in_flight.note_idle()

    def _make_routes(self, sources: Sources, receiver: Receiver) -> Routes:
        """Return how Transfers go by the Policy of these Sources."""
        replicas, settings = self.replicas, self._settings
        ledger, counters = self.storage.ledger, self._counters
        return Routes(
            sources,
            Planner(sources, replicas, ledger, self._pool, settings),
            Fetches(receiver, sources, replicas, settings, counters),
        )

    # -- requests ---------------------------------------------------------------

    def _serve_requests(self) -> None:
        if self._stopping:
            return
        for file in self._engine.requests():
            try:
                self._serve(file)
            except Exception as error:
                self._survive(f"request failed file={file}", error)
        self._dispatch.submit()

    def _serve(self, file: int) -> None:
        if not self.replicas.is_absent(file):
            tier = self.replicas.ready_tier(file)
            if tier is not None:
                # Looking for it may take as long as a broken medium does: not here.
                self.losses.doubt(file, tier)
        elif self._hangs(file):
            self._postponed.refuse(file)
        else:
            self._dispatch.order(file, self._demand(file))

    def _demand(self, file: int) -> OrderKind:
        """No program waits for a large File, so it yields to those they wait for."""
        large = self._settings.is_large(self.replicas.size_of(file))
        return OrderKind.BACKGROUND if large else OrderKind.DEMAND

    def _serve_queue(self) -> None:
        """Make room in the Pool, and order Files that have waited for it."""
        if self._stopping:
            return
        for file in self._pool.make_room():
            self._dispatch.order(file, self._demand(file))

    # -- origins that do not answer, and what the node lacks -----------------------

    def _check_roots(self) -> None:
        health = self._engine.health()
        stuck = health.stuck_background
        self._fill.stuck = (health.stuck_demand + stuck, stuck)
        if self._postponed.note_stalled(health.stalled):
            self.refill()

    def _hangs(self, file: int) -> bool:
        """Return whether a File would have to be read from an origin that hangs."""
        stalled = self._postponed.is_stalled(file)
        return stalled and self._dispatch.sources.source(file) is None

    def _try_postponed(self) -> None:
        if self._stopping:
            return
        for file in self._postponed.probes():
            self._dispatch.order(file, self._demand(file))
        for file in self._postponed.due():
            self._dispatch.order(file, OrderKind.BACKGROUND, asked=False)

    # -- background fill --------------------------------------------------------

    def _fills(self) -> bool:
        return not self._fill.is_done and not self._stopping

    def _fill_up(self) -> None:
        if self._stopping:
            return
        self._adopt()
        if self._fill.is_done and self._dispatch.sources.has_news():
            self._fill.start_fetching(self.policy)
        for _ in range(FILL_STEPS_MAX):
            order, room = self._fill.next(len(self._in_flight))
            if room <= 0 or not self._fills():
                return
            for file in order.take(min(FILL_STEP, room), self._is_due):
                self._dispatch.order(file, OrderKind.BACKGROUND, asked=False)

    def _is_due(self, file: int) -> bool:
        return self.replicas.is_due(file) and not self._hangs(file)

    def _adopt(self) -> None:
        while (file := self.adoption.next_file()) is not None:
            if self._fill.room(len(self._in_flight)) <= 0:
                return
            self._dispatch.order(file, OrderKind.BACKGROUND, asked=False)
            self.refuse_adoption(file)  # if it was not ordered, it is written

    # -- ends of Transfers ------------------------------------------------------

    def _end_transfers(self) -> None:
        for completion in self._engine.completions():
            try:
                self._outcomes.end(completion)
            except Exception as error:
                self._survive(f"end failed file={completion.file}", error)

    def _end_fetches(self) -> None:
        for arrival in self._dispatch.arrivals():
            try:
                self._outcomes.end_fetch(arrival)
            except Exception as error:
                self._survive(f"arrival failed file={arrival.file}", error)
        self._in_flight.note_idle()

    # -- losses -------------------------------------------------------------------

    def _restage(self, file: int, again: bool) -> None:
        self._pool.dropped(file)
        if again:
            self._dispatch.order(file, OrderKind.DEMAND)

    def _refill(self, tier: int) -> None:
        if tier == self._pool.number:
            self._pool.clear()
        else:
            self.refill()

    def _survive(self, what: str, error: Exception) -> None:
        """Log and count an error that must not stop the agent."""
        self._counters.agent_errors += 1
        log.error("%s", what, exc_info=error)
