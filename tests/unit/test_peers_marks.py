"""Marks between nodes: packed, sent in portions, acknowledged, resent, bounded."""

import random
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monarch.peers.protocol import Kind, MarkLog, MarkSync, Message, ProtocolError
from monarch.peers.protocol import marks as protocol
from monarch.peers.protocol.marks import (
    KIND_SPAN,
    KINDS,
    NUMBER_MAX,
    PORTION_MAX,
    ROOTS,
    pack,
    unpack,
)
from monarch.peers.protocol.messages import MARKS_BYTES_MAX, format_fields

CATALOG = 7
RESEND_S = 1.0
# All kinds of change of all roots.
EVERYTHING = [kind * KIND_SPAN + root for kind in range(KINDS) for root in range(ROOTS)]
NUMBERS = st.sets(st.integers(0, NUMBER_MAX), max_size=200)


class Node:
    """A node's log, and the marks of others that it has received."""

    def __init__(self, catalog: int | None = CATALOG) -> None:
        self.heard: list[int] = []
        self.grown = 0
        self.log = MarkLog(self.heard.extend, self._grow)
        if catalog is not None:
            self.heard.extend(self.log.open(catalog))

    def _grow(self) -> None:
        self.grown += 1

    def sync(self) -> MarkSync:
        return MarkSync(self.log, RESEND_S)


def talk(one: MarkSync, other: MarkSync, now_s: float = 0.0) -> int:
    """Let two ends talk until neither has anything to say; return the messages."""
    said = 0
    while True:
        ways = ((one, other), (other, one))
        sent = [(to, m) for end, to in ways for m in end.outgoing(now_s)]
        if not sent:
            return said
        for to, message in sent:
            to.receive(message)
        said += len(sent)


def marks_in(messages: list[Message]) -> list[int]:
    found = [unpack(m.body) for m in messages if m.kind is Kind.MARKS]
    return [number for numbers in found for number in numbers]


# -- packing ----------------------------------------------------------------------


@given(NUMBERS)
def test_numbers_survive_a_round_trip(numbers):
    assert unpack(pack(numbers)) == sorted(numbers)


def test_files_that_follow_each_other_take_a_few_bytes():
    assert len(pack(range(100_000, 100_000 + PORTION_MAX))) <= 6


def test_the_worst_portion_has_room_in_a_message():
    apart = NUMBER_MAX // PORTION_MAX
    worst = pack(range(0, apart * PORTION_MAX, apart))
    assert len(unpack(worst)) == PORTION_MAX
    assert len(worst) <= MARKS_BYTES_MAX
    fields = {"catalog": 2**64 - 1, "first": 0, "next": PORTION_MAX}
    assert format_fields(Message(Kind.MARKS, fields, worst))


@pytest.mark.parametrize(
    "body",
    [
        b"\x80",
        b"\x01",
        b"\x01\x00\x05",
        b"\xff" * 9,
        pack(range(PORTION_MAX)) + b"\x01\x00",
        b"\x00\xff\xff\xff\xff\x0f",
        b"\xff\xff\xff\xff\x3f\x01",
    ],
    ids=["cut", "half", "half a pair", "huge", "many", "long", "beyond"],
)
def test_invalid_marks_end_the_conversation(body):
    with pytest.raises(ProtocolError):
        unpack(body)


@given(st.binary(max_size=300))
def test_random_bytes_are_marks_or_a_protocol_error(body):
    try:
        numbers = unpack(body)
    except ProtocolError:
        return
    assert len(numbers) <= PORTION_MAX
    assert numbers == sorted(set(numbers))
    assert all(0 <= number <= NUMBER_MAX for number in numbers)


# -- sending ----------------------------------------------------------------------


def test_marks_of_each_side_reach_the_other_and_are_not_echoed():
    one, other = Node(), Node()
    one.log.add_own([70, 71, 3])
    other.log.add_own([500])
    ends = one.sync(), other.sync()

    assert talk(*ends) == 4  # two portions, and two acknowledgements

    assert sorted(one.heard) == [500]
    assert sorted(other.heard) == [3, 70, 71]
    assert one.grown == other.grown == 2
    assert talk(*ends) == 0


