"""The tokens of a job to read the Origin, which limit concurrent Transfers by node.

Each node has an equal share of them, which it uses while it receives no lease of a hub.
The hub repeatedly leases all tokens anew: first to nodes whose programs wait, then to
nodes that fill, and the rest evenly, so that each node has some when its programs begin
to wait. A lease is renewed with each heartbeat, and expires soon after the last one.
The hub leases tokens withdrawn from a node to others only after the node has confirmed
the smaller lease, or after its lease has certainly expired. So all nodes together never
have more tokens than the job, unless a node that counts as lost is still alive.
"""

import random
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

SERIAL_BITS: Final = 56
"""The random bits of the number of a hub's first lease, which differs between hubs."""
LEASE_KEPT: Final = 2
"""A lost node keeps its tokens for this many durations of a lease."""


@dataclass(frozen=True, slots=True)
class Need:
    """How many tokens a node could use: for programs that wait, and for fill."""

    demand: int = 0
    fill: int = 0


@dataclass(frozen=True, slots=True)
class Lease:
    """How many tokens a node may use.

    Attributes:
        serial: a number that only this lease of the hub has.
    """

    tokens: int
    serial: int


@dataclass(frozen=True, slots=True)
class Held:
    """The report of a node to the hub.

    Attributes:
        tokens: the tokens that it uses or may use, at most.
        serial: the number of its current lease.
    """

    need: Need
    tokens: int
    serial: int


def fair_share(total: int, nodes: int, number: int) -> int:
    """Return the equal share of a node."""
    return total // nodes + (number < total % nodes)


def deal(total: int, needs: Mapping[int, Need]) -> dict[int, int]:
    """Return the number of tokens for each node.

    Args:
        needs: the need of each node, by its number.
    """
    # One for each node, so that the first waiting program need not wait for a lease.
    demand = _level(total, {n: max(1, need.demand) for n, need in needs.items()})
    left = total - sum(demand.values())
    fill = _level(left, {n: need.fill for n, need in needs.items()})
    left -= sum(fill.values())
    return {
        number: demand[number] + fill[number] + fair_share(left, len(needs), place)
        for place, number in enumerate(sorted(needs))
    }


