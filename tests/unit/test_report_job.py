"""The report of a job of several nodes: exact sums, and every node accounted for."""

import json
from dataclasses import replace

import pytest
from click.testing import CliRunner

from monarch.cli.report import report as report_verb
from monarch.report import (
    FillFigures,
    PeerFigures,
    TierFigures,
    encode_node_report,
    merge,
    read_report,
    render,
    summarize,
    write_report,
)
from monarch.report.format import WIDTH, plain_text
from monarch.report.node_table import ROWS_MAX, node_parts, served_amount
from support.figures import FOUR, JOB, MIB, many, node, snapshot


def job(names=FOUR, own=0, lacking=(), **changed):
    """The report of a job; `changed` replaces figures of nodes, as in node2={...}."""
    parts = [
        node(number, names, **changed.get(name, {}))
        for number, name in enumerate(names)
    ]
    sent = {
        number: encode_node_report(part)
        for number, part in enumerate(parts)
        if number not in (own, *lacking)
    }
    return merge(parts[own], sent)


def test_the_headline_covers_all_nodes():
    text = render(job())

    assert text.startswith(
        "monarch: active in 16 of 16 processes on 4 nodes; 90.9% of 17,600 opens were\n"
        "  ready without waiting; 40.0 MiB read from the origin (0.20 x the dataset).\n"
    )


def test_a_report_of_several_nodes_fits_a_terminal():
    plain = replace(JOB, plain="for a reason that takes some room", node="n0")

    for report in (job(node2={"run": plain}), summarize(node(0, FOUR))):
        assert max(map(len, render(report).splitlines())) <= WIDTH


def test_each_node_has_a_line_and_all_together_one():
    lines = plain_text(node_parts(job())).splitlines()

    assert lines[1].split()[:3] == ["node0", "4,400", "90.9%"]
    assert lines[5].split() == [
        *("all", "17,600", "90.9%", "6.8%"),
        *("40.0", "MiB", "120.0", "MiB", "120.0", "MiB", "19.5%"),
    ]
    assert lines[6] == (
        "  served to peers: 1,200 files, 120.0 MiB; most by node0 (1.00 x the mean)"
    )


def test_a_job_of_one_node_reports_as_that_node_does():
    alone = snapshot({"opens_miss": 5})

    assert merge(alone, {}) == summarize(alone)
    assert "node" not in render(merge(alone, {}))


def test_a_node_that_prints_its_own_report_names_the_others():
    peers = (
        PeerFigures(0, "node0", "joined", fetched_files=3, fetched_bytes=3 * MIB),
        PeerFigures(2, "node2", "left", fetch_failures=4, breaker_opened=1),
    )

    text = render(summarize(node(1, FOUR, peers=peers)))

    assert "processes on node1, one of 4 nodes; " in text
    assert [line.split() for line in text.splitlines() if "node2" in line] == [
        ["node2", "0", "B", "0", "B", "4", "1"],
        ["node2:", "left"],
    ]


@pytest.mark.parametrize(
    ("standing", "why"),
    [
        ("left", "left before the job ended"),
        ("never joined", "never joined"),
        ("joined", "its report did not arrive in time"),
    ],
)
def test_a_node_with_a_missing_report_is_named(standing, why):
    peers = node(0, FOUR).peers
    told = (*peers[:2], replace(peers[2], standing=standing))

    report = job(lacking=[3], node0={"peers": told})
    text = render(report)

    assert "processes on 3 of 4 nodes; " in text
    told_why = f" no report from node3: {why}; peers fetched 30.0 MiB from there "
    assert told_why in " ".join(text.split())
    assert report["nodes"][3]["fetched_from_it_bytes"] == 30 * MIB


def test_trouble_is_reported_with_its_nodes():
    tally = {**node(2, FOUR).tally, "evicted_files": 7}
    lost = (TierFigures("ram", "ram", MIB, 0, 0, False),)
    plain = replace(JOB, plain="the catalog takes longer than 1.0 s")

    text = render(
        job(node1={"run": plain}, node2={"tally": tally}, node3={"tiers": lost})
    )

    assert "  7 files evicted to stay below the memory limit on node2\n" in text
    assert "6,000 replicas; out of service on node3 " in " ".join(text.split())
    assert (
        "  nothing was staged on node1: the catalog takes longer than 1.0 s\n" in text
    )


def test_a_node_that_was_cut_off_does_not_replace_the_report_of_the_others(tmp_path):
    path = tmp_path / "r.json"
    others = job(lacking=[2])
    cut_off = job(own=2, lacking=[0, 1, 3])

    assert write_report(path, others) == path
    assert write_report(path, cut_off) == tmp_path / "r.node2.json"
    assert write_report(path, job()) == path

    assert read_report(tmp_path / "r.node2.json") == cut_off
    assert read_report(path) == job()


EARLIER = replace(JOB, started_s=JOB.started_s - 3600)


@pytest.mark.parametrize(
    "lies_there",
    [
        job(**{f"node{n}": {"run": EARLIER} for n in range(4)}),
        job(node0={"run": replace(JOB, job="8.0")}),
        {"schema": 1, "run": None},
        {"schema": 1, "run": {"job": "7.0", "started_s": "2 o'clock"}},
    ],
    ids=["earlier", "other", "none", "odd"],
)
def test_any_other_file_at_the_path_of_a_report_is_replaced(tmp_path, lies_there):
    path = tmp_path / "r.json"
    path.write_text(json.dumps(lies_there))

    assert write_report(path, job(own=2, lacking=[0, 1, 3])) == path


