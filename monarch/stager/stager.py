"""Decides the cases that the data plane cannot, and sets the rows of its table."""

import logging
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from monarch.metrics import AgentCounters
from monarch.native import Account, Reason, Step
from monarch.placement import Units
from monarch.stager.capacity import Storage, footprint
from monarch.stager.dispatch import Dispatch, Routes
from monarch.stager.eviction import Eviction
from monarch.stager.fetches import Fetches
from monarch.stager.fill import Fill, ReadingAhead, StagerSettings
from monarch.stager.node_share import Share
from monarch.stager.policy import Policy
from monarch.stager.postponed import Postponed
from monarch.stager.removal import Losses, Removal
from monarch.stager.replicas import Replicas
from monarch.stager.sources import Sources
from monarch.stager.transfer import Engine, NoReceiver, Receiver, Transfer
from monarch.stager.transfer_ends import Ends, Outcomes
from monarch.tiers.probe import Finding

MEMORY_REASONS: Final = {True: Reason.NONE, False: Reason.MEMORY}
"""Why an evicted File is absent: Files of peers may return through the Pool."""

log = logging.getLogger("monarch.stager")


class Stager:
    """Carries out the Policy of this node by the data plane, one Transfer per File.

    It begins with the Policy of a node that works alone; `join` replaces it.

    Attributes:
        replicas: the states of all Files.
        losses: Replicas that programs could not open, and Tiers that fail.
        reading_ahead: accepts hints of the Files that programs will open.
        table: the staging table of the data plane.
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
        self.table = table = storage.table
        self._engine = engine
        self._settings = settings
        self._counters = counters
        self._started = False
        self._stopping = False
        self._stuck = 0
        self._fill = Fill(engine, settings)
        self._removal = removal = Removal(replicas, storage, engine, counters)
        self._eviction = eviction = Eviction(
            replicas, storage, removal, engine, counters
        )
        self.reading_ahead = ReadingAhead(engine, storage, replicas, eviction)
        self._ends = Ends(replicas, storage, table, removal, counters)
        self.losses = Losses(removal, replicas, self._restage, self._refill)
        self._postponed = Postponed(replicas, settings.clock)
        alone = Policy.alone(Units.whole(table.first_rows))
        sources = Sources(alone, table, counters, settings.clock)
        routes = self._make_routes(sources, NoReceiver())
        self._dispatch = Dispatch(engine, table, storage.pool_number, routes)
        self._outcomes = Outcomes(
            self._ends, replicas, self.losses, self._postponed, self._dispatch
        )
        self.follow(alone)

    def __repr__(self) -> str:
        return f"<Stager {self.in_flight} in flight, {self._fill!r}>"

    # -- state --------------------------------------------------------------------

    @property
    def in_flight(self) -> int:
        """The number of Transfers in flight."""
        return self.table.tally()["in_flight"]

    @property
    def policy(self) -> Policy:
        """The Policy that is in effect."""
        return self._dispatch.sources.policy

    @property
    def idle(self) -> bool:
        """Whether nothing remains to be done until a program requests a File."""
        return self._fill.is_done and not self.in_flight

    @property
    def hangs(self) -> bool:
        """Whether all Transfers in flight hang at an origin that does not answer."""
        return 0 < self.in_flight <= self._stuck

    @property
    def share(self) -> Share:
        """The kept and missing data of this node, at this moment."""
        storage = self.storage
        return Share.of(
            self.replicas, self.policy, len(storage.tiers), storage.packed_in()
        )

    @property
    def failures(self) -> Mapping[int, str]:
        """The errors of the first Files that failed, by number."""
        return self._ends.failures

    @property
    def errors(self) -> Mapping[tuple[int, Step], tuple[int, int]]:
        """How often each errno ended a step of a Transfer, and the first such File."""
        return self._ends.errors

    @property
    def changed(self) -> Sequence[int]:
        """Files whose Origin differs from the Catalog."""
        return self._ends.changed

    @property
    def wake_s(self) -> float | None:
        """The time after which a turn follows even without events; None: never."""
        return self._postponed.wake_s

    @property
    def pool_account(self) -> Account | None:
        """The account of the Pool; None while nothing goes through it."""
        used = self.policy.uses_pool or self.reading_ahead.has_pool
        used |= self.storage.packs
        return self.storage.pool if used else None

    # -- commands -----------------------------------------------------------------

    @property
    def unverified(self) -> npt.NDArray[np.int16]:
        """The Tier with a Replica of an earlier job to be verified, by File; or -1."""
        return self.table.offers()

    def offer(self, file: int, tier: int) -> bool:
        """Offer a Replica of an earlier job for adoption; False if it does not fit."""
        return self.table.offer(file, tier)

    def follow(self, policy: Policy) -> None:
        """Let the data plane decide by this Policy from now on."""
        self.table.follow(
            policy.rows(), policy.own, policy.nodes, uses_pool=policy.uses_pool
        )

    def join(self, sources: Sources, receiver: Receiver) -> None:
        """Use the peers of a cluster from now on; `follow` was called before.

        Args:
            receiver: fetches Files from peers into the Tiers of this node.
        """
        assert not self.policy.uses_pool, "a node joins once"
        self._dispatch.follow(self._make_routes(sources, receiver))
        policy = sources.policy
        placed = np.flatnonzero(policy.units.any_of(policy.placed))
        self.replicas.retry_all(placed, Reason.NO_ROOM)
        for file in self._unwanted(policy.kept_whole):
            self.refuse_adoption(file)
        if self._started:
            self.refill()

    def start(self) -> None:
        """Begin background fill: programs run from now on."""
        self._started = True
        self.refill()

    def look_behind(self) -> None:
        """Let fill stage the Files behind links that programs opened a File by."""
        if self._settings.behind.note_opened(self.replicas.in_state):
            self.refill()

    def refuse_adoption(self, file: int) -> None:
        """Withdraw and remove the Replica of an earlier job."""
        tier = self.table.withdraw(file)
        if tier is not None:
            self._removal.unlink(file, tier)

    def relieve(self, used_bytes: int, limit_bytes: int) -> int:
        """Evict some RAM Replicas if memory is short; return the bytes freed."""
        reason = MEMORY_REASONS[self.policy.uses_pool]
        return self._eviction.relieve(used_bytes, limit_bytes, reason)

    def admit(self, room_bytes: int) -> None:
        """Let RAM Replicas take this much more memory until the next call."""
        self._eviction.admit(room_bytes)

    def note_found(self, file: int, tier: int, finding: Finding) -> None:
        """Handle the finding about a Replica that a program could not open."""
        try:
            self.losses.note_found(file, tier, finding)
        except Exception as error:
            self._survive(f"loss failed file={file}", error)

    def pause_fetching(self, *, paused: bool) -> None:
        """Pause background fetches while no program runs on this node."""
        self._engine.pause_fetching(paused=paused)

    def refill(self) -> None:
        """Let fill process again every File that this node keeps."""
        if not self._stopping:
            offered = np.flatnonzero(self.unverified >= 0).astype(np.uint32)
            self._fill.start(self.policy, offered)

    def turn(self) -> None:
        """Handle events that the data plane did not, and submit resulting orders."""
        for step in (
            self._check_roots,
            self._end_transfers,
            self._end_fetches,
            self._judge_requests,
            self._try_postponed,
            self._check_news,
        ):
            try:
                step()
            except Exception as error:
                self._survive("turn of the stager failed", error)
        self._dispatch.submit()

    def stop(self) -> None:
        """Order nothing more; end orders that were not accepted at once."""
        self._stopping = True
        self.table.stop()
        orders = self._dispatch.cancel()
        self._outcomes.stop([Transfer(order) for order in orders])

    def _make_routes(self, sources: Sources, receiver: Receiver) -> Routes:
        """Return the routes of Transfers under the Policy of these Sources."""
        fetches = Fetches(
            receiver, sources, self.replicas, self._settings, self._counters
        )
        return Routes(sources, fetches)

    def _unwanted(self, kept: npt.NDArray[np.bool_]) -> list[int]:
        """Return Files not to be adopted, because kept ones need their space."""
        others = np.flatnonzero((self.unverified >= 0) & ~kept).tolist()
        unwanted: list[int] = []
        missing_bytes = -self.table.spare_bytes
        while others and missing_bytes > 0:
            unwanted.append(others.pop())
            missing_bytes -= footprint(self.replicas.size_of(unwanted[-1]))
        return unwanted

    # -- requests that the data plane cannot judge ------------------------------------

    def _judge_requests(self) -> None:
        if self._stopping:
            return
        for file in self._engine.requests():
            tier = self.replicas.ready_tier(file)
            if self.replicas.is_written(file):
                self.refuse_adoption(file)
            elif tier is not None:
                # Not here: a check may take as long as a broken medium does.
                self.losses.doubt(file, tier)
            elif self._postponed.is_stalled(file):
                self._postponed.refuse(file)
            else:  # its root answers again
                self.replicas.retry(file, Reason.BUSY)

    def _check_roots(self) -> None:
        health = self._engine.health()
        self._stuck = health.stuck_demand + health.stuck_background
        if self._postponed.note_stalled(health.stalled):
            self.refill()

    def _try_postponed(self) -> None:
        if self._stopping:
            return
        for file in self._postponed.probes():
            self._dispatch.probe(file)
        for file in self._postponed.due():
            self._dispatch.order(file, asked=False)

    def _check_news(self) -> None:
        if self._stopping:
            return
        tally, sources = self.table.tally(), self._dispatch.sources
        if self.storage.packs:
            packed = tally["packed_files"]
            self._fill.check_room(self.policy, tally["crowded"], packed)
            self._fill.check_again(self.policy, tally["again"], packed)
        if self.policy.uses_pool:
            passed = tally["passed_over"] + sources.abandoned
            self._fill.check_news(self.policy, sources.news, passed)

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

    # -- losses -------------------------------------------------------------------

    def _restage(self, file: int, again: bool) -> None:
        if again:
            self._dispatch.order(file)

    def _refill(self, tier: int) -> None:
        if tier != self.storage.pool_number:
            self.refill()

    def _survive(self, what: str, error: Exception) -> None:
        """Log and count an error that must not stop the agent."""
        self._counters.agent_errors += 1
        log.error("%s", what, exc_info=error)