def _level(total: int, wants: Mapping[int, int]) -> dict[int, int]:
    """Return the max-min fair shares of a total, limited by what each node wants."""
    given = {}
    order = sorted(wants, key=lambda number: (wants[number], number))
    for place, number in enumerate(order):
        given[number] = min(wants[number], total // (len(order) - place))
        total -= given[number]
    return given


class Tenant:
    """A node's side: its current lease.

    Args:
        share: its equal share of the tokens.
        lease_s: the duration of a lease.
    """

    def __init__(self, share: int, lease_s: float) -> None:
        self._share = share
        self._lease_s = lease_s
        self._lease = Lease(share, 0)
        self._until_s = float("-inf")

    def __repr__(self) -> str:
        return f"<Tenant {self._lease}>"

    def take(self, lease: Lease, now_s: float) -> None:
        """Take a lease of the hub, or renew it."""
        self._lease = lease
        self._until_s = now_s + self._lease_s

    def current(self, now_s: float) -> Lease:
        """Return how many tokens the node may use now."""
        if now_s < self._until_s:
            return self._lease
        return replace(self._lease, tokens=self._share)


@dataclass(slots=True)
class _Account:
    """The hub's record of a node.

    Attributes:
        charge: the tokens that it may use at most.
        until_s: when its lease has certainly expired; None: it is joined.
    """

    lease: Lease
    charge: int
    need: Need = Need()
    until_s: float | None = None


class Lender:
    """The hub's side: the tokens of each node.

    Args:
        total: the tokens of the job.
        nodes: the number of its nodes.
        lease_s: the duration of a lease.
        serial: the number before that of the first lease.
    """

    def __init__(self, total: int, nodes: int, lease_s: float, serial: int) -> None:
        self._total = total
        self._nodes = nodes
        self._lease_s = lease_s
        self._serial = serial
        self._settled_s = float("inf")
        self._accounts: dict[int, _Account] = {}

    def __repr__(self) -> str:
        return f"<Lender of {self._total} to {len(self._accounts)}>"

    def begin(self, now_s: float) -> None:
        """Become the hub; leases of an earlier one remain valid for a while."""
        self._settled_s = now_s + self._lease_s

    def admit(self, number: int) -> None:
        """Note that a node has joined."""
        share = fair_share(self._total, self._nodes, number)
        account = self._accounts.get(number)
        if account is None:
            self._accounts[number] = _Account(self._next(share), share)
        else:
            account.until_s = None

    def lose(self, number: int, now_s: float) -> None:
        """Note that a node has left; its tokens return when its lease has expired."""
        self._accounts[number].until_s = now_s + LEASE_KEPT * self._lease_s

    def hear(self, number: int, held: Held) -> None:
        """Note the need and the tokens of a joined node."""
        account = self._accounts[number]
        account.need = held.need
        if held.serial == account.lease.serial:
            account.charge = max(held.tokens, account.lease.tokens)
        else:
            account.charge = max(held.tokens, account.charge)

    def lease(self, number: int) -> Lease:
        """Return the lease of a joined node."""
        return self._accounts[number].lease

    def deal(self, now_s: float) -> list[int]:
        """Lease all tokens again; return the numbers of nodes whose lease changed."""
        ended = [
            number
            for number, account in self._accounts.items()
            if account.until_s is not None and account.until_s <= now_s
        ]
        for number in ended:
            del self._accounts[number]
        free = self._total - sum(one.charge for one in self._accounts.values())
        changed = []
        for number, target in self._targets(now_s).items():
            account = self._accounts[number]
            more = min(target - account.charge, max(0, free))
            tokens = account.charge + more if more > 0 else min(target, account.charge)
            free -= max(0, more)
            account.charge = max(account.charge, tokens)
            if tokens != account.lease.tokens:
                account.lease = self._next(tokens)
                changed.append(number)
        return changed

    def _targets(self, now_s: float) -> dict[int, int]:
        present = {n: a.need for n, a in self._accounts.items() if a.until_s is None}
        if now_s >= self._settled_s:
            return deal(self._total, present)
        return {n: fair_share(self._total, self._nodes, n) for n in present}

    def _next(self, tokens: int) -> Lease:
        self._serial += 1
        return Lease(tokens, self._serial)


class ReaderTokens:
    """The tokens of a job on one of its nodes, as a tenant and as the hub.

    Attributes:
        held: the report of this node to the hub.
        lender: used while this node is the hub.

    Args:
        total: the tokens of the job.
        nodes: the number of its nodes.
        number: the number of this node.
        lease_s: the duration of a lease.
    """

    def __init__(self, total: int, nodes: int, number: int, lease_s: float) -> None:
        share = fair_share(total, nodes, number)
        self.lender = Lender(total, nodes, lease_s, random.getrandbits(SERIAL_BITS))
        self.held = Held(Need(), share, 0)
        self._number = number
        self._tenant = Tenant(share, lease_s)
        self._followed = Lease(share, 0)

    def __repr__(self) -> str:
        return f"<ReaderTokens {self._followed.tokens}>"

    def lead(self, now_s: float) -> None:
        """Become the hub."""
        self.lender.begin(now_s)
        self.lender.admit(self._number)

    def take(self, lease: Lease, now_s: float) -> None:
        """Take a lease of the hub."""
        self._tenant.take(lease, now_s)

    def follow(self, now_s: float) -> int:
        """Return how many tokens this node uses from now on."""
        self._followed = self._tenant.current(now_s)
        return self._followed.tokens

    def report(self, need: Need, reading: int) -> bool:
        """Note the need and use of this node; return whether the hub needs the report.

        Args:
            reading: how many Transfers still read, perhaps under an earlier lease.
        """
        before, lease = self.held, self._followed
        self.held = Held(need, max(lease.tokens, reading), lease.serial)
        lacks = need.demand + need.fill > lease.tokens and need != before.need
        return (
            lacks or before.serial != lease.serial or before.tokens > self.held.tokens
        )

    def deal(self, now_s: float) -> list[int]:
        """As the hub, lease all tokens again; return the nodes whose lease changed."""
        self.lender.hear(self._number, self.held)
        changed = self.lender.deal(now_s)
        self._tenant.take(self.lender.lease(self._number), now_s)
        return [number for number in changed if number != self._number]
