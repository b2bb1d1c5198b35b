"""Agents launched by MPI, one per node, and programs that find them later."""

import signal
import subprocess
import time
from pathlib import Path

import pytest

from support.dataset import make_dataset
from support.mpiexec import Mpi
from support.processes import wait_until
from support.ranks import RankSite
from support.sites import LAUNCH_TIMEOUT_S

pytest_plugins = ["support.launched_fixtures"]
pytestmark = [pytest.mark.launchers]

NODES = 3


@pytest.fixture
def site(tmp_path: Path, mpi: Mpi) -> RankSite:
    return RankSite(tmp_path, NODES, mpi)


@pytest.fixture
def words(monarch_command: Path, tmp_path: Path):
    """A function that returns the command line of an agent of job `early`."""
    config = tmp_path / "job.yaml"
    config.write_text(
        "tiers:\n  - {name: ssd, kind: ssd, path: '${TIER}', capacity: 64MiB}\n"
    )

    def line(data, *options):
        given = ["--job", "early", "-c", config, "--data", data, *options]
        return [str(word) for word in (monarch_command, "agent", *given)]

    return line


def await_agents(site, command):
    """Wait until programs on each node can find the agent."""
    for node in range(site.nodes):
        status = [command, "status", "--job", "early"]
        environ = site.surroundings(node)
        while subprocess.run(
            status, env=environ, capture_output=True, check=False
        ).returncode:
            time.sleep(0.1)


def test_agents_started_by_mpi_share_files_read_later(
    site, words, monarch_command, mount_counted, tmp_path
):
    dataset = make_dataset(tmp_path / "dataset", files=100, large=0)
    view = mount_counted(dataset.root)
    agents = site.start(words(view.root))
    await_agents(site, monarch_command)
    names = sorted(dataset.digests)
    program = ["sha256sum", *(str(view.root / name) for name in names)]
    run = [monarch_command, "run", "--job", "early", "--", *program]

    programs = [
        subprocess.Popen(
            run, env=site.surroundings(node), stdout=subprocess.PIPE, text=True
        )
        for node in range(NODES)
    ]

    for each in programs:
        told, _ = each.communicate(timeout=LAUNCH_TIMEOUT_S)
        found = [line.split()[0] for line in told.splitlines()]
        assert found == [dataset.digests[name] for name in names]
    summary = agents.end(LAUNCH_TIMEOUT_S).well().stderr
    assert f"on {NODES} nodes" in summary
    assert view.counts().read_bytes == dataset.size_bytes
    assert view.counts().listings == 1 + len({path.parent for path in dataset.paths})
    assert not [*tmp_path.glob("run*/*"), *tmp_path.glob("tier*/*/*")]


def test_a_signal_to_the_launcher_ends_agents_in_order(
    site, words, monarch_command, dataset, tmp_path
):
    agents = site.start(words(dataset.root))
    await_agents(site, monarch_command)

    agents.process.send_signal(signal.SIGTERM)

    agents.end(LAUNCH_TIMEOUT_S)
    # An agent may outlive mpiexec by a moment.
    wait_until(lambda: not list(tmp_path.glob("run*/*/lock")), "the end of all agents")


def test_only_one_rank_of_a_node_becomes_its_agent(
    mpi, words, monarch_command, dataset, tmp_path
):
    site = RankSite(tmp_path, 2, mpi, per_node=2)
    agents = site.start(words(dataset.root))
    await_agents(site, monarch_command)
    run = [monarch_command, "run", "--job", "early", "--", "cat", dataset.paths[0]]

    programs = [
        subprocess.Popen(run, env=site.surroundings(node), stdout=subprocess.DEVNULL)
        for node in range(2)
    ]

    assert [each.wait(LAUNCH_TIMEOUT_S) for each in programs] == [0, 0]
    summary = agents.end(LAUNCH_TIMEOUT_S).well().stderr
    assert "on 2 nodes" in summary


def test_a_configuration_error_is_reported_on_every_node(site, words, dataset):
    done = site.run(words(dataset.root, "--set", "fill.concurrency=0"))

    assert done.status == 2
    assert "fill.concurrency: 0 is not valid" in done.stderr
