"""One report for the job: it agrees with external counts and names nodes."""

import json
import signal
import subprocess
from typing import Any

from support.nodes import Outcome, Plan
from support.processes import wait_until

FILES = 200
EPOCHS = 3


def rows(outcome: Outcome, name: str) -> list[Any]:
    """A column of the table of nodes."""
    return [node[name] for node in outcome.report["nodes"]]


def test_the_report_of_a_job_agrees_with_the_counts_of_the_origin(make_cluster):
    cluster = make_cluster()

    outcome = cluster.run(Plan(EPOCHS)).right(opens=4 * EPOCHS * FILES)

    report, counts = outcome.report, cluster.origin.counts()
    assert rows(outcome, "name") == ["a", "b", "c", "d"]
    assert report["origin"]["agent_read_bytes"] == counts.read_bytes
    assert report["hits"]["opens"] == 4 * EPOCHS * FILES
    assert rows(outcome, "opens") == [EPOCHS * FILES] * 4
    assert report["hits"]["opened_bytes"] == 4 * EPOCHS * cluster.size_bytes
    exchange = report["exchange"]
    assert exchange["fetched_files"] == report["agent"]["peer_files"] > 0
    assert exchange["fetched_bytes"] == exchange["served_bytes"] > 0
    assert report["imbalance"]["served_max_over_mean"] >= 1.0


def test_two_nodes_report_the_same_about_each_other(make_cluster):
    cluster = make_cluster(3)

    outcome = cluster.run(Plan(2)).right(opens=6 * FILES)

    pairs = {
        (node["number"], peer["number"]): peer
        for node in outcome.report["nodes"]
        for peer in node["peers"]
    }
    assert len(pairs) == 6
    for (one, other), peer in pairs.items():
        seen = pairs[other, one]
        assert (peer["fetched_files"], peer["fetched_bytes"]) == (
            seen["served_files"],
            seen["served_bytes"],
        )
        assert peer["standing"] == "joined"
        assert not peer["breaker_opened"]


def status(monarch_command, environ):
    """The status of a node's agent."""
    asked = subprocess.run(
        [monarch_command, "status", "--json"],
        env=environ,
        capture_output=True,
        check=True,
    )
    return json.loads(asked.stdout)


def standings(monarch_command, environ):
    """The state of each node, as a node sees it."""
    return [node["standing"] for node in status(monarch_command, environ)["nodes"]]


def test_a_node_that_was_lost_is_named_and_in_no_total(make_cluster, monarch_command):
    cluster = make_cluster(3)
    job = cluster.start(Plan(2), hold=[1])
    job.await_epoch(1)

    cluster.nodes[1].hurt(signal.SIGKILL)
    # A node without running programs suspends no other node.
    others = [cluster.nodes[number].environ for number in (0, 2)]
    wait_until(lambda: all(standings(monarch_command, e)[1] == "left" for e in others))
    job.release(1)
    outcome = job.finish().right(opens=6 * FILES)

    report = outcome.report
    assert rows(outcome, "reported") == [True, False, True]
    assert report["nodes"][1]["why"] == "left before the job ended"
    assert report["hits"]["opens"] == 2 * 2 * FILES
    assert {(event["node"], event["peer"]) for event in report["breakers"]} == {
        (0, 1),
        (2, 1),
    }
    printed = subprocess.run(
        [monarch_command, "report", job.folder / "report.json"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert " processes on 2 of 3 nodes; " in printed.replace("\n ", "")
    assert "  no report from b: left before the job ended" in printed
    assert "  b suspended 2 times by 2 nodes\n" in printed


def test_the_status_of_a_job_shows_its_nodes(make_cluster, monarch_command):
    cluster = make_cluster(2)
    job = cluster.start(Plan(2), hold=[1])
    job.await_epoch(1)

    answer = status(monarch_command, cluster.nodes[0].environ)
    job.release(1)
    job.finish().right(opens=4 * FILES)

    names = ("number", "name", "standing", "phase")
    assert [[node[name] for name in names] for node in answer["nodes"]] == [
        [0, "a", "joined", "running"],
        [1, "b", "joined", "running"],
    ]
    assert answer["report"]["peers"][0]["name"] == "b"
