"""Which integrity a job uses, which nodes may take part, and the key of its seals."""

from typing import Any

import pytest

from monarch.agent.job_spec import (
    Integrity,
    JobSpec,
    choose_integrity,
    integrity_conflict,
    make_job_spec,
    no_seals_warning,
    seal_key,
)
from monarch.config import ColdOpen, Config, Peers
from monarch.errors import MonarchError
from monarch.peers.protocol import Member, Standing, View
from monarch.placement import Mode, Node

MAC, CHECKSUM = Integrity.MAC, Integrity.CHECKSUM


@pytest.mark.parametrize(
    ("wish", "able", "expected"),
    [
        ("auto", [True, True], MAC),
        ("auto", [True, False], CHECKSUM),
        ("mac", [True, False], MAC),
        ("checksum", [True, True], CHECKSUM),
    ],
)
def test_a_fixed_integrity_is_never_reduced_and_auto_depends_on_all_nodes(
    wish, able, expected
):
    assert choose_integrity(wish, able) is expected


@pytest.mark.parametrize(
    ("agreed", "wish", "able", "reason"),
    [
        (MAC, "auto", True, ""),
        (MAC, "mac", True, ""),
        (CHECKSUM, "auto", True, ""),
        (CHECKSUM, "auto", False, ""),
        (CHECKSUM, "checksum", True, ""),
        (CHECKSUM, "mac", True, "peers.integrity is mac here and checksum on n0"),
        (MAC, "checksum", True, "peers.integrity is checksum here and mac on n0"),
        (MAC, "auto", False, "n0 requires peers.integrity: mac, but OpenSSL's library"),
    ],
)
def test_a_node_shares_only_on_terms_that_it_can_and_may_keep(
    agreed, wish, able, reason
):
    found = integrity_conflict(agreed, "n0", wish, can=able)

    assert found.startswith(reason)
    assert bool(found) == bool(reason)


def test_nodes_that_reduce_a_job_are_named_and_the_rest_counted():
    names = [f"n{number}" for number in range(9)]

    warning = no_seals_warning(names, [number < 4 for number in range(9)])

    assert "cannot be used on n4, n5, n6 and 2 more; install it there" in warning


def test_a_key_belongs_to_one_job_and_one_secret():
    secret = bytes(range(32))
    keys = {
        seal_key(secret, "7.0"),
        seal_key(secret, "8.0"),
        seal_key(bytes(32), "7.0"),
    }

    assert len(keys) == 3
    assert {len(key) for key in keys} == {32}
    assert secret not in keys
    assert seal_key(secret, "7.0") == seal_key(secret, "7.0")


def view_of(*seals: bool) -> View:
    """Nodes that are there, some of which can make seals."""
    return View(
        tuple(
            Member(number, Standing.JOINED, capacities=(10,), seals=can)
            for number, can in enumerate(seals)
        )
    )


def test_a_job_spec_assigns_no_files_to_nodes_that_cannot_seal(monkeypatch):
    monkeypatch.setattr("monarch.agent.job_spec.catalog_digest", lambda *_: 5)
    names, view = ["n0", "n1"], view_of(True, False)

    demanded = make_job_spec(names, view, Config(peers=Peers(integrity="mac")), [])
    usual = make_job_spec(names, view, Config(), [])

    assert demanded.integrity is MAC
    assert [node.capacity_bytes for node in demanded.nodes] == [10, 0]
    assert usual.integrity is CHECKSUM
    assert [node.capacity_bytes for node in usual.nodes] == [10, 10]


@pytest.mark.parametrize(
    ("mode", "above"), [("auto", 9 << 20), ("wait", 1 << 62), ("through", 1 << 62)]
)
def test_the_first_node_decides_which_files_are_placed_by_extents(
    monkeypatch, mode, above
):
    monkeypatch.setattr("monarch.agent.job_spec.catalog_digest", lambda *_: 5)
    cold = ColdOpen.model_validate({"mode": mode, "wait_max": "9MiB"})
    config = Config(cold_open=cold)

    spec = make_job_spec(["n0"], view_of(True), config, [])

    assert spec.large_above_bytes == above


def test_a_job_spec_is_received_whole_or_refused():
    spec = JobSpec((Node("n0", 5),), Mode.PARTITION, 7, MAC, 1 << 23)
    payload: dict[str, Any] = spec.payload()
    assert JobSpec.from_payload(payload) == spec

    for wrong in (
        {**payload, "integrity": "none"},
        {**payload, "integrity": None},
        {**payload, "large_above": None},
    ):
        with pytest.raises(MonarchError, match="not valid"):
            JobSpec.from_payload(wrong)
    del payload["integrity"]
    with pytest.raises(MonarchError, match="not valid"):
        JobSpec.from_payload(payload)
