"""Reports that nodes send: cut to size, and refused if invalid."""

import json
import tempfile
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from monarch.cli.report import report as report_verb
from monarch.errors import UsageError
from monarch.report import (
    NODE_REPORT_BYTES_MAX,
    ErrorCount,
    Moment,
    PeerFigures,
    ProcessFigures,
    SlowCopy,
    encode_node_report,
    merge,
    render,
)
from monarch.report.model import SCHEMA
from monarch.report.node_report import NodeReportError, decode_node_report
from support.figures import FOUR, many, node


@pytest.mark.parametrize(
    ("sent", "why"),
    [
        (b"", "it is not JSON"),
        (b"[" * 100_000, "it is not JSON"),
        (b"\xff\xfe{}", "it is not JSON"),
        (b"[]", "it is not an object"),
        (b"{}", "it has other counters"),
        (b'{"fragment": 3}', "changed is missing"),
        (
            b'{"fragment": 4, "version": "9.1\\u001b[2J"}',
            "it is of version 9.1\\x1b[2J, not ",
        ),
        (b"x" * (NODE_REPORT_BYTES_MAX + 1), "it is too long"),
    ],
)
def test_an_invalid_report_names_its_node(sent, why):
    report = merge(
        node(0, FOUR),
        {n: encode_node_report(node(n, FOUR)) for n in (1, 2)} | {3: sent},
    )

    assert report["nodes"][3]["why"].startswith(f"its report is not valid: {why}")
    assert report["counters"]["opens_miss"] == 300
    assert "no report from node3: its report is not valid" in render(report)


def test_a_node_that_counts_other_things_is_not_added_up():
    other = node(1, FOUR)
    sent = encode_node_report(
        replace(other, counters={**other.counters, "opens_new": 1})
    )

    report = merge(node(0, FOUR), {1: sent})

    assert report["nodes"][1]["why"].endswith("it has other counters")


def test_a_node_cannot_report_in_anothers_name():
    report = merge(node(0, FOUR), {2: encode_node_report(node(1, FOUR))})

    assert report["nodes"][2]["why"].endswith("it is of another node")
    assert not report["nodes"][1]["reported"]


def test_long_lists_are_cut_and_their_sums_are_kept():
    names = many(2000)
    programs = tuple(
        ProcessFigures(f"/{'p' * 3000}/{n}", n % 3 > 0, n) for n in range(1000)
    )
    whole = node(7, names, processes=programs, changed=("/x" * 3000,) * 20)

    sent = encode_node_report(whole)
    read = decode_node_report(sent, 7, node(0, names))

    assert len(sent) <= NODE_REPORT_BYTES_MAX
    assert len(read.peers) < 100 < len(whole.peers)
    for field in fields(PeerFigures)[3:]:
        sums = [sum(getattr(p, field.name) for p in s.peers) for s in (whole, read)]
        assert sums[0] == sums[1]
    for active in (False, True):
        counts = [
            sum(p.count for p in s.processes if p.active is active)
            for s in (whole, read)
        ]
        assert counts[0] == counts[1]


def test_peers_with_trouble_are_the_last_to_be_left_out():
    names = many(2000)
    peers = list(node(0, names).peers)
    peers[1500] = replace(peers[1500], fetched_bytes=0, breaker_opened=1)

    read = decode_node_report(
        encode_node_report(node(0, names, peers=tuple(peers))), 0, node(1, names)
    )

    assert peers[1500] in read.peers


anything = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=5)
    | st.just("\x1b[2J\ud800"),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=5,
)


RECORDED: dict[str, Any] = {
    "moments": (
        Moment(1.0, ready=3, waited=4, tiers=(4096,)),
        Moment(2.0, ready=9, waited=4, staged_bytes=7, tiers=(8192,)),
    ),
    "slowest": (SlowCopy("/pfs/a", 1.5, 10),),
    "errors": (ErrorCount("EIO", "read", 2, "/pfs/b"),),
}


@pytest.mark.parametrize(
    ("moments", "why"),
    [
        ([[1.0, *[0] * 7, [1, 2]]], "a sample has too many tiers"),
        ([[2.0, *[0] * 7, []], [1.0, *[0] * 7, []]], "its samples are not in order"),
        ([[1.0, *[0] * 7, []]] * 129, "it has 129 samples"),
        ([[1.0, *[0] * 6, []]], "Moment needs 9 values"),
        ([[1.0, *[0] * 7, [-1]]], "a value is not valid"),
    ],
)
def test_samples_that_no_agent_makes_are_refused(moments, why):
    document = json.loads(encode_node_report(node(1, FOUR)))

    with pytest.raises(NodeReportError, match=why):
        decode_node_report(
            json.dumps(document | {"moments": moments}).encode(), 1, node(0, FOUR)
        )


def test_recorded_samples_of_a_node_arrive():
    part = node(1, FOUR, **RECORDED)

    read = decode_node_report(encode_node_report(part), 1, node(0, FOUR))

    assert {name: getattr(read, name) for name in RECORDED} == RECORDED


def damaged(document, data):
    """Put anything in the place of some part of a document."""
    place = document
    while True:
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        if not keys:
            return
        key = data.draw(st.sampled_from(keys))
        if data.draw(st.booleans()) or not isinstance(place[key], dict | list):
            place[key] = data.draw(anything)
            return
        place = place[key]


@settings(deadline=None)
@given(st.data())
def test_the_report_can_be_written_whatever_a_node_sends(data):
    document = json.loads(encode_node_report(node(1, FOUR, **RECORDED)))
    for _ in range(data.draw(st.integers(1, 3))):
        damaged(document, data)

    report = merge(node(0, FOUR), {1: json.dumps(document).encode()})

    json.dumps(report, allow_nan=False)
    text = render(report)
    assert text.replace("\n", "").isprintable()
    row = report["nodes"][1]
    assert row["reported"] or f"  no report from node1: {row['why'][:20]}" in text


@settings(deadline=None)
@given(st.data())
def test_a_report_of_a_job_that_was_edited_is_printed_or_refused(data):
    parts = [node(number, FOUR, **RECORDED) for number in range(3)]
    sent = {part.number: encode_node_report(part) for part in parts[1:]}
    report = json.loads(json.dumps(merge(parts[0], sent)))
    damaged(report, data)
    report["schema"] = SCHEMA

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "r.json"
        path.write_text(json.dumps(report))
        result = CliRunner().invoke(report_verb, [str(path)])

    assert result.exit_code == 0 or isinstance(result.exception, UsageError)


@settings(deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_are_a_report_or_refused(sent):
    with pytest.raises(NodeReportError):
        decode_node_report(sent, 1, node(0, FOUR))