def test_known_marks_are_not_sent():
    one, other = Node(), Node()
    ends = one.sync(), other.sync()
    one.log.add_own([80])
    talk(*ends)
    one.log.add_own([80])
    other.log.add_own([80])

    assert talk(*ends) == 0
    assert (one.heard, other.heard) == ([], [80])


def test_a_portion_is_resent_until_it_is_acknowledged():
    one, other = Node(), Node()
    near, far = one.sync(), other.sync()
    one.log.add_own([80, 90])

    [lost] = near.outgoing(0.0)
    one.log.add_own([100])
    assert list(near.outgoing(0.5 * RESEND_S)) == []
    [again] = near.outgoing(1.0 * RESEND_S)

    assert lost.fields["next"] == 2
    assert marks_in([again]) == [80, 90, 100]
    assert far.receive(again)
    [heard] = far.outgoing(1.0 * RESEND_S)
    assert not near.receive(heard)
    assert list(near.outgoing(10 * RESEND_S)) == []


def test_repeated_late_and_reordered_portions_change_nothing():
    one, other = Node(), Node()
    near, far = one.sync(), other.sync()
    one.log.add_own([80])
    [first] = near.outgoing(0.0)
    far.receive(first)
    [heard] = far.outgoing(0.0)
    near.receive(heard)
    one.log.add_own([90])
    [second] = near.outgoing(0.0)

    for message in (second, first, second, first):
        far.receive(message)
    answers = list(far.outgoing(0.0))
    for message in (heard, *answers, heard):
        near.receive(message)

    assert other.heard == [80, 90]
    assert [m.fields["next"] for m in answers] == [2]
    assert list(near.outgoing(10 * RESEND_S)) == []


def test_a_portion_without_its_predecessor_is_not_acknowledged():
    one, other = Node(), Node()
    near, far = one.sync(), other.sync()
    one.log.add_own([80])
    [first] = near.outgoing(0.0)
    lost = other.sync()
    lost.receive(first)
    near.receive(next(iter(lost.outgoing(0.0))))
    one.log.add_own([90])
    [second] = near.outgoing(0.0)

    far.receive(second)

    [heard, *_] = far.outgoing(0.0)
    assert heard == Message(Kind.MARKS_ACK, {"next": 0})
    assert 90 in other.heard


def test_an_acknowledgement_of_an_unsent_portion_is_ignored():
    one = Node()
    near = one.sync()
    one.log.add_own([80])

    near.receive(Message(Kind.MARKS_ACK, {"next": 5}))

    assert marks_in(list(near.outgoing(0.0))) == [80]


def test_many_marks_are_sent_in_bounded_portions_one_after_another(monkeypatch):
    monkeypatch.setattr(protocol, "PORTION_MAX", 100)
    one, other = Node(), Node()
    near, far = one.sync(), other.sync()
    numbers = random.Random(1).sample(range(ROOTS, 10**6), 950)
    one.log.add_own(numbers)

    assert len(list(near.outgoing(0.0))) == 1
    assert list(near.outgoing(0.1)) == []
    assert talk(near, far, RESEND_S) == 20

    assert sorted(other.heard) == sorted(numbers)


def test_more_marks_than_a_node_keeps_mark_all_roots(monkeypatch):
    monkeypatch.setattr(protocol, "MARKS_MAX", 1000)
    one, other = Node(), Node()
    ends = one.sync(), other.sync()
    one.log.add_own(range(ROOTS, ROOTS + 900))
    talk(*ends)

    one.log.add_own(range(5000, 5900))
    one.log.add_own(range(6000, 6900))
    talk(*ends)

    assert other.heard[900:] == EVERYTHING
    assert len(one.log) == 900 + len(EVERYTHING)


# -- order of arrival -------------------------------------------------------------


def test_a_new_session_receives_everything_from_the_start():
    hub, follower, successor = Node(), Node(), Node()
    ends = hub.sync(), follower.sync()
    hub.log.add_own([80])
    follower.log.add_own([90])
    talk(*ends)

    talk(follower.sync(), successor.sync())

    assert sorted(successor.heard) == [80, 90]


