"""`monarch status` and `top`: the state of agents and of the nodes of their jobs."""

import io
import json

import pytest
from click.testing import CliRunner
from rich.console import Console

from monarch.agent import control
from monarch.cli import status as verb
from monarch.cli import top
from monarch.cli.live_text import node_lines, top_parts
from monarch.report import summarize
from monarch.report.format import WIDTH, plain_text
from support.figures import node, snapshot

MIB = 1 << 20
STAGED = {
    "files": 30,
    "bytes": 45 * MIB,
    "kept_files": 100,
    "kept_bytes": 100 * MIB,
    "coming_bytes": 55 * MIB,
    "share": 0.45,
    "left_s": 55.0,
    "no_room_files": 0,
}
PER_S = {
    "staged_bytes": float(MIB),
    "origin_read_bytes": float(MIB),
    "ready_opens": 12.0,
    "waited_opens": 0.0,
    "origin_opens": 0.0,
}
SCAN = {"path": "/pfs/x", "names": 0, "directories": 0, "expected": 0, "done": False}


def stood(*states):
    """Nodes as an agent answers: "running" means joined, and that."""
    phases = {"running", "starting", "finished"}
    return [
        {
            "number": number,
            "name": f"n{number}.example.org",
            "standing": "joined" if state in phases else state,
            "phase": state if state in phases else "starting",
            "age_s": None,
            "figures": None,
        }
        for number, state in enumerate(states)
    ]


def figures(**more):
    """The answer of an agent to `monarch top`."""
    return {
        "schema": 1,
        "run": "/dev/shm/x",
        "job": "7.0",
        "node": "n0",
        "state": "ready",
        "pid": 7,
        "seconds": 60.0,
        "living": 1,
        "processes": {"seen": 4, "active": 4, "untracked": 0},
        "in_flight": 0,
        "datasets": ["/pfs/x"],
        "indexing": [],
        "staged": STAGED,
        "tiers": [
            {
                "name": "ram",
                "kind": "ram",
                "capacity_bytes": 64 * MIB,
                "used_bytes": 45 * MIB,
                "files": 30,
                "in_service": True,
            }
        ],
        "opens": {"ready": 990, "waited": 10, "origin": 0, "outside": 5},
        "waits": {"count": 10, "total_s": 0.1},
        "origin_read_bytes": 45 * MIB,
        "per_s": PER_S,
        "nodes": [],
        "metrics": "",
        **more,
    }


@pytest.fixture
def answered(monkeypatch, tmp_path):
    """Lets one agent run, with an answer set by the test."""

    def answer(report, **more):
        told = {**figures(), "report": report, **more}
        monkeypatch.setattr(verb, "running_agents", lambda job: [tmp_path])
        monkeypatch.setattr(control, "ask", lambda run, question: told)
        return told

    return answer


def test_nodes_are_counted_and_missing_ones_named():
    nodes = stood("running", "finished", "running", "left", *["never joined"] * 6)

    assert node_lines(nodes) == [
        "  10 nodes: 2 running, 1 finished",
        "  never joined: n4, n5, n6 and 3 more",
        "  left: n3",
    ]


def test_an_agent_of_several_nodes_shows_their_states(answered):
    names = ("n0.example.org", "n1.example.org")
    answered(summarize(node(0, names)), nodes=stood("running", "starting"))

    printed = CliRunner().invoke(verb.status, [])

    assert printed.output.splitlines()[:4] == [
        "/dev/shm/x: ready, agent 7, 1 process, 0 files being copied",
        "  staged 45.0% of 100.0 MiB, 1.0 MiB/s, 55.0 s left",
        "  ready: 30 of 100 files, the share of this node",
        "  2 nodes: 1 running, 1 starting",
    ]
    assert "on n0.example.org, one of 2 nodes; " in printed.output


def test_an_agent_alone_shows_no_nodes(answered):
    told = answered(summarize(snapshot()), nodes=[])

    printed = CliRunner().invoke(verb.status, [])
    as_json = CliRunner().invoke(verb.status, ["--json"])

    assert "node" not in printed.output
    assert json.loads(as_json.output) == told


def test_a_scan_is_shown_by_the_number_of_names_found(answered):
    """Finding 10 of first use: there were zeros only."""
    scans = [{**SCAN, "names": 1204}, {**SCAN, "names": 5, "expected": 9000}]
    scans += [{**SCAN, "directories": 3, "expected": 8}, {**SCAN, "done": True}]
    answered(summarize(snapshot()), state="scanning", staged=None, indexing=scans)

    printed = CliRunner().invoke(verb.status, []).output

    assert printed.splitlines()[1:] == [
        "  indexing /pfs/x: 1,204 names found",
        "  indexing /pfs/x: 5 names found of ~9,000",
        "  comparing /pfs/x: 3 of 8 directories",
        "  indexed /pfs/x",
    ]


