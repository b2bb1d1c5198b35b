"""Staging before a job, on nodes that are threads of this process."""

import hashlib
import os
import shutil
from collections import Counter

import numpy as np
import pytest

from monarch.errors import MonarchError, UsageError
from monarch.preload.account import Account, NodeAccount, render
from monarch.preload.crew import Solo, agreed
from monarch.preload.parcel import PIECES_MAX, Parcel, Piece, unpacked
from monarch.tiers.memory import Memory
from support.crews import Site, Wire, flip
from support.dataset import make_dataset

FILES = 60


@pytest.fixture
def data(tmp_path):
    return make_dataset(tmp_path / "dataset", files=FILES, large=2)


@pytest.fixture
def site(tmp_path, data):
    """A function that makes nodes with one Tier each, of the given capacities."""

    def make(*capacities):
        return Site(tmp_path, [data.root] * len(capacities), capacities)

    return make


def digests(paths):
    return Counter(hashlib.sha256(path.read_bytes()).hexdigest() for path in paths)


def test_each_file_is_read_by_one_node_and_lies_on_all(site, data):
    nodes = site("64MiB", "64MiB", "64MiB")

    account = nodes.stage("replicate")

    assert account.complete
    origin = [node.origin_bytes for node in account.nodes]
    assert sum(origin) == data.size_bytes
    assert all(0 < size < data.size_bytes for size in origin)
    for number in range(3):
        assert digests(nodes.retained(number)) == Counter(data.digests.values())
    assert not nodes.leftovers()


def test_a_partition_has_one_copy_and_passes_nothing_on(site, data):
    nodes = site("64MiB", "64MiB", "64MiB")

    account = nodes.stage("partition")

    assert account.complete
    held = [digests(nodes.retained(number)) for number in range(3)]
    assert sum(held, Counter()) == Counter(data.digests.values())
    assert all(held)
    assert sum(node.received_bytes for node in account.nodes) == 0
    assert sum(node.origin_bytes for node in account.nodes) == data.size_bytes


def test_as_many_copies_are_made_as_fit(site, data):
    nodes = site("13MiB", "13MiB", "13MiB")

    account = nodes.stage("auto")

    held = sum(node.held_files for node in account.nodes)
    assert account.complete
    assert len(data.digests) < held < 3 * len(data.digests)
    assert sum(node.origin_bytes for node in account.nodes) == data.size_bytes


def test_what_is_retained_is_neither_read_nor_sent_again(site, data):
    nodes = site("64MiB", "64MiB")
    nodes.stage("replicate")
    for path in nodes.retained(1)[:10]:
        path.unlink()

    account = nodes.stage("replicate")

    assert account.complete
    first, second = account.nodes
    assert first.adopted_files == len(data.digests)
    assert second.adopted_files == len(data.digests) - 10
    assert second.origin_files + second.received_files == 10
    for number in range(2):
        assert digests(nodes.retained(number)) == Counter(data.digests.values())


def test_a_damaged_leftover_is_staged_anew(site, data):
    nodes = site("64MiB")
    nodes.stage("partition")
    victim = nodes.retained(0)[0]
    os.chmod(victim, 0o600)
    content = bytearray(victim.read_bytes())
    content[0] ^= 1
    victim.write_bytes(content)
    os.chmod(victim, 0o400)

    account = nodes.stage("partition")

    assert account.complete
    assert account.nodes[0].origin_files == 1
    assert digests(nodes.retained(0)) == Counter(data.digests.values())


def test_a_byte_that_flips_between_nodes_is_noticed(site, data):
    nodes = site("64MiB", "64MiB")
    nodes.wire = Wire(2, spoil=flip)

    account = nodes.stage("replicate")

    # Those that came damaged are read from the origin once more.
    assert account.complete
    assert sum(node.origin_bytes for node in account.nodes) > data.size_bytes
    for number in range(2):
        assert digests(nodes.retained(number)) == Counter(data.digests.values())


def test_files_without_room_stay_at_the_origin(site, data):
    nodes = site("8MiB", "8MiB")

    account = nodes.stage("partition")

    assert not account.complete
    assert account.unplaced_files >= 1
    assert sum(node.held_files for node in account.nodes) < len(data.digests)
    assert "stay at the origin: no node has room" in render(account)


def test_copies_that_a_mode_asks_for_in_vain_are_counted(site, data):
    account = site("64MiB", "12MiB").stage("replicate")

    assert not account.complete
    assert account.unplaced_files == 0
    assert account.copies_short > 0
    assert "of the copies that the mode asks for have no room" in render(account)


def test_a_file_that_changes_after_the_scan_is_told_by_name(site, data):
    nodes = site("64MiB", "64MiB")
    victim = data.paths[0]
    nodes.wire = Wire(2, scanned=lambda: victim.write_bytes(b"another content"))

    account = nodes.stage("replicate")

    lacking = [node.lacking for node in account.nodes]
    assert {"changed since the scan": 1} in lacking
    assert {"could not be copied": 1} in lacking
    assert f"{victim}: " in render(account)
    for number in range(2):
        assert len(nodes.retained(number)) == len(data.digests) - 1
    assert not nodes.leftovers()


