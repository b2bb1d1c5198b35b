"""The share of a node: the files, whole or in part, that it keeps, has and lacks."""

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from monarch import native
from monarch.catalog.presence import PresentPages, plan_presence
from monarch.native import CONSTANTS, Reason, ReplicaState, state_word
from monarch.placement import Node
from monarch.stager import (
    FileTable,
    Policy,
    Progress,
    ProgressMeter,
    Replicas,
    Share,
    WrittenMarks,
)
from monarch.stager.node_share import Lack
from support.placements import EXTENT_BYTES, place_sizes, units_of

PAGE_BYTES = CONSTANTS["PAGE_BYTES"]
EXTENT_PAGES = CONSTANTS["EXTENT_PAGES"]
HUGE = 200 * EXTENT_BYTES + 64 * PAGE_BYTES + 5
SIZES = np.array([PAGE_BYTES, HUGE, 3 * PAGE_BYTES, 2 * EXTENT_BYTES], np.uint64)
NEVER = 1 << 62


@dataclass(frozen=True)
class Site:
    """A node with its words and Pages, which a test writes."""

    policy: Policy
    words: np.ndarray
    replicas: Replicas

    @property
    def share(self) -> Share:
        """The share of the node at this moment."""
        return Share.of(self.replicas, self.policy, 1)

    def set(self, file: int, state: ReplicaState, reason: Reason = Reason.NONE) -> None:
        """Set the state of a File."""
        self.words[file] = state_word(state, reason=reason)

    def fill(self, file: int, part: float = 1.0) -> int:
        """Set the Pages of the first Extents that it keeps; return their bytes."""
        pages, units = self.replicas.pages, self.policy.units
        first = int(pages.first[np.flatnonzero(pages.files == file)[0]])
        kept = np.flatnonzero(self.policy.kept[units.first[file] :][: units_in(file)])
        kept = kept[: int(part * len(kept))]
        size, filled = int(SIZES[file]), 0
        for extent in kept.tolist():
            length = min(EXTENT_BYTES, size - extent * EXTENT_BYTES)
            held = np.arange(EXTENT_PAGES) < -(-length // PAGE_BYTES)
            bits = np.packbits(held, bitorder="little")
            pages.words[first + extent] = bits.view(np.uint64)
            filled += length
        return filled


def units_in(file: int) -> int:
    return -(-int(SIZES[file]) // EXTENT_BYTES)


def make(policy: Policy, above: int = EXTENT_BYTES) -> Site:
    """A node on which nothing was staged."""
    plan = plan_presence(SIZES, above, 0)
    count = int(plan.first[-1])
    table = FileTable(
        sizes=SIZES,
        words=np.zeros(len(SIZES), np.uint32),
        marks=WrittenMarks(np.zeros(1, np.uint8), np.zeros(4, np.uint8), print),
        name_of=str,
        inodes_of=lambda files, tier: [],
        inodes_in=lambda tier: [],
        pages=PresentPages(
            plan.files,
            plan.first,
            np.zeros((count, 32), np.uint64),
            np.zeros(len(plan.files), native.DTYPES["part"]),
            np.zeros(count, np.uint8),
        ),
    )
    return Site(policy, table.words, Replicas(table))


@pytest.fixture
def spread():
    """A node of four that hold everything, the huge File in parts."""
    nodes = [Node(f"n{number}", 60 * EXTENT_BYTES) for number in range(4)]
    return place_sizes(nodes, SIZES)


@pytest.fixture
def site(spread):
    return make(Policy.cluster(spread, 1))


def kept_bytes(site: Site, file: int) -> int:
    units = site.policy.units
    mine = site.policy.kept & (units.file_of == file)
    return int(units.spread(SIZES)[mine].sum())


def test_files_kept_whole_and_in_part_are_distinguished(spread):
    shares = [make(Policy.cluster(spread, own)).share for own in range(4)]

    assert all(1 in share.kept_in_part.tolist() for share in shares)
    assert all(1 not in share.kept.tolist() for share in shares)
    small = np.concatenate([share.kept for share in shares]).tolist()
    assert {0, 2} <= set(small)
    assert all(len(share.partly_placed) == 0 for share in shares)
    assert all(len(share.unplaced) == 0 for share in shares)


def test_a_partly_kept_file_lacks_its_missing_pages(site):
    wanted = kept_bytes(site, 1)
    for file in (0, 2, 3):
        site.set(file, ReplicaState.READY)
    assert site.share.lacking == {Reason.NONE: Lack(1, wanted)}

    site.set(1, ReplicaState.STAGING)
    filled = site.fill(1, 0.5)

    assert 0 < filled < wanted
    assert site.share.part_bytes == filled
    assert site.share.lacking == {Reason.NONE: Lack(1, wanted - filled)}
    assert site.share.may_come


def test_a_partly_kept_file_lacks_nothing_once_its_part_is_staged(site):
    for file in (0, 2, 3):
        site.set(file, ReplicaState.READY)
    site.set(1, ReplicaState.STAGING)

    assert site.fill(1) == kept_bytes(site, 1)

    assert site.share.lacking == {}
    assert not site.share.may_come
    assert site.share.part_bytes == kept_bytes(site, 1)


def test_the_last_page_of_a_file_counts_with_its_own_length():
    alone = Policy.alone(units_of(SIZES, NEVER))
    site = make(alone)
    for file in (0, 2, 3):
        site.set(file, ReplicaState.READY)
    site.set(1, ReplicaState.STAGING)

    last = int(site.replicas.pages.first[1]) - 1
    block, page = divmod((HUGE - 1) // PAGE_BYTES % EXTENT_PAGES, 64)
    site.replicas.pages.words[last, block] = 1 << page

    assert site.share.lacking == {Reason.NONE: Lack(1, HUGE - 5)}


def test_a_part_that_cannot_be_staged_is_lacking_for_its_reason(site):
    site.set(1, ReplicaState.ABSENT, Reason.NO_ROOM)

    assert site.share.lacking[Reason.NO_ROOM] == Lack(1, kept_bytes(site, 1))


def test_a_file_that_is_ready_is_not_held_in_part(site):
    site.set(1, ReplicaState.READY)

    share = site.share

    assert share.ready.tolist() == [1]
    assert share.kept_in_part.tolist() == []
    assert share.part_bytes == 0
    lacking = {0, 2, 3} & set(share.kept.tolist())
    assert sum(lack.files for lack in share.lacking.values()) == len(lacking)


def test_files_without_room_anywhere_are_counted_by_their_extents():
    nodes = [Node(f"n{number}", 20 * EXTENT_BYTES) for number in range(4)]
    placement = place_sizes(nodes, SIZES)

    share = make(Policy.cluster(placement, 2)).share

    left = ~placement.placed & (placement.units.file_of == 1)
    assert share.partly_placed.tolist() == [1]
    assert share.left_bytes == int(placement.units.spread(SIZES)[left].sum())
    assert share.left_bytes > 100 * EXTENT_BYTES


def test_a_node_alone_keeps_large_files_whole_and_lacks_the_missing_bytes():
    site = make(Policy.alone(units_of(SIZES, NEVER)))
    assert site.share.kept.tolist() == [0, 1, 2, 3]
    for file in (0, 2):
        site.set(file, ReplicaState.READY)
    for file in (1, 3):
        site.set(file, ReplicaState.STAGING)
    filled = site.fill(3)

    assert filled == EXTENT_BYTES
    assert site.share.lacking == {Reason.NONE: Lack(2, HUGE + EXTENT_BYTES)}
    assert site.share.kept_in_part.tolist() == []


def test_a_small_file_on_its_way_is_not_lacking():
    site = make(Policy.alone(units_of(SIZES, NEVER)), above=NEVER)
    for file in range(4):
        site.set(file, ReplicaState.STAGING)

    assert site.share.lacking == {}


def test_nodes_that_serve_other_files_in_part_count_what_they_have(spread):
    site = make(Policy.cluster(spread, 1), above=50 * EXTENT_BYTES)

    lacking = site.share.lacking[Reason.NONE]

    units = site.policy.units
    assert lacking.bytes == int(units.spread(SIZES)[site.policy.kept].sum())


def progress(site: Site) -> Progress:
    """The progress of a node whose Tiers have room for everything."""
    account = SimpleNamespace(capacity_bytes=1 << 40, used_bytes=0, in_service=True)
    ledger = SimpleNamespace(accounts=[account])
    stager: Any = SimpleNamespace(
        replicas=site.replicas,
        policy=site.policy,
        storage=SimpleNamespace(
            tiers=[None], ledger=ledger, packed_in=lambda: np.zeros(0, np.intp)
        ),
    )
    return ProgressMeter().measure(stager)


def test_progress_counts_the_pages_of_partly_kept_files(site):
    wanted, kept = kept_bytes(site, 1), progress(site).kept_bytes
    site.set(1, ReplicaState.STAGING)
    there = site.fill(1, 0.5)

    assert 0 < there < wanted
    assert progress(site).bytes == there
    assert progress(site).coming_bytes == kept - there
    site.replicas.pages.parts["pieces"][0] = 1  # no Tier can hold all of it
    assert progress(site).coming_bytes == kept - wanted
    site.set(1, ReplicaState.READY)
    assert progress(site).bytes == wanted


def test_pieces_on_a_node_alone_do_not_become_a_whole_file():
    site = make(Policy.alone(units_of(SIZES, NEVER)))
    site.set(1, ReplicaState.STAGING)
    words = site.replicas.pages.words
    words[:3] = 2**64 - 1
    site.replicas.pages.parts["pieces"][0] = 1

    found = progress(site)

    assert found.bytes == 3 * EXTENT_BYTES
    assert found.coming_bytes == int(SIZES.sum()) - HUGE
