"""The views of running agents: `monarch status` and `monarch top`."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from support.agents import AgentProcess, start_agent
from support.countfs import CountFs
from support.dataset import Dataset, make_dataset
from support.nodes import Plan
from support.processes import wait_until
from support.terminal import Terminal
from support.tier_codecs import PLAIN

FILES = 60


def verb(*arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """The output of a verb to pipes."""
    command = [sys.executable, "-P", "-m", "monarch", *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, check=False, env=os.environ | environ
    )


def answer(name: str) -> dict[str, Any]:
    """The JSON of a verb about the only agent."""
    found: dict[str, Any] = json.loads(verb(*name.split(), "--json").stdout)
    return found


@pytest.fixture
def view(
    mount_counted: Callable[..., CountFs], tmp_path: Path
) -> tuple[CountFs, Dataset]:
    dataset = make_dataset(tmp_path / "dataset", files=FILES, large=0)
    return mount_counted(dataset.root), dataset


@pytest.fixture
def start(
    run_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., AgentProcess]]:
    """A function that starts an agent on a dataset, with a Tier of its own."""
    monkeypatch.setenv("MONARCH_STAGING_NODE", "n")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "ssd").mkdir()
    started: list[AgentProcess] = []

    def begin(data: Path, *options: str) -> AgentProcess:
        tier = f"ssd:64MiB:{tmp_path / 'ssd'}"
        given = ["--data", str(data), "--tier", tier, *options]
        started.append(start_agent(run_root / "j.n", given))
        return started[-1]

    yield begin
    for agent in started:
        agent.kill()


SLOW = ("--set", "fill.bandwidth=40kB/s", "--set", "fill.concurrency=1")


def test_status_in_mid_run_shows_percent_rate_and_time_left(start, view):
    """Finding 10 of first use."""
    mount, dataset = view
    agent = start(mount.root, *SLOW)
    agent.listen("ready")
    wait_until(lambda: answer("status")["per_s"].get("staged_bytes"))

    printed = verb("status").stdout
    staged = answer("status")["staged"]

    assert 0 < staged["bytes"] < staged["kept_bytes"] == dataset.size_bytes
    assert staged["share"] == staged["bytes"] / dataset.size_bytes
    rate = answer("status")["per_s"]["staged_bytes"]
    assert 0.3 < staged["left_s"] * rate / staged["coming_bytes"] < 3
    line = next(line for line in printed.splitlines() if line.startswith("  staged "))
    assert "% of " in line
    assert "/s, " in line
    assert line.endswith(" left")
    assert "tier ssd: " in printed
    assert "not requested yet" in printed
    assert "job ended" not in printed


def test_status_while_scanning_shows_the_number_of_names_found(start, view):
    """Finding 10 of first use: all zeros while scanning."""
    mount, _ = view
    mount.set(stat_us=50_000)
    agent = start(mount.root, "--set", "catalog.scan_threads=1")
    wait_until(lambda: (agent.run / "control").exists())
    wait_until(lambda: any(row["names"] for row in answer("status")["indexing"]))

    found, printed = answer("status"), verb("status").stdout

    assert found["staged"] is None
    assert f"indexing {mount.root}: " in " ".join(printed.split())
    assert " names found" in printed
    assert "staged" not in printed


def test_top_shows_an_agent_once_or_as_json_without_escapes(start, view, tier_codec):
    mount, dataset = view
    agent = start(mount.root)
    agent.listen("ready")
    agent.await_staged(FILES)
    agent.read(*(mount.root / name for name in dataset.digests))

    printed = verb("top", "--once", TERM="dumb", NO_COLOR="1")

    assert printed.returncode == 0
    assert "[####################] 100.0% of " in printed.stdout
    assert printed.stdout.isascii()
    assert "\x1b" not in printed.stdout
    assert max(map(len, printed.stdout.splitlines())) <= 80
    found = answer("top --once")
    assert found["opens"]["ready" if tier_codec == PLAIN else "waited"] == FILES
    assert found["tiers"][0]["files"] == found["staged"]["files"] == FILES
    assert found["processes"] == {"seen": 1, "active": 1, "untracked": 0}
    assert "report" not in found


def test_top_shows_the_state_of_both_nodes(make_cluster, monarch_command, tier_codec):
    cluster = make_cluster(2)
    job = cluster.start(Plan(2), hold=[1])
    job.await_epoch(1)

    def look() -> list[dict[str, Any]]:
        words = [monarch_command, "top", "--once", "--json"]
        environ = cluster.nodes[1].environ
        done = subprocess.run(words, env=environ, capture_output=True, check=True)
        nodes: list[dict[str, Any]] = json.loads(done.stdout)["nodes"]
        return nodes

    wait_until(lambda: all(node["figures"] for node in look()))
    wait_until(lambda: all(node["figures"]["opens"] == 200 for node in look()))
    nodes = look()
    words = [monarch_command, "top", "--once"]
    environ = cluster.nodes[0].environ
    text = subprocess.run(words, env=environ, capture_output=True, check=True).stdout
    job.release(1)
    job.finish()

    assert [node["name"] for node in nodes] == ["a", "b"]
    assert [node["phase"] for node in nodes] == ["running", "running"]
    assert all(0 <= node["age_s"] < 10 for node in nodes)
    read = sum(node["figures"]["origin_read_bytes"] for node in nodes)
    tried_bytes = 0 if tier_codec == PLAIN else 0.01 * cluster.size_bytes
    assert cluster.size_bytes <= read <= cluster.size_bytes + tried_bytes
    assert b"  2 nodes: 2 running\n" in text


def top_on_a_terminal(start, view, before=""):
    """An agent, and a shell that shows it."""
    mount, _ = view
    agent = start(mount.root, *SLOW)
    agent.listen("ready")
    shell = Terminal(dict(os.environ))
    words = f"{sys.executable} -P -m monarch top --interval 0.2"
    shell.send(f"TERM=xterm {before} {words}\n")
    return agent, shell


def test_top_on_a_terminal_replaces_its_last_frame(start, view):
    agent, shell = top_on_a_terminal(start, view)
    shell.expect(r"\x1b\[\d+A.*staged.*\x1b\[\d+A")
    agent.stop()

    shell.expect("no agent is running any more")
    shell.send("echo code $?\n")
    shell.expect("code 0")
    shell.close()


def test_top_restores_the_cursor_when_it_is_terminated(start, view):
    agent, shell = top_on_a_terminal(start, view, "timeout -s TERM 2")
    shell.expect(r"\x1b\[\?25l.*staged.*\x1b\[\?25h")
    shell.send("echo code $?\n")
    shell.expect("code 124")
    shell.close()
    agent.stop()
