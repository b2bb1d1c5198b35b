"""Orders Transfers, one per File at most, and gives them to the native parts."""

from dataclasses import dataclass

from monarch.native import Arrival, Order, OrderKind, Reason
from monarch.stager.adoption import Adoption
from monarch.stager.fetches import Fetches, FetchOutcome
from monarch.stager.planner import Planner
from monarch.stager.replicas import Event, Replicas
from monarch.stager.sources import Sources
from monarch.stager.transfer import Engine, InFlight, Transfer


@dataclass(frozen=True, slots=True)
class Routes:
    """Where Transfers come from and where they go under one Policy."""

    sources: Sources
    planner: Planner
    fetches: Fetches


class Dispatch:
    """Orders Transfers from the engine or, where a peer is the Source, the receiver."""

    def __init__(
        self,
        engine: Engine,
        replicas: Replicas,
        in_flight: InFlight,
        adoption: Adoption,
        routes: Routes,
    ) -> None:
        self._engine = engine
        self._replicas = replicas
        self._in_flight = in_flight
        self._adoption = adoption
        self._routes = routes
        self._orders: list[Order] = []

    def __repr__(self) -> str:
        return f"<Dispatch {len(self._orders)} orders waiting>"

    @property
    def sources(self) -> Sources:
        """The Sources by whose Policy it orders now."""
        return self._routes.sources

    def follow(self, routes: Routes) -> None:
        """Order by another Policy from now on; what is under way goes on."""
        self._routes = routes

    def order(self, file: int, kind: OrderKind, *, asked: bool = True) -> None:
        """Begin the Transfer of a File, or store why there is none.

        Args:
            asked: by a program or a peer, not by background fill.
        """
        if file in self._in_flight:
            return
        if self._replicas.is_written(file):
            self._replicas.change(file, Event.REFUSED, reason=Reason.CHANGED)
            return
        transfer = self._plan(file, kind, asked=asked)
        if transfer is not None:
            self._replicas.change(file, Event.ORDERED, tier=transfer.tier)
            self._in_flight.begin(transfer)
            self._send(transfer)

    def restart(self, transfer: Transfer) -> None:
        """Order the File of a failed Transfer again at once."""
        self._replicas.change(transfer.file, Event.RESTARTED)
        kind = OrderKind(transfer.kind & OrderKind.BACKGROUND)
        self.order(transfer.file, kind, asked=transfer.asked)

    def arrivals(self) -> list[Arrival]:
        """Return the Fetches that have ended since the last call."""
        return self._routes.fetches.arrivals()

    def classify(self, transfer: Transfer, arrival: Arrival) -> FetchOutcome:
        """Return what the end of a Fetch means, and note it about the peer."""
        return self._routes.fetches.classify(transfer, arrival)

    def promise(self, file: int) -> None:
        """Promise a kept File room again: its Transfer has failed."""
        self._routes.planner.promise(file)

    def go_on(self, transfer: Transfer, outcome: FetchOutcome) -> None:
        """Send a Transfer whose Fetch has failed to its next Source."""
        if outcome is not FetchOutcome.SAME_PEER:
            self._routes.planner.redirect(transfer, outcome)
            self._routes.sources.count(transfer)
        self._send(transfer)

    def submit(self) -> None:
        """Give the native parts what they take of the orders that wait."""
        if self._orders:
            taken = self._engine.submit(self._orders)
            del self._orders[:taken]
        self._routes.fetches.submit()

    def cancel(self) -> list[int]:
        """Drop the orders that have not been taken; return their Files."""
        files = [order.file for order in self._orders]
        self._orders.clear()
        return files + self._routes.fetches.cancel()

    def _plan(self, file: int, kind: OrderKind, *, asked: bool) -> Transfer | None:
        tier = self._adoption.take(file)
        if tier is not None:
            return Transfer(file, tier, OrderKind(kind | OrderKind.ADOPT), asked)
        transfer = self._routes.planner.plan(file, kind, asked=asked)
        if transfer is not None:
            self._routes.sources.count(transfer)
        return transfer

    def _send(self, transfer: Transfer) -> None:
        if transfer.peer is None:
            order = Order(transfer.file, transfer.tier, transfer.kind)
            self._orders.append(order)
        else:
            self._routes.fetches.add(transfer)
