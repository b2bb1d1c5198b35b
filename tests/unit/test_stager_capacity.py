"""Admission: capacity is never exceeded, and every failure has one meaning."""

import errno

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from monarch.stager.capacity import (
    PAGE_BYTES,
    Account,
    FileOutcome,
    Ledger,
    TierOutcome,
    TransferEnd,
    footprint,
    footprints,
)
from monarch.stager.eviction import bytes_to_free, choose_victims

SIZES = st.integers(0, 40 * PAGE_BYTES)


def has_no_failures(ledger: Ledger, file: int) -> bool:
    """Whether the next failure of a File is its first."""
    return ledger.classify(file, 0, TransferEnd(-errno.EIO))[0] is FileOutcome.RETRY


class LedgerLife(RuleBasedStateMachine):
    """Any sequence of reservations, releases, losses and shrinking Tiers."""

    def __init__(self):
        super().__init__()
        self.ledger = Ledger([50 * PAGE_BYTES, 120 * PAGE_BYTES])
        self.reserved: list[tuple[int, int]] = []
        self.used: list[tuple[int, int]] = []

    @rule(size=SIZES)
    def reserve(self, size):
        free = [account.free_bytes for account in self.ledger.accounts]
        tier = self.ledger.reserve(size)
        fitting = [n for n, room in enumerate(free) if footprint(size) <= room]
        assert tier == (fitting[0] if fitting else None)
        if tier is not None:
            self.reserved.append((tier, size))

    @precondition(lambda self: self.reserved)
    @rule(settled=st.booleans(), pick=st.randoms(use_true_random=False))
    def end_transfer(self, settled, pick):
        tier, size = self.reserved.pop(pick.randrange(len(self.reserved)))
        if settled:
            self.ledger.commit(tier, size)
            self.used.append((tier, size))
        else:
            self.ledger.release(tier, size)

    @precondition(lambda self: self.used)
    @rule(pick=st.randoms(use_true_random=False))
    def drop(self, pick):
        self.ledger.free(*self.used.pop(pick.randrange(len(self.used))))

    @rule(tier=st.integers(0, 1))
    def shrink(self, tier):
        self.ledger.shrink(tier)

    @invariant()
    def capacity_holds_and_sums_agree(self):
        for number, account in enumerate(self.ledger.accounts):
            used = sum(footprint(s) for t, s in self.used if t == number)
            reserved = sum(footprint(s) for t, s in self.reserved if t == number)
            assert (account.used_bytes, account.reserved_bytes) == (used, reserved)
            assert used + reserved <= account.capacity_bytes


TestLedgerLife = LedgerLife.TestCase


@given(st.lists(SIZES, max_size=60))
def test_a_file_that_does_not_fit_never_stops_smaller_ones(sizes):
    ledger = Ledger([60 * PAGE_BYTES])
    refused = [size for size in sizes if ledger.reserve(size) is None]

    room = ledger.accounts[0].free_bytes
    assert all(footprint(size) > room for size in refused)


def test_files_take_whole_pages_even_if_empty():
    assert [footprint(n) for n in (0, 1, 4096, 4097)] == [4096, 4096, 4096, 8192]


