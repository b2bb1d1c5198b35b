"""Sends failed Transfers to their next Source, and submits orders to the data plane."""

from dataclasses import dataclass

from monarch.native import NO_PEER, Completion, Order, OrderKind, Table, Verdict
from monarch.stager.fetches import Fetches, FetchOutcome
from monarch.stager.sources import Sources
from monarch.stager.transfer import Engine, Transfer, Troubles


@dataclass(frozen=True, slots=True)
class Routes:
    """The Sources and Fetches of Transfers under one Policy."""

    sources: Sources
    fetches: Fetches


class Dispatch:
    """Orders Transfers from the engine or, where a peer is the Source, the receiver."""

    def __init__(
        self, engine: Engine, table: Table, pool_number: int, routes: Routes
    ) -> None:
        self._engine = engine
        self._table = table
        self._pool_number = pool_number
        self._troubles = Troubles()
        self._routes = routes
        self._orders: list[Order] = []

    def __repr__(self) -> str:
        return f"<Dispatch {len(self._orders)} orders waiting>"

    @property
    def sources(self) -> Sources:
        """The Sources whose Policy is in effect now."""
        return self._routes.sources

    def follow(self, routes: Routes) -> None:
        """Use another Policy for new orders; Transfers in flight continue."""
        self._routes = routes

    def order(self, file: int, *, asked: bool = True) -> None:
        """Begin the Transfer of a File by the staging table.

        Args:
            asked: whether a program or a peer requests it, and not background fill.
        """
        kind = OrderKind.ASKED if asked else OrderKind.BACKGROUND
        self._engine.demand(file, kind)

    def probe(self, file: int) -> None:
        """Begin the Transfer of a File even if its origin does not answer."""
        verdict, order = self._table.begin(file, OrderKind.ASKED)
        if verdict is Verdict.BEGUN and order.peer == NO_PEER:
            self._orders.append(order)
        elif verdict is Verdict.BEGUN:
            self._routes.fetches.add(order)

    def end(self, done: Completion) -> Transfer:
        """Return the Transfer of an order that has ended."""
        return self._troubles.take(done.order)

    def arrivals(self) -> list[Completion]:
        """Return the Fetches that have ended since the last call."""
        return self._routes.fetches.arrivals()

    def classify(self, transfer: Transfer, arrival: Completion) -> FetchOutcome:
        """Return the action after a Fetch has ended; note its result for the peer."""
        return self._routes.fetches.classify(transfer, arrival)

    def go_on(self, transfer: Transfer, outcome: FetchOutcome) -> None:
        """Send a Transfer whose Fetch has failed to its next Source."""
        peer = transfer.peer
        if outcome is not FetchOutcome.SAME_PEER:
            peer = self._next_source(transfer, outcome)
            self.sources.count(transfer.file, peer)
        transfer.order = transfer.order_from(peer)
        self._troubles.note(transfer)
        if peer is None:
            transfer.order = self._keep_what_is_read(transfer.order)
            self._orders.append(transfer.order)
        else:
            self._routes.fetches.add(transfer.order)

    def submit(self) -> None:
        """Submit waiting orders to the native parts, as many as they accept."""
        if self._orders:
            taken = self._engine.submit(self._orders)
            del self._orders[:taken]
        self._routes.fetches.submit()

    def cancel(self) -> list[Order]:
        """Drop the orders that have not been accepted, and return them."""
        orders, self._orders = self._orders, []
        return orders + self._routes.fetches.cancel()

    def _next_source(self, transfer: Transfer, outcome: FetchOutcome) -> int | None:
        assert transfer.peer is not None
        transfer.tried += (transfer.peer,)
        if outcome is not FetchOutcome.NEXT_PEER:
            return None
        return self.sources.source(transfer.file, transfer.tried)

    def _keep_what_is_read(self, order: Order) -> Order:
        """Move an order from the Pool to a Tier, if one has free space."""
        passes = order.tier == self._pool_number
        return self._table.move(order) if passes else order