def test_the_transit_pool_is_reported_where_files_pass_through_it():
    counters = {**node(0, FOUR).counters, "opens_hit_tier1": 8, "bytes_hit_tier1": MIB}
    tally = {**node(0, FOUR).tally, "transit_files": 5, "transit_bytes": 2 * MIB}
    pool = {"pool_capacity_bytes": 64 * MIB, "pool_used_bytes": MIB}

    report = job(node0={"counters": counters, "tally": tally, **pool}, node1=pool)
    lines = render(report).splitlines()

    assert "  transit pool of 128.0 MiB: 5 files, 2.0 MiB" in lines
    assert "  transit pool                             8        1.0 MiB" in lines
    assert report["nodes"][0]["hit_opens"] == 4008
    assert not [line for line in render(job()).splitlines() if "transit" in line]


def test_the_concurrency_of_fill_is_reported_as_the_range_of_the_nodes():
    fills = {
        "node1": {"fill": FillFigures(24, 24, found=True)},
        "node2": {"fill": FillFigures(9, 9, found=True)},
    }

    report = job(**fills)

    line = "  fill: 9 to 24 files at once per node, found by measuring the origin"
    assert line in render(report).splitlines()
    assert report["staging"]["concurrency"] == {"least": 9, "most": 24, "found": True}
    assert "  fill:" not in render(job())


def test_breakers_are_reported_by_peer():
    peers = {
        number: {
            "peers": tuple(
                replace(peer, breaker_opened=2, breaker_closed=1)
                if peer.number == 3
                else peer
                for peer in node(number, FOUR).peers
            )
        }
        for number in (0, 1)
    }

    report = job(node0=peers[0], node1=peers[1])

    assert [(e["node"], e["peer"], e["opened"]) for e in report["breakers"]] == [
        (0, 3, 2),
        (1, 3, 2),
    ]
    assert "  node3 suspended 4 times by 2 nodes, resumed 2 times\n" in render(report)


def test_imbalance_is_the_most_over_the_mean_of_what_was_served():
    peers = node(1, FOUR).peers
    told = tuple(replace(peer, served_bytes=50 * MIB) for peer in peers)

    imbalance = job(node1={"peers": told})["imbalance"]

    assert imbalance["busiest"] == 1
    assert imbalance["served_max_over_mean"] == pytest.approx(150 / (240 / 4))


def test_the_table_of_many_nodes_shows_the_extremes_and_fits():
    names = many(300)
    plain = {names[77]: {"run": replace(JOB, plain="no " * 60)}}
    counts = {**node(0, names).counters, "opens_hit_tier0": 10**9}

    report = job(
        names, lacking=range(200, 290), **plain, **{names[5]: {"counters": counts}}
    )
    lines = plain_text(node_parts(report)).splitlines()

    assert max(map(len, render(report).splitlines())) <= WIDTH
    assert len(lines) < 2 * ROWS_MAX
    assert any(line.startswith("  gpu-0005         1,000 M  99.9%") for line in lines)
    assert any(
        " more nodes are between these in each column; " in line for line in lines
    )
    assert any(
        "no report from gpu-0200, gpu-0201, gpu-0202 and 87 more:" in line
        for line in lines
    )
    assert [row["name"] for row in report["nodes"]] == list(names)


def test_one_node_is_shown_alone_with_its_traffic_to_each_other_node(tmp_path):
    path = tmp_path / "r.json"
    tally = {**node(2, FOUR).tally, "evicted_files": 7}
    write_report(path, job(lacking=[3], node2={"tally": tally}))

    def told(*words):
        return CliRunner().invoke(report_verb, [str(path), *words])

    lines = told("--node", "node2").output.splitlines()
    assert lines[0] == "monarch: active in 4 of 4 processes on node2"
    assert "  served to peers: 300 files, 30.0 MiB" in lines
    assert [line.split()[0] for line in lines if line.endswith(" 0          0")] == [
        *("node0", "node1", "node3")
    ]
    assert lines[-1] == "  7 files evicted to stay below the memory limit"
    assert max(map(len, lines)) <= WIDTH
    assert told("--node", "node3").output.startswith("  no report from node3: ")
    assert json.loads(told("--node", "node0", "--json").output)["opens"] == 4400
    refused = told("--node", "node9").exception
    assert str(refused) == "the report does not contain node 'node9'"


def test_ranges_of_large_files_that_went_to_peers_are_not_counted_as_files():
    def served(files, ranges):
        row = {"served_files": files, "served_ranges": ranges, "served_bytes": 1 << 20}
        return served_amount(row)

    assert served(0, 1) == "1 range of large files, 1.0 MiB"
    assert served(2, 1200) == "2 files, 1,200 ranges of large files, 1.0 MiB"
    assert served(0, 0) == "0 files, 1.0 MiB"
    assert served_amount({"served_files": 1, "served_bytes": 0}) == "1 file, 0 B"
