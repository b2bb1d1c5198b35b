"""Metrics of a real agent: scraped over HTTP, and read from the file."""

import json
import os
import socket
import stat
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from monarch.agent import setup
from monarch.config import Config
from monarch.config.schema import Metrics
from monarch.errors import UsageError
from monarch.metrics import JOB_LABEL, metrics
from support.agents import AgentProcess, start_agent
from support.changing_files import descriptors
from support.commands import without_doubts
from support.dataset import Dataset
from support.processes import wait_until
from support.programs import tried_bytes
from support.tier_codecs import PLAIN, in_blocks

FILES = 41


@pytest.fixture
def start(
    run_root: Path,
    tmp_path: Path,
    dataset: Dataset,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Callable[..., AgentProcess]]:
    """A function that starts an agent of a job on the dataset."""
    monkeypatch.setenv("MONARCH_STAGING_NODE", "n")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    started: list[AgentProcess] = []

    def begin(*settings: str, job: str = "j") -> AgentProcess:
        (tmp_path / job).mkdir()
        given = ["--data", str(dataset.root)]
        given += ["--tier", f"ssd:64MiB:{tmp_path / job}"]
        for setting in settings:
            given += ["--set", setting]
        started.append(start_agent(run_root / f"{job}.n", given))
        return started[-1]

    yield begin
    for agent in started:
        agent.kill()


def families(text: str) -> dict[str, Metric]:
    """The metrics of an exposition, by name."""
    return {one.name: one for one in text_string_to_metric_families(text)}


def scrape(agent: AgentProcess) -> str:
    """The metrics exported by the agent of a job."""
    wait_until(lambda: agent.status()["metrics"])
    with urllib.request.urlopen(agent.status()["metrics"], timeout=10) as answer:
        assert answer.headers["Content-Type"].startswith("text/plain")
        return str(answer.read().decode())


def value(found: dict[str, Metric], name: str, **labels: str) -> float:
    """The value of a sample."""
    for sample in found[name].samples:
        if labels.items() <= sample.labels.items():
            return float(sample.value)
    raise AssertionError(f"no {name} with {labels}")


def test_a_scrape_agrees_with_the_report_and_has_all_metrics(
    start, dataset, tier_codec
):
    agent = start("metrics.port=0")
    agent.listen("ready")
    agent.await_staged(FILES)
    agent.read(*dataset.paths)
    hits = FILES - in_blocks(tier_codec)
    # Opens are counted at once, the process at the agent's next look.
    wait_until(lambda: agent.status()["report"]["hits"]["opens"] == hits)
    wait_until(lambda: agent.status()["report"]["coverage"]["processes"])

    found = families(scrape(agent))
    report = agent.status()["report"]

    documented = {f"monarch_{one.name}" for one in metrics()}
    assert set(found) == documented
    for one in metrics():
        assert found[f"monarch_{one.name}"].type == one.kind
        for sample in found[f"monarch_{one.name}"].samples:
            labels = set(sample.labels) - {"le"}
            assert labels == {JOB_LABEL, *one.labels}, sample
            assert sample.labels[JOB_LABEL] == "j"
    held = {"source": "tier", "tier": "ssd"}
    if tier_codec != PLAIN:
        held = {"source": "packed"}
    assert value(found, "monarch_opens", **held) == hits
    read = value(found, "monarch_origin_read_bytes")
    assert read == report["origin"]["agent_read_bytes"]
    assert read == dataset.size_bytes + tried_bytes(report)
    assert value(found, "monarch_ready_files") == FILES
    assert value(found, "monarch_ready_bytes") == dataset.size_bytes
    used = value(found, "monarch_tier_used_bytes", tier="ssd")
    assert used == report["tiers"][0]["used_bytes"]
    assert value(found, "monarch_state", state="ready") == 1
    assert value(found, "monarch_processes", active="true") == 1
    assert value(found, "monarch_agent_cpu_seconds") > 0
    busy_s = value(found, "monarch_busy_seconds")
    assert busy_s == pytest.approx(report["agent"]["busy_ns"] / 1e9)
    started = value(found, "monarch_start_time_seconds")
    assert abs(time.time() - started) < 120


