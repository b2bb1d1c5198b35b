"""Admission: capacity is never exceeded, and every failure has one meaning."""

import errno

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from monarch import native
from monarch.agent import staging
from monarch.config import Tier as TierSection
from monarch.native import Account, Table
from monarch.stager.capacity import (
    CodecInUse,
    FileOutcome,
    Ledger,
    Storage,
    TierOutcome,
    TransferEnd,
    footprint,
    footprints,
)
from monarch.stager.eviction import bytes_to_free, choose_victims
from monarch.tiers.kinds import SsdTier
from monarch.tiers.memory import Memory
from monarch.tiers.tier import PAGE_BYTES, TierSettings
from support.stages import make_stage, table_files

SIZES = st.integers(0, 40 * PAGE_BYTES)


def has_no_failures(ledger: Ledger, file: int) -> bool:
    """Whether the next failure of a File is its first."""
    return ledger.classify(file, 0, TransferEnd(-errno.EIO))[0] is FileOutcome.RETRY


def make_ledger(*capacities: int) -> Ledger:
    """The ledger of Tiers, and of a Pool behind them, for ten Files of one page."""
    table = Table(table_files([PAGE_BYTES] * 10), len(capacities), 0)
    for tier, capacity in enumerate(capacities):
        table.set_capacity(tier, capacity)
    return Ledger(table, len(capacities))


def test_files_take_whole_pages_even_if_empty():
    assert [footprint(n) for n in (0, 1, 4096, 4097)] == [4096, 4096, 4096, 8192]


