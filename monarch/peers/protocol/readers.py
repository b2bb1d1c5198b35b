"""The tokens of a job to read the Origin: how many Transfers of each node do at once.

Each node has an equal part of them by right, which it uses while it hears of no hub.
The hub leases all tokens anew, again and again: to nodes whose programs wait first,
then to those that fill, and the rest evenly, so that each node has some when its
programs begin to wait. A lease is renewed with each heartbeat, and ends soon after the
last one. What a node has to give back the hub leases to others only when the node has
told that it follows the smaller lease, or when its lease has ended for certain. So all
nodes together never have more tokens than there are, except where a node that was lost
still lives.
"""

import random
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

SERIAL_BITS: Final = 56
"""Of the number of a hub's first lease: those of two hubs differ."""
LEASE_KEPT: Final = 2
"""So many times the duration of a lease its tokens stay with a node that was lost."""


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
    """What a node sends to the hub.

    Attributes:
        tokens: what it uses, or may use, at most.
        serial: that of the lease by which it does.
    """

    need: Need
    tokens: int
    serial: int


def fair_share(total: int, nodes: int, number: int) -> int:
    """Return the tokens that a node has by right."""
    return total // nodes + (number < total % nodes)


def deal(total: int, needs: Mapping[int, Need]) -> dict[int, int]:
    """Return how many of all tokens each node gets.

    Args:
        needs: of each node, by its number.
    """
    # One for each node, so that the first program that waits need not wait for more.
    demand = _level(total, {n: max(1, need.demand) for n, need in needs.items()})
    left = total - sum(demand.values())
    fill = _level(left, {n: need.fill for n, need in needs.items()})
    left -= sum(fill.values())
    return {
        number: demand[number] + fill[number] + fair_share(left, len(needs), place)
        for place, number in enumerate(sorted(needs))
    }


def _level(total: int, wants: Mapping[int, int]) -> dict[int, int]:
    """Return what each gets where nobody gets more while another lacks as much."""
    given = {}
    order = sorted(wants, key=lambda number: (wants[number], number))
    for place, number in enumerate(order):
        given[number] = min(wants[number], total // (len(order) - place))
        total -= given[number]
    return given


class Tenant:
    """A node's side: the lease by which it reads.

    Args:
        share: its tokens by right.
        lease_s: how long a lease holds.
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
    """What the hub knows of a node.

    Attributes:
        charge: the tokens that it may use at most.
        until_s: when it uses none any more; None: it is there.
    """

    lease: Lease
    charge: int
    need: Need = Need()
    until_s: float | None = None


class Lender:
    """The hub's side: which node has which tokens.

    Args:
        total: the tokens of the job.
        nodes: how many nodes it has.
        lease_s: how long a lease holds.
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
        """Become the hub: leases of an earlier one hold for a while."""
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
        """Note that a node has left: its tokens come back when its lease has ended."""
        self._accounts[number].until_s = now_s + LEASE_KEPT * self._lease_s

    def hear(self, number: int, held: Held) -> None:
        """Note what a node that has joined needs and holds."""
        account = self._accounts[number]
        account.need = held.need
        if held.serial == account.lease.serial:
            account.charge = max(held.tokens, account.lease.tokens)
        else:
            account.charge = max(held.tokens, account.charge)

    def lease(self, number: int) -> Lease:
        """Return the lease of a node that has joined."""
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
    """The tokens of a job as one of its nodes sees them, as a tenant and as the hub.

    Attributes:
        held: what this node sends to the hub.
        lender: used while this node is the hub.

    Args:
        total: the tokens of the job.
        nodes: how many nodes it has.
        number: that of this node.
        lease_s: how long a lease holds.
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
        """Note what this node needs and uses; return whether the hub waits for it.

        Args:
            reading: how many Transfers still read, perhaps by an earlier lease.
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