def test_a_restarted_node_receives_the_marks_that_it_once_sent():
    one, other = Node(), Node()
    other.log.add_own([80])
    talk(one.sync(), other.sync())
    again = Node()

    talk(one.sync(), again.sync())

    assert again.heard == [80]


def test_marks_that_arrive_before_the_catalog_are_kept_for_it():
    one, early = Node(), Node(catalog=None)
    one.log.add_own([80, 5])
    talk(one.sync(), early.sync())
    assert early.heard == []

    assert sorted(early.log.open(CATALOG)) == [5, 80]


def test_marks_of_another_catalog_let_all_roots_pass_on_both_sides():
    one, stranger = Node(), Node(catalog=8)
    ends = one.sync(), stranger.sync()
    assert talk(*ends) == 0

    one.log.add_own([80])
    talk(*ends)

    assert stranger.heard == EVERYTHING
    stranger.log.add_own([90])
    talk(*ends)
    assert one.heard == EVERYTHING
    assert talk(*ends) == 0  # and without a repetition


def test_a_node_of_another_catalog_forwards_marks_and_sends_its_own_by_root():
    one, hub, other = Node(), Node(catalog=None), Node()
    first = one.sync(), hub.sync()
    second = other.sync(), hub.sync()
    one.log.add_own([80])
    talk(*first)

    assert hub.log.open(8) == EVERYTHING
    talk(*second)
    assert other.heard == [80]
    hub.log.add_own([90])
    talk(*first)
    talk(*second)

    assert other.heard == [80, *EVERYTHING]
    assert one.heard == EVERYTHING


def test_more_marks_than_are_kept_let_all_roots_pass_where_they_were_set(monkeypatch):
    monkeypatch.setattr(protocol, "MARKS_MAX", 1000)
    one, other = Node(), Node()

    one.log.add_own(range(ROOTS, ROOTS + 1001))
    talk(one.sync(), other.sync())

    assert one.heard == other.heard == EVERYTHING


class Wire:
    """A way between two ends that loses, repeats and reorders what it carries."""

    def __init__(self, chance: random.Random, one: MarkSync, other: MarkSync) -> None:
        self.chance = chance
        self.ends = ((one, other), (other, one))
        self.under_way: list[tuple[MarkSync, Message]] = []

    def step(self, now_s: float, *, whole: bool) -> None:
        for end, to in self.ends:
            self.under_way += [(to, message) for message in end.outgoing(now_s)]
        if not whole:
            self.chance.shuffle(self.under_way)
        for to, message in list(self._arriving(whole=whole)):
            to.receive(message)

    def _arriving(self, *, whole: bool) -> Iterator[tuple[MarkSync, Message]]:
        waiting, self.under_way = self.under_way, []
        for to, message in waiting:
            fate = 1.0 if whole else self.chance.random()
            if fate >= 0.4:
                yield to, message
            if 0.2 <= fate < 0.5:
                self.under_way.append((to, message))


@pytest.mark.parametrize("seed", range(20))
def test_all_nodes_receive_all_marks_whatever_the_wires_do(seed, monkeypatch):
    monkeypatch.setattr(protocol, "PORTION_MAX", 7)
    chance = random.Random(seed)
    nodes = [Node() for _ in range(5)]
    marked: list[set[int]] = [set() for _ in nodes]
    hub, now_s = 0, 0.0
    wires: list[Wire] = []

    def join() -> None:
        followers = [n for n in range(len(nodes)) if n != hub]
        wires[:] = [Wire(chance, nodes[n].sync(), nodes[hub].sync()) for n in followers]

    join()
    for step in range(300):
        now_s += 0.3 * RESEND_S
        if step < 200 and chance.random() < 0.3:
            number = chance.randrange(len(nodes))
            new = {chance.randrange(300) for _ in range(chance.randrange(20))}
            marked[number] |= new
            nodes[number].log.add_own(new)
        if step < 200 and chance.random() < 0.02:
            hub = chance.randrange(len(nodes))
            join()
        for wire in wires:
            wire.step(now_s, whole=step >= 200)

    everything = set().union(*marked)
    for node, own in zip(nodes, marked, strict=True):
        assert len(node.heard) == len(set(node.heard))
        assert set(node.heard) | own == everything
        assert len(node.log) == len(everything)