@pytest.mark.parametrize("cause", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_tier_takes_no_more_than_it_holds_and_the_file_is_tried_anew(cause):
    ledger = Ledger([10 * PAGE_BYTES, 10 * PAGE_BYTES])
    ledger.commit(0, ledger.reserve(1) or 1)
    assert ledger.reserve(1) == 0
    verdict, room = ledger.classify(1, 0, TransferEnd(-cause, at_tier=True))
    ledger.release(0, 1)

    ledger.shrink(0)

    assert (verdict, room) == (FileOutcome.RESTART, TierOutcome.FULL)
    assert ledger.reserve(1) == 1


def test_a_vanished_tier_is_taken_out_of_service():
    ledger = Ledger([10 * PAGE_BYTES])
    outcome = TransferEnd(-errno.ENOENT, at_tier=True)

    assert ledger.classify(0, 0, outcome) == (FileOutcome.RESTART, TierOutcome.FAILED)

    ledger.retire(0)
    assert ledger.reserve(1) is None
    assert repr(ledger) == "<Ledger 0+0/40960 lost>"


def test_a_tier_is_taken_out_of_service_at_its_first_error():
    ledger = Ledger([10 * PAGE_BYTES])
    outcome = TransferEnd(-errno.EIO, at_tier=True)

    assert ledger.classify(0, 0, outcome) == (FileOutcome.RESTART, TierOutcome.FAILED)
    assert has_no_failures(ledger, 0)


@pytest.mark.parametrize("cause", [errno.EMFILE, errno.ENFILE, errno.ENOMEM])
@pytest.mark.parametrize("at_tier", [False, True])
def test_what_the_node_lacks_is_no_fault_of_a_file_or_a_tier(cause, at_tier):
    ledger = Ledger([10 * PAGE_BYTES])
    outcome = TransferEnd(-cause, at_tier=at_tier)

    seen = {ledger.classify(7, 0, outcome) for _ in range(10)}

    assert seen == {(FileOutcome.POSTPONE, TierOutcome.UNCHANGED)}
    assert has_no_failures(ledger, 7)


def test_a_copy_that_does_not_verify_is_no_fault_of_its_tier():
    ledger = Ledger([10 * PAGE_BYTES])
    outcome = TransferEnd(-errno.EBADMSG, at_tier=True)

    assert ledger.classify(7, 0, outcome) == (FileOutcome.RETRY, TierOutcome.UNCHANGED)


def test_a_file_is_given_up_after_its_second_failure():
    ledger = Ledger([10 * PAGE_BYTES])
    outcome = TransferEnd(-errno.EIO)

    verdicts = [ledger.classify(7, 0, outcome)[0] for _ in range(2)]

    assert verdicts == [FileOutcome.RETRY, FileOutcome.GIVE_UP]


def test_a_success_forgives_the_failure_before_it():
    ledger = Ledger([10 * PAGE_BYTES])
    ledger.classify(7, 0, TransferEnd(-errno.EIO))
    ledger.classify(7, 0, TransferEnd(0))

    assert ledger.classify(7, 0, TransferEnd(-errno.EIO))[0] is FileOutcome.RETRY


@pytest.mark.parametrize("cause", [errno.ESTALE, errno.ENOENT])
def test_a_changed_or_removed_origin_is_no_failure_of_the_file(cause):
    ledger = Ledger([10 * PAGE_BYTES])

    assert ledger.classify(7, 0, TransferEnd(-cause))[0] is FileOutcome.CHANGED
    assert has_no_failures(ledger, 7)


def test_a_leftover_that_does_not_verify_is_staged_anew():
    ledger = Ledger([10 * PAGE_BYTES])
    outcome = TransferEnd(-errno.EBADMSG, at_tier=True, adoption=True)

    assert ledger.classify(7, 0, outcome) == (
        FileOutcome.RESTART,
        TierOutcome.UNCHANGED,
    )
    assert has_no_failures(ledger, 7)


@given(st.integers(0, 10**12), st.integers(1, 10**12))
def test_eviction_leaves_a_tenth_of_the_limit_free(used, limit):
    need = bytes_to_free(used, limit)

    assert used - need <= limit * 9 // 10 or need == 0
    assert need == 0 or used > limit * 9 // 10


@given(st.lists(SIZES), st.integers(0, 400 * PAGE_BYTES))
def test_victims_are_as_few_as_meet_the_need(sizes, need):
    victims = choose_victims(range(len(sizes)), sizes.__getitem__, need)

    freed = [footprint(sizes[file]) for file in victims]
    assert sum(freed) >= need or len(victims) == len(sizes)
    assert sum(freed[:-1]) < need or not victims


@given(st.lists(st.integers(0, 2**62)))
def test_footprints_of_many_files_are_those_of_each(sizes):
    found = footprints(np.array(sizes, np.uint64))

    assert found.tolist() == [footprint(size) for size in sizes]


def test_the_account_of_the_pool_lies_behind_those_of_the_tiers():
    ledger = Ledger([PAGE_BYTES], pool_bytes=2 * PAGE_BYTES)
    with pytest.raises(AssertionError):
        ledger.account(2)

    assert ledger.reserve(10) == 0
    assert ledger.reserve(10) is None, "it is not for what is kept"
    assert ledger.reserve_in(1, 10)
    assert ledger.reserve_in(1, 10)
    assert not ledger.reserve_in(1, 10)
    ledger.commit(1, 10)
    ledger.release(1, 10)
    ledger.free(1, 10)

    assert ledger.account(1) is ledger.pool
    assert ledger.pool == Account(2 * PAGE_BYTES)
    assert ledger.classify(3, 1, TransferEnd(-errno.ENOSPC, at_tier=True)) == (
        FileOutcome.RESTART,
        TierOutcome.FULL,
    )