def test_replicas_that_vanish_before_they_are_sent_hold_nobody_up(site, data):
    nodes = site("64MiB", "64MiB")
    nodes.stage("replicate")
    shutil.rmtree(nodes.retained(1)[0].parent)

    def clear():
        for path in nodes.tier(0).glob("monarch-*/stage.n0/ssd/*"):
            path.unlink()

    nodes.wire = Wire(2, checked=clear)

    account = nodes.stage("replicate")

    second = account.nodes[1]
    assert second.received_files == 0
    assert second.lacking == {"could not be copied": FILES + 2 - second.origin_files}
    assert len(nodes.retained(1)) == second.origin_files
    assert not nodes.leftovers()


def test_memory_is_given_back_where_it_is_short(site, monkeypatch):
    nodes = site("64MiB")
    nodes.kind = "ram"
    nodes.settings = ("retain=node", "fill.bandwidth=20MB/s")
    # A twentieth above what may be used, whatever is given back.
    short = [Memory(limit_bytes=20 << 20, used_bytes=19 << 20)]
    monkeypatch.setattr("monarch.preload.stores.read_memory", lambda: short)

    account = nodes.stage("partition")

    assert not account.complete
    lacking = account.nodes[0].lacking
    assert lacking["removed again, because memory is short"] > 0
    assert account.nodes[0].held_files == len(nodes.retained(0))
    assert not nodes.leftovers()


def test_a_tier_without_room_for_anything_is_no_error_of_the_others(site, data):
    account = site("64MiB", "4KiB").stage("auto")

    assert account.complete
    assert account.nodes[1].held_files == 0


def test_nodes_must_stage_the_same_datasets(site, tmp_path, data):
    nodes = site("64MiB", "64MiB")
    other = make_dataset(tmp_path / "other", files=2, large=0)
    nodes.data = [data.root, other.root]

    with pytest.raises(UsageError, match="on n1 the configuration names other"):
        nodes.stage()

    assert not nodes.leftovers()


def test_a_node_that_cannot_begin_ends_the_others_without_a_loss(site, data):
    nodes = site("64MiB", "64MiB")
    nodes.stage("replicate")
    home = next(nodes.tier(1).glob("monarch-*"))
    home.chmod(0o755)

    with pytest.raises(MonarchError, match=r"on n1: .* is not private"):
        nodes.stage("replicate")

    home.chmod(0o700)
    assert nodes.stage("replicate").nodes[0].adopted_files == len(data.digests)
    assert not nodes.leftovers()


# -- parts --------------------------------------------------------------------------


def test_a_parcel_tells_what_was_packed():
    parcel = Parcel(100)
    parcel.space(3)[:] = b"abc"
    parcel.add(Piece(7, 0, 3, 0, 2**64 - 1))
    parcel.add(Piece(8, 2, 0, -5, 0))
    parcel.space(2)[:] = b"de"
    parcel.add(Piece(9, 1, 2, 0, 12))

    found = [(piece, bytes(content)) for piece, content in unpacked(parcel.packed())]

    assert found == [
        (Piece(7, 0, 3, 0, 2**64 - 1), b"abc"),
        (Piece(8, 2, 0, -5, 0), b""),
        (Piece(9, 1, 2, 0, 12), b"de"),
    ]
    assert parcel.room == 95


def test_a_parcel_holds_a_bounded_number_of_pieces():
    parcel = Parcel(100)
    for file in range(PIECES_MAX):
        assert parcel.room == 100
        parcel.add(Piece(file, 0, 0, 0, 0))

    assert parcel.room < 0
    parcel.empty()
    assert parcel.room == 100


@pytest.mark.parametrize("length", [0, 7, 100])
def test_what_is_too_short_is_no_parcel(length):
    with pytest.raises(MonarchError, match="no parcel"):
        unpacked(np.zeros(length, np.uint8))


def test_lengths_that_do_not_fit_are_refused():
    parcel = Parcel(100)
    parcel.space(3)[:] = b"abc"
    parcel.add(Piece(7, 0, 3, 0, 0))

    with pytest.raises(MonarchError, match="broken"):
        unpacked(parcel.packed()[:-1])
    many = parcel.packed()
    many[:8].view(np.uint64)[0] = PIECES_MAX + 1
    with pytest.raises(MonarchError, match="broken"):
        unpacked(many)


def test_one_node_alone_agrees_with_itself():
    def fail():
        raise UsageError("no such tier")

    assert agreed(Solo("a"), lambda: 5) == 5
    with pytest.raises(UsageError, match=r"^no such tier$"):
        agreed(Solo("a"), fail)


def test_an_account_of_many_nodes_has_a_line_for_each():
    nodes = [
        NodeAccount("a", 2, 2, 2048, 0, 1, 1024, 1, 1024),
        NodeAccount("b", 2, 1, 1024, 1, 0, 0, 0, 0, {"no room": 1}, ("/d/x: full",)),
    ]
    account = Account(2, 2048, 0, 0, 0, 1.5, tuple(nodes))

    assert render(account).splitlines() == [
        "staged 3 copies of 2 files, 2.0 KiB on 2 nodes in 1.5 s: 1.0 KiB read from "
        "the origin, 1.0 KiB passed between nodes, 1 file was there already",
        "  a: 2 files, 2.0 KiB (1 from the origin, 1 from other nodes, 0 there "
        "already)",
        "  b: 1 file, 1.0 KiB (0 from the origin, 0 from other nodes, 1 there already)",
        "b: 1 file not staged: no room",
        "b: /d/x: full",
    ]