def test_a_node_that_waits_for_the_index_of_another_says_that_there_is_none(answered):
    answered(summarize(snapshot()), state="starting", staged=None)

    printed = CliRunner().invoke(verb.status, []).output

    assert printed.splitlines()[1:] == ["  /pfs/x: no index yet, nothing is staged"]


def test_staging_that_has_ended_has_no_rate(answered):
    staged = {**STAGED, "coming_bytes": 0, "left_s": 0.0, "no_room_files": 70}
    answered(summarize(snapshot()), staged=staged)

    lines = CliRunner().invoke(verb.status, []).output.splitlines()

    assert lines[1:4] == [
        "  staged 45.0% of 100.0 MiB, nothing more will be staged",
        "  ready: 30 of 100 files",
        "  no tier has room for 70 files",
    ]


# -- monarch top ----------------------------------------------------------------------


def test_a_frame_fits_80_columns_and_is_ascii():
    nodes = stood(*["running"] * 20, "left", "never joined")
    told = {
        "bytes": 99 << 40,
        "kept_bytes": 100 << 40,
        "bytes_per_s": 1023 << 30,
        "opens": 10**9,
        "ready_opens": 999_999_999,
        "opens_per_s": 1_000_000,
        "origin_read_bytes": 1023 << 40,
        "processes": 128,
    }
    for row in nodes[:3]:
        row["figures"] = told

    text = plain_text(top_parts(figures(nodes=nodes), ascii_only=True))

    assert text.isascii()
    assert max(map(len, text.splitlines())) <= WIDTH
    assert "  staged [#########...........] 45.0% of 100.0 MiB, 1.0 MiB/s" in text
    assert "  7 more" in text
    assert text.count("99.0%") == 4  # of nodes, and of the opens


def test_a_frame_on_a_terminal_loses_nothing_in_80_columns():
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=80, color_system=None)

    console.print(top.frame([figures(nodes=stood("running", "left"))], console))

    text = out.getvalue()
    assert max(map(len, text.splitlines())) <= WIDTH
    assert "█████████░░░░░░░░░░░] 45.0% of 100.0 MiB" in text
    for cell in ("45.0 MiB", "64.0 MiB", "990", "99.0%", "n0", "n1", "left"):
        assert cell in text


@pytest.mark.parametrize("arguments", [["--once"], ["--interval", "0.1"]])
def test_top_prints_until_the_agent_has_ended(monkeypatch, tmp_path, arguments):
    looks = [[tmp_path], [tmp_path], []]
    monkeypatch.setattr(top, "running_agents", lambda job: looks.pop(0))
    monkeypatch.setattr(control, "ask", lambda run, question: figures())

    done = CliRunner().invoke(top.top, arguments)

    count = done.stdout.count("7.0 on n0: ready for 1 min 00 s, active in 4 of 4")
    assert (done.exit_code, count) == (0, 1 if "--once" in arguments else 2)
    ended = "" if "--once" in arguments else "monarch: no agent is running any more\n"
    assert done.stderr == ended


def test_top_prints_a_line_of_json_for_each_agent(monkeypatch, tmp_path):
    monkeypatch.setattr(top, "running_agents", lambda job: [tmp_path, tmp_path])
    monkeypatch.setattr(control, "ask", lambda run, question: figures())

    done = CliRunner().invoke(top.top, ["--once", "--json"])

    assert [json.loads(line) for line in done.output.splitlines()] == [figures()] * 2


@pytest.mark.parametrize("arguments", [[], ["--json"]])
def test_top_without_an_agent_exits_with_1(monkeypatch, arguments):
    monkeypatch.setattr(top, "running_agents", lambda job: [])

    done = CliRunner().invoke(top.top, arguments)

    assert done.exit_code == 1
    assert done.stdout == ""


@pytest.mark.parametrize(
    ("told", "reason"),
    [
        ({"error": "unknown op 'live'"}, "unknown op 'live'"),
        ({"state": "ready"}, "its agent runs another version of Monarch"),
    ],
)
def test_an_agent_of_another_version_is_reported(monkeypatch, tmp_path, told, reason):
    monkeypatch.setattr(top, "running_agents", lambda job: [tmp_path])
    monkeypatch.setattr(control, "ask", lambda run, question: told)

    done = CliRunner().invoke(top.top, ["--once"])

    assert done.exit_code == 1
    assert f"monarch: {tmp_path}: {reason}\n" in done.stderr


def test_a_job_without_a_catalog_reports_why(answered):
    report = summarize(snapshot())
    report = {**report, "run": {**report["run"], "plain": "the disk burns"}}
    answered(report, state="plain", staged=None)

    printed = CliRunner().invoke(verb.status, []).output

    assert "nothing was staged: the disk burns" in " ".join(printed.split())
