"""`monarch status`: how the agents of this node, and the nodes of their jobs, stand."""

import json

import pytest
from click.testing import CliRunner

from monarch.agent import control
from monarch.cli import status as verb
from monarch.cli.status import node_lines
from monarch.report import summarize
from support.figures import node, snapshot


def stood(*states):
    """Nodes as an agent answers: "running" means joined, and that."""
    phases = {"running", "starting", "finished"}
    return [
        {
            "number": number,
            "name": f"n{number}.example.org",
            "standing": "joined" if state in phases else state,
            "phase": state if state in phases else "starting",
        }
        for number, state in enumerate(states)
    ]


@pytest.fixture
def answered(monkeypatch, tmp_path):
    """Lets one agent run, which answers what the test says."""

    def answer(report, **more):
        told = {"run": "/dev/shm/x", "state": "ready", "pid": 7, "living": 1}
        told |= {"in_flight": 0, "report": report, **more}
        monkeypatch.setattr(verb, "running_agents", lambda job: [tmp_path])
        monkeypatch.setattr(control, "ask", lambda run, question: told)
        return told

    return answer


def test_nodes_are_counted_and_those_that_are_not_there_named():
    nodes = stood("running", "finished", "running", "left", *["never joined"] * 6)

    assert node_lines(nodes) == [
        "  10 nodes: 2 running, 1 finished",
        "  never joined: n4, n5, n6 and 3 more",
        "  left: n3",
    ]


def test_an_agent_of_several_nodes_tells_how_they_stand(answered):
    names = ("n0.example.org", "n1.example.org")
    answered(summarize(node(0, names)), nodes=stood("running", "starting"))

    printed = CliRunner().invoke(verb.status, [])

    assert printed.output.splitlines()[:2] == [
        "/dev/shm/x: ready, agent 7, 1 process, 0 files being copied",
        "  2 nodes: 1 running, 1 starting",
    ]
    assert "on n0.example.org, one of 2 nodes; " in printed.output


def test_an_agent_alone_tells_of_no_nodes(answered):
    told = answered(summarize(snapshot()), nodes=[])

    printed = CliRunner().invoke(verb.status, [])
    as_json = CliRunner().invoke(verb.status, ["--json"])

    assert "node" not in printed.output
    assert json.loads(as_json.output) == told
