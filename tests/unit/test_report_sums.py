"""The sums of a job's report are exact for any counts of its nodes."""

import json
from collections import Counter
from dataclasses import fields, replace

from hypothesis import given, settings
from hypothesis import strategies as st

from monarch.native import COUNTERS
from monarch.report import (
    PeerFigures,
    ProcessFigures,
    TierFigures,
    Unstaged,
    WaitBucket,
    WaitTotal,
    encode_node_report,
    merge,
    render,
)
from monarch.report.node_report import decode_node_report
from support.figures import node

counts = st.integers(0, 2**50)
PEER_COUNTS = [counts] * len(fields(PeerFigures)[3:])
some_counters = st.fixed_dictionaries({spec.name: counts for spec in COUNTERS})


@st.composite
def parts_of_jobs(draw):
    names = tuple(f"n{n}" for n in range(draw(st.integers(2, 4))))
    tiers = draw(st.integers(0, 3))
    return [
        replace(
            node(number, names),
            counters=draw(some_counters),
            tally={name: draw(counts) for name in node(0, names).tally},
            tiers=tuple(
                TierFigures(
                    f"t{n}",
                    "ram",
                    capacity_bytes=draw(counts),
                    used_bytes=draw(counts),
                    files=draw(counts),
                    in_service=draw(st.booleans()),
                )
                for n in range(tiers)
            ),
            processes=tuple(
                ProcessFigures(*one)
                for one in draw(
                    st.lists(
                        st.tuples(st.text(max_size=4), st.booleans(), counts),
                        max_size=4,
                    )
                )
            ),
            waits=tuple(
                WaitBucket(n * 10, n * 10 + 10, draw(counts)) for n in range(3)
            ),
            wait_totals=(WaitTotal("origin", draw(counts)),),
            pool_capacity_bytes=draw(counts),
            pool_used_bytes=draw(counts),
            unslotted=draw(counts),
            unstaged=tuple(Unstaged(r, draw(counts), draw(counts)) for r in "ab"),
            peers=tuple(
                PeerFigures(n, names[n], "joined", *draw(st.tuples(*PEER_COUNTS)))
                for n in range(len(names))
                if n != number
            ),
        )
        for number in range(len(names))
    ]


def summed(counts):
    """Figures added up by name."""
    total: Counter[str] = Counter()
    for one in counts:
        total.update(one)
    return total


@settings(max_examples=40, deadline=None)
@given(parts_of_jobs(), st.data())
def test_the_report_of_a_job_is_the_sum_of_its_parts(parts, data):
    own = data.draw(st.sampled_from(parts))
    sent = {part.number: encode_node_report(part) for part in parts}

    report = merge(own, sent)
    json.dumps(report, allow_nan=False)
    render(report)

    assert report["counters"] == summed(part.counters for part in parts)
    assert report["agent"] == summed(part.tally for part in parts)
    for name in ("capacity_bytes", "used_bytes"):
        pools = [getattr(part, f"pool_{name}") for part in parts]
        assert report["transit"][name] == sum(pools)
    assert report["coverage"]["unslotted"] == sum(part.unslotted for part in parts)
    assert report["coverage"]["processes"] == report["coverage"]["untracked"] + sum(
        process.count for part in parts for process in part.processes
    )
    assert report["waits"]["count"] == sum(
        bucket.count for part in parts for bucket in part.waits
    )
    unstaged = Counter({row["reason"]: row["files"] for row in report["unstaged"]})
    assert unstaged == summed({u.reason: u.files} for p in parts for u in p.unstaged)
    assert report["exchange"]["served_bytes"] == sum(
        peer.served_bytes for part in parts for peer in part.peers
    )


@settings(max_examples=40, deadline=None)
@given(parts_of_jobs())
def test_the_tiers_of_a_job_are_those_of_its_nodes_by_number(parts):
    report = merge(parts[0], {part.number: encode_node_report(part) for part in parts})

    assert len(report["tiers"]) == len(parts[0].tiers)
    for number, tier in enumerate(report["tiers"]):
        whole = [part.tiers[number] for part in parts]
        assert tier["used_bytes"] == sum(one.used_bytes for one in whole)
        assert tier["files"] == sum(one.files for one in whole)
        assert tier["capacity_bytes"] == sum(one.capacity_bytes for one in whole)
        assert tier["in_service"] == all(one.in_service for one in whole)


@settings(max_examples=40, deadline=None)
@given(parts_of_jobs(), st.data())
def test_the_rows_of_the_nodes_add_up_to_the_totals(parts, data):
    sent = {part.number: encode_node_report(part) for part in parts}

    report = merge(data.draw(st.sampled_from(parts)), sent)

    def total(name):
        return sum(row[name] for row in report["nodes"])

    assert all(row["reported"] for row in report["nodes"])
    assert total("opens") == report["hits"]["opens"]
    assert total("opened_bytes") == report["hits"]["opened_bytes"]
    assert total("processes") == report["coverage"]["processes"]
    assert total("staged_bytes") == report["staging"]["bytes"]
    assert total("origin_read_bytes") == report["origin"]["agent_read_bytes"]
    assert total("origin_bytes") == report["origin"]["programs_opened_bytes"]
    assert total("fetched_bytes") == report["exchange"]["fetched_bytes"]
    assert total("used_bytes") == sum(tier["used_bytes"] for tier in report["tiers"])
    for kind in ("hit", "peer", "packed", "miss", "origin", "blocks"):
        source = [row for row in report["sources"] if row["kind"] == kind]
        column = {"peer": "peer_hit", "blocks": "block"}.get(kind, kind)
        assert total(f"{column}_opens") == sum(row["opens"] for row in source)


@settings(max_examples=40, deadline=None)
@given(parts_of_jobs())
def test_a_fragment_brings_every_figure_that_fits(parts):
    for part in parts:
        read = decode_node_report(encode_node_report(part), part.number, parts[0])

        assert read.counters == part.counters
        assert read.peers == part.peers
        assert read.tiers == part.tiers
        assert read.wait_totals == part.wait_totals
