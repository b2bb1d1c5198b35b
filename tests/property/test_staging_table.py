"""After any operation on a staging table, it agrees with a plain model."""

from collections import Counter
from collections.abc import Callable
from random import Random

import numpy as np
import pytest

from monarch.native import (
    CONSTANTS,
    NO_PEER,
    Order,
    OrderKind,
    Reason,
    Source,
    Table,
    Verdict,
)
from support.stages import table_files
from support.table_model import (
    ECANCELED,
    ENXIO,
    LARGE_BYTES,
    PEERS,
    TIERS,
    Model,
    rows_of,
    unconfirmed,
)

STEPS = 400
SIZES = [0, 1, 4096, 4097, 9000, 40_000, LARGE_BYTES, LARGE_BYTES + 1, 9 << 20]
REASONS = [Reason.NONE, Reason.BUSY, Reason.ERROR, Reason.CHANGED, Reason.STOPPING]
FAILED_MAX = 3
HINTED = OrderKind.BACKGROUND | OrderKind.HINT
KINDS = [OrderKind.ASKED] * 2 + [OrderKind.BACKGROUND, HINTED]


class Life:
    """A table and its model, to which the same happens."""

    def __init__(self, random: Random) -> None:
        self.random = random
        sizes = [random.choice(SIZES) for _ in range(random.randint(1, 12))]
        bases = (0, len(sizes) // 2) if random.random() < 0.5 and sizes[1:] else (0,)
        self.files = table_files(sizes, bases)
        self.table = Table(self.files, TIERS, LARGE_BYTES)
        self.model = Model(sizes, bases)
        # All orders that began, including ended ones.
        self.orders: list[Order] = []
        self.seen: Counter[str] = Counter()
        self.follow()
        for place in range(TIERS + 1):
            self.set_capacity(place)
        for tier in range(TIERS):
            if random.random() < 0.2:
                self.table.evict(tier)
                self.model.evicts.add(tier)

    def file(self) -> int:
        return self.random.randrange(len(self.model.sizes))

    def order(self) -> Order | None:
        """Some order, rather one that is under way than one that has ended."""
        live = [one for one in self.orders if self.model.is_live(one)]
        if live and self.random.random() < 0.8:
            return self.random.choice(live)
        return self.random.choice(self.orders) if self.orders else None

    # -- what may happen ----------------------------------------------------------

    def follow(self) -> None:
        rows = self.model.make_rows(self.random)
        uses_pool = self.random.random() < 0.7
        first = self.files.first
        self.table.follow(rows_of(rows, first), 0, PEERS, uses_pool=uses_pool)
        self.model.follow(rows, uses_pool=uses_pool)

    def begin(self) -> None:
        file = self.file()
        kind = self.random.choice(KINDS)
        verdict, order = self.table.begin(file, kind)
        expected = self.model.begin(file, kind)
        begun = verdict is Verdict.BEGUN
        self.seen[verdict.name] += 1
        assert (verdict, unconfirmed(order) if begun else None) == expected
        if begun:
            self.orders.append(order)

    def offer(self) -> None:
        file, tier = self.file(), self.random.randrange(TIERS)
        assert self.table.offer(file, tier) == self.model.offer(file, tier)

    def withdraw(self) -> None:
        file = self.file()
        assert self.table.withdraw(file) == self.model.withdraw(file)

    def publish(self) -> None:
        if order := self.order():
            peer = order.peer != NO_PEER
            source = Source.PEER if peer else Source.NONE
            code = self.table.publish(order, source)
            assert code == self.model.publish(order)
            self.seen[f"published {code}"] += 1

    def fail(self) -> None:
        if order := self.order():
            reason = self.random.choice(REASONS)
            promise = self.random.random() < 0.7
            ended = self.table.fail(order, reason, promise=promise)
            assert ended == self.model.fail(order, reason, promise=promise)
            self.seen["failed" if ended else "failed late"] += 1

    def move(self) -> None:
        order = self.order()
        if order is None or order.tier != TIERS:
            return
        moved = self.table.move(order)
        assert moved == self.model.move(order)
        self.seen["moved" if moved != order else "not moved"] += 1
        self.orders[self.orders.index(order)] = moved

    def set_peer(self) -> None:
        peer = self.random.randrange(PEERS)
        usable = self.random.random() < 0.5
        gone = not usable and self.random.random() < 0.5
        self.table.set_peer(peer, usable=usable, gone=gone)
        self.model.peers[peer] = usable, gone

    def set_capacity(self, place: int | None = None) -> None:
        place = self.random.randint(0, TIERS) if place is None else place
        size = self.random.choice([0, 8192, 100_000, 30 << 20])
        self.table.set_capacity(place, size)
        self.model.set_capacity(place, size)

    def shrink(self) -> None:
        tier = self.random.randint(0, TIERS)
        self.table.shrink(tier)
        self.model.shrink(tier)

    def retire(self) -> None:
        """A Tier fails, and its Replicas are lost, as Python says then."""
        tier = self.random.randint(0, TIERS)
        if self.random.random() < 0.9:
            return
        assert self.table.retire(tier) == self.model.retire(tier)
        for file in self.model.ready_in(tier):
            self.set_word(file, self.model.lose(file))

    def remove(self) -> None:
        """A Replica is evicted, in the two steps of the memory guard, or is lost."""
        file = self.file()
        tier = self.model.evict(file)
        if tier is None:
            return
        self.set_word(file, self.model.word(file))
        if self.random.random() < 0.3:
            self.begin_of(file)
        reason = self.random.choice([Reason.NONE, Reason.MEMORY])
        self.set_word(file, self.model.remove(file, tier, reason))
        self.table.remove(file, tier)

    def begin_of(self, file: int) -> None:
        verdict, _ = self.table.begin(file, OrderKind.ASKED)
        assert verdict is Verdict.NOTHING, "it is leaving"

    def retry(self) -> None:
        """The Reason has passed."""
        file = self.file()
        if self.model.retry(file):
            self.set_word(file, self.model.word(file))

    def mark(self) -> None:
        if self.random.random() < 0.1:
            file = self.file()
            self.files.marks[file] = 1
            self.model.written.add(file)

    def mark_root(self) -> None:
        if self.random.random() < 0.03:
            root = self.random.randrange(len(self.model.bases))
            self.files.root_marks[root] = 1
            self.model.written |= self.model.files_of(root)

    def confirm(self) -> None:
        """Programs may confirm a File at any time: that is no part of its state."""
        file = self.file()
        self.files.words[file] |= np.uint32(CONSTANTS["STATE_CONFIRMED"])

    def stop(self) -> None:
        if self.random.random() < 0.01:
            self.table.stop()
            self.model.is_stopping = True

    def set_word(self, file: int, fixed: int) -> None:
        """Change a word as Python does: its generation stays."""
        kept = int(self.files.words[file]) & ~CONSTANTS["STATE_FIXED"]
        self.files.words[file] = kept | fixed

    # -- what holds at every moment ---------------------------------------------------

    def check(self) -> None:
        model, table = self.model, self.table
        fixed = self.files.words & np.uint32(CONSTANTS["STATE_FIXED"])
        assert fixed.tolist() == [model.word(f) for f in range(len(model.sizes))]
        for place, expected in enumerate(model.accounts):
            account = table.account(place)
            assert account == expected.seen()
            taken = account.used_bytes + account.reserved_bytes
            bound = max(account.capacity_bytes, expected.taken_when_shrunk)
            assert taken <= bound or not account.in_service
        assert table.spare_bytes == model.spare_bytes()
        live = [one.file for one in self.orders if model.is_live(one)]
        assert len(live) == len(set(live)), "one Transfer per File"
        tally = table.tally()
        counted = {name: tally[name] for name in model.tally}
        assert counted == dict(model.tally)
        assert tally["in_flight"] == len(live)
        for peer in range(PEERS):
            assert table.fetched(peer) == model.fetched[peer]


HAPPENINGS = [
    *[Life.begin] * 10,
    *[Life.publish] * 4,
    *[Life.fail] * 3,
    *[Life.retry] * 3,
    *[Life.remove] * 3,
    *[Life.offer, Life.withdraw, Life.withdraw],
    *[Life.move] * 2,
    *[Life.set_peer] * 2,
    *[Life.follow, Life.set_capacity, Life.shrink, Life.retire],
    *[Life.mark, Life.mark_root, Life.confirm, Life.stop],
]


# Reported only for separate Blocks.
SEEN = ({one.name for one in Verdict} - {Verdict.WHOLE.name}) | {
    "moved",
    "not moved",
    "failed",
    "failed late",
}
SEEN |= {"published 0", f"published {ENXIO}", f"published {ECANCELED}"}


def run(seed: int) -> Counter[str]:
    """Live one life; what was seen of it."""
    life, named = Life(Random(seed)), []
    life.check()
    for _ in range(STEPS):
        happening = life.random.choice(HAPPENINGS)
        named.append(happening.__name__)
        try:
            happening(life)
            life.check()
        except AssertionError as error:
            said = " ".join(named[-8:])
            raise AssertionError(f"seed {seed}, ... {said}: {error}") from error
    life.table.close()
    return life.seen


@pytest.mark.soak
def test_a_table_does_what_its_rules_say(soak_count: Callable[[int, int], int]) -> None:
    failures, seen = [], Counter[str]()
    for seed in range(soak_count(200, 4000)):
        try:
            seen += run(seed)
        except AssertionError as error:
            failures.append(str(error))

    assert not failures, "\n".join([f"{len(failures)} failed:", *failures[:FAILED_MAX]])
    assert set(seen) == SEEN