def test_waits_are_a_histogram_in_seconds(start, dataset):
    agent = start("metrics.port=0", "fill.enabled=false")
    agent.listen("ready")
    agent.read(*dataset.paths)
    count = agent.status()["waits"]["count"]

    samples = families(scrape(agent))["monarch_open_wait_seconds"].samples

    buckets = [one for one in samples if one.name.endswith("_bucket")]
    assert [one.value for one in buckets] == sorted(one.value for one in buckets)
    assert buckets[-1].labels["le"] == "+Inf"
    assert buckets[-1].value == count > 0
    total = next(one.value for one in samples if one.name.endswith("_sum"))
    assert 0 < total == agent.status()["waits"]["total_s"] < 60


def test_metrics_are_off_by_default(start):
    agent = start()
    agent.listen("ready")

    assert agent.status()["metrics"] == ""
    library = Path(f"/proc/{agent.process.pid}/maps").read_text()
    assert "prometheus" not in library
    sockets = subprocess.run(
        ["ss", "-Hltnp"], capture_output=True, text=True, check=False
    ).stdout
    assert f"pid={agent.process.pid}," not in sockets


def test_metrics_are_served_to_this_machine_only(start):
    agent = start("metrics.port=0")
    agent.listen("ready")
    wait_until(lambda: agent.status()["metrics"])
    port = int(agent.status()["metrics"].split(":")[2].split("/")[0])

    inodes = {
        to[8:-1]
        for to in descriptors(agent.process.pid).values()
        if to.startswith("socket:[")
    }
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    listening = [row[1] for row in rows if row[3] == "0A" and row[9] in inodes]
    assert listening == [f"0100007F:{port:04X}"]


def warnings(agent: AgentProcess) -> list[str]:
    """The warnings of the agent, except those on the place of its tier."""
    heard = [line for line in agent.heard if line.startswith("warn")]
    return without_doubts("\n".join(heard))


def test_a_port_that_is_taken_is_one_warning(start):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        agent = start(f"metrics.port={port}")
        agent.listen("ready")
        while not warnings(agent):
            agent.listen("warn")

        warned = warnings(agent)
        assert warned == [
            f"warn metrics.port {port}: Address already in use; not exported there"
        ]
        agent.stop()


def test_a_silent_client_delays_others_only_briefly(start):
    agent = start("metrics.port=0")
    agent.listen("ready")
    wait_until(lambda: agent.status()["metrics"])
    port = int(agent.status()["metrics"].split(":")[2].split("/")[0])

    with socket.create_connection(("127.0.0.1", port)):
        began_s = time.monotonic()
        assert "monarch_opens_total" in scrape(agent)
        assert time.monotonic() - began_s < 9

    assert agent.stop() == 0


def test_the_file_is_replaced_whole_and_removed_at_the_end(start, tmp_path):
    os.umask(0o022)
    folder = tmp_path / "textfiles"
    folder.mkdir()
    agent = start(f"metrics.textfile={folder}/monarch-%j-%n.prom")
    agent.listen("ready")

    path = folder / "monarch-j-n.prom"
    wait_until(path.exists)
    found = families(path.read_text())

    assert set(found) == {f"monarch_{one.name}" for one in metrics()}
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert os.listdir(folder) == [path.name]
    assert agent.status()["metrics"] == ""
    assert agent.stop() == 0
    assert os.listdir(folder) == []


@pytest.mark.parametrize(
    ("setting", "line"),
    [
        ("metrics.textfile=/tmp/x.txt", "metrics.textfile: /tmp/x.txt must end in"),
        ("metrics.textfile=/nowhere/x.prom", "metrics.textfile: /nowhere is no"),
        ("metrics.port=70000", "--set metrics.port=70000: metrics.port: 70000 is not"),
    ],
)
def test_an_invalid_export_setting_is_refused(start, setting, line):
    agent = start(setting)

    assert agent.listen("fail").startswith(f"2 {line}")


def test_a_missing_library_is_one_line_with_the_install_command(monkeypatch):
    monkeypatch.setattr(setup, "find_spec", lambda name: None)
    wanted = Config(metrics=Metrics(port=0))

    with pytest.raises(UsageError, match=r"pip install 'monarch-staging\[metrics\]'"):
        setup._check_metrics(wanted)

    setup._check_metrics(Config())


def test_an_agent_scans_and_exports_before_it_is_ready(start, dataset):
    agent = start("metrics.port=0")
    agent.listen("ready")

    found = families(scrape(agent))

    assert value(found, "monarch_scanned_names") >= FILES
    assert json.dumps(agent.status())
