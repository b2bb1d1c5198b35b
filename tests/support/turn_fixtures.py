"""Fixtures of the tests in which agents of one job run one after the other."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.agents import AgentProcess, start_agent
from support.dataset import Dataset
from support.obedient import Begin, Program, Run


@pytest.fixture
def begin(run_root: Path, dataset: Dataset, tmp_path: Path) -> Iterator[Begin]:
    """Starts an agent of the same job, one after the other."""
    started: list[AgentProcess] = []
    tier = tmp_path / "tier"
    tier.mkdir()
    options = ["--data", str(dataset.root), "--tier", f"ram:64MiB:{tier}"]
    options += ["--set", "cold_open.mode=wait"]

    def start() -> AgentProcess:
        agent = start_agent(run_root / "j.n", options)
        started.append(agent)
        agent.listen("ready")
        return agent

    yield start
    for agent in started:
        if agent.process.poll() is None:
            agent.kill()
    shutil.rmtree(run_root / "j.n", ignore_errors=True)


@pytest.fixture
def program() -> Iterator[Run]:
    """Runs a program beside an agent."""
    running: list[Program] = []

    def run(agent: AgentProcess) -> Program:
        one = Program.run(agent.environ())
        running.append(one)
        return one

    yield run
    for one in running:
        if one.process.stdin is not None and not one.process.stdin.closed:
            one.end()


@pytest.fixture
def survivor(begin: Begin, program: Run) -> Callable[[Path], Program]:
    """A function that returns a program whose agent has ended after it read a file."""

    def outlive(path: Path) -> Program:
        agent = begin()
        one = program(agent)
        one.read(path)
        agent.stop()
        return one

    return outlive