@pytest.mark.parametrize("cause", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_tier_exceeds_no_limit_and_the_file_is_retried(cause):
    ledger = make_ledger(10 * PAGE_BYTES)

    found = ledger.classify(1, 0, TransferEnd(-cause, at_tier=True))

    assert found == (FileOutcome.RESTART, TierOutcome.FULL)
    assert has_no_failures(ledger, 1)


def test_a_vanished_tier_is_taken_out_of_service():
    ledger = make_ledger(10 * PAGE_BYTES)
    outcome = TransferEnd(-errno.ENOENT, at_tier=True)

    assert ledger.classify(0, 0, outcome) == (FileOutcome.RESTART, TierOutcome.FAILED)

    assert ledger.retire(0)
    assert not ledger.retire(0), "once"
    assert ledger.account(0).free_bytes == 0
    assert repr(ledger) == "<Ledger 0+0/40960 lost>"


def test_a_tier_is_taken_out_of_service_at_its_first_error():
    ledger = make_ledger(10 * PAGE_BYTES)
    outcome = TransferEnd(-errno.EIO, at_tier=True)

    assert ledger.classify(0, 0, outcome) == (FileOutcome.RESTART, TierOutcome.FAILED)
    assert has_no_failures(ledger, 0)


@pytest.mark.parametrize("cause", [errno.EMFILE, errno.ENFILE, errno.ENOMEM])
@pytest.mark.parametrize("at_tier", [False, True])
def test_a_lack_of_resources_is_no_fault_of_a_file_or_a_tier(cause, at_tier):
    ledger = make_ledger(10 * PAGE_BYTES)
    outcome = TransferEnd(-cause, at_tier=at_tier)

    seen = {ledger.classify(7, 0, outcome) for _ in range(10)}

    assert seen == {(FileOutcome.POSTPONE, TierOutcome.UNCHANGED)}
    assert has_no_failures(ledger, 7)


def test_a_transfer_that_is_no_longer_needed_is_no_failure():
    ledger = make_ledger(10 * PAGE_BYTES)
    outcome = TransferEnd(-errno.ECANCELED, at_tier=True)

    seen = {ledger.classify(7, number, outcome) for number in range(10)}

    assert seen == {(FileOutcome.RETRY, TierOutcome.UNCHANGED)}
    assert has_no_failures(ledger, 7)


def test_an_origin_that_cancels_reads_is_given_up_as_after_other_errors():
    ledger = make_ledger(10 * PAGE_BYTES)
    outcome = TransferEnd(-errno.ECANCELED)

    verdicts = [ledger.classify(7, number, outcome)[0] for number in (4, 5)]

    assert verdicts == [FileOutcome.RETRY, FileOutcome.GIVE_UP]


def test_a_copy_that_does_not_verify_is_no_fault_of_its_tier():
    ledger = make_ledger(10 * PAGE_BYTES)
    outcome = TransferEnd(-errno.EBADMSG, at_tier=True)

    assert ledger.classify(7, 0, outcome) == (FileOutcome.RETRY, TierOutcome.UNCHANGED)


def test_a_file_is_given_up_after_its_second_failure():
    ledger = make_ledger(10 * PAGE_BYTES)
    outcome = TransferEnd(-errno.EIO)

    verdicts = [ledger.classify(7, number, outcome)[0] for number in (4, 5)]

    assert verdicts == [FileOutcome.RETRY, FileOutcome.GIVE_UP]


def test_a_success_forgives_the_failure_before_it():
    ledger = make_ledger(10 * PAGE_BYTES)
    ledger.classify(7, 4, TransferEnd(-errno.EIO))

    # The Transfer with the generation in between has not failed.
    assert ledger.classify(7, 6, TransferEnd(-errno.EIO))[0] is FileOutcome.RETRY


def test_failures_in_a_row_are_counted_across_the_wrap_of_generations():
    ledger = make_ledger(10 * PAGE_BYTES)
    last = native.generation(native.CONSTANTS["STATE_GENERATION"])

    ledger.classify(7, last, TransferEnd(-errno.EIO))

    assert ledger.classify(7, 0, TransferEnd(-errno.EIO))[0] is FileOutcome.GIVE_UP


@pytest.mark.parametrize("cause", [errno.ESTALE, errno.ENOENT])
def test_a_changed_or_removed_origin_is_no_failure_of_the_file(cause):
    ledger = make_ledger(10 * PAGE_BYTES)

    assert ledger.classify(7, 0, TransferEnd(-cause))[0] is FileOutcome.CHANGED
    assert has_no_failures(ledger, 7)


def test_a_leftover_that_does_not_verify_is_staged_anew():
    ledger = make_ledger(10 * PAGE_BYTES)
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


def test_tiers_take_no_more_together_than_there_is_room_for():
    ledger = make_ledger(2 * PAGE_BYTES, 10 * PAGE_BYTES)

    ledger.admit([0, 1], 5 * PAGE_BYTES)

    capacities = [account.capacity_bytes for account in ledger.accounts]
    assert capacities == [2 * PAGE_BYTES, 3 * PAGE_BYTES]

    ledger.admit([0, 1], -PAGE_BYTES)
    assert [account.capacity_bytes for account in ledger.accounts] == [0, 0]

    ledger.admit([0, 1], 100 * PAGE_BYTES)
    capacities = [account.capacity_bytes for account in ledger.accounts]
    assert capacities == [2 * PAGE_BYTES, 10 * PAGE_BYTES]


def test_spare_room_does_not_enlarge_a_shrunk_tier():
    ledger = make_ledger(10 * PAGE_BYTES)
    ledger.admit([0], 5 * PAGE_BYTES)
    ledger.set_limit(0, 8 * PAGE_BYTES)
    assert ledger.account(0).capacity_bytes == 5 * PAGE_BYTES

    ledger.admit([0], 100 * PAGE_BYTES)
    assert ledger.account(0).capacity_bytes == 8 * PAGE_BYTES

    ledger.shrink(0)
    ledger.admit([0], 100 * PAGE_BYTES)
    assert ledger.account(0).capacity_bytes == 0


def test_a_file_being_written_needs_room_and_an_offered_replica_has_it(
    tmp_path,
):
    stage = make_stage(tmp_path, [PAGE_BYTES] * 6, capacities=(6 * PAGE_BYTES,))
    stage.ask(0)

    stage.stager.admit(3 * PAGE_BYTES)
    assert stage.account(0).free_bytes == 2 * PAGE_BYTES

    stage.stager.admit(6 * PAGE_BYTES)
    assert stage.stager.offer(1, 0)
    stage.stager.admit(3 * PAGE_BYTES)
    assert stage.account(0).free_bytes == 3 * PAGE_BYTES


def test_the_tightest_limit_bounds_staging_until_memory_is_read_again(
    tmp_path, monkeypatch
):
    stage = make_stage(tmp_path, [PAGE_BYTES] * 6, capacities=(1 << 20,))
    machine = Memory(1 << 30, 1 << 20)
    levels = [machine, Memory(100 * PAGE_BYTES, 88 * PAGE_BYTES)]
    monkeypatch.setattr(staging, "read_memory", lambda: levels)
    guard = staging.MemoryGuard(stage.stager)

    assert not guard.check()
    stage.ask(0, 1, 2)

    assert stage.ordered() == [(0, 0), (1, 0)]
    levels[1] = Memory(100 * PAGE_BYTES, 80 * PAGE_BYTES)
    guard.check()
    stage.ask(3)
    assert stage.ordered()[2:] == [(3, 0)]


@given(st.lists(st.integers(0, 2**62)))
def test_footprints_of_many_files_are_those_of_each(sizes):
    found = footprints(np.array(sizes, np.uint64))

    assert found.tolist() == [footprint(size) for size in sizes]


def test_the_account_of_the_pool_follows_those_of_the_tiers():
    table = Table(table_files([PAGE_BYTES] * 3), 1, 0)
    table.set_capacity(0, PAGE_BYTES)
    table.set_capacity(1, 2 * PAGE_BYTES)
    ledger = Ledger(table, 1)

    assert table.offer(0, 0)

    assert ledger.accounts == [Account(PAGE_BYTES, 0, PAGE_BYTES, True)]
    assert ledger.account(1) == Account(2 * PAGE_BYTES, 0, 0, True)
    assert ledger.classify(3, 1, TransferEnd(-errno.ENOSPC, at_tier=True)) == (
        FileOutcome.RESTART,
        TierOutcome.FULL,
    )


@pytest.mark.parametrize("codec", ["plain", "lz4"])
def test_the_announced_capacity_is_that_of_the_table(tmp_path, codec):
    """Else a Placement fills a Tier with Files of which the last find no room."""
    section = TierSection(name="ssd", kind="ssd", path=str(tmp_path), codec=codec)
    settings = TierSettings.of(0, section)
    tier = SsdTier(settings, "job.n")
    tier.capacity_bytes = 100 * PAGE_BYTES
    table = Table(table_files([PAGE_BYTES]), 1, 0)
    codecs = {0: CodecInUse(codec)} if codec == "lz4" else {}

    storage = Storage([tier], table, codecs=codecs)

    assert storage.ledger.account(0).capacity_bytes == tier.usable_bytes
    assert (tier.usable_bytes < tier.capacity_bytes) == (codec == "lz4")
