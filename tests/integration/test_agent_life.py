"""An agent from its start to its end, driven as the launcher does."""

import contextlib
import os
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from monarch.agent.processes import start_time
from monarch.native import DTYPES, AgentState, ProcessState
from support.agents import AgentProcess, start_agent
from support.dataset import Dataset
from support.programs import ready_opens
from support.tier_codecs import in_blocks


@pytest.fixture
def start(run_root, tmp_path, dataset, monkeypatch):
    """A function that starts an agent on the dataset with a Tier of its own."""
    monkeypatch.setenv("MONARCH_STAGING_NODE", "n")
    started: list[AgentProcess] = []
    (tmp_path / "ssd").mkdir()

    def begin(*options, job="j", ready=True):
        tier = ["--tier", f"ssd:64MiB:{tmp_path / 'ssd'}"]
        given = ["--data", str(dataset.root), *tier, *options]
        agent = start_agent(run_root / f"{job}.n", given)
        started.append(agent)
        if ready:
            agent.listen("ready")
        return agent

    yield begin
    for agent in started:
        agent.kill()


@pytest.fixture
def shim(start):
    """Skips where the Shim is not built."""
    import monarch.native

    library = Path(monarch.native.__file__).parent / "libmonarch_shim.so"
    if not library.exists() or library.stat().st_size < 20_000:
        pytest.skip("the Shim is not built")


def homes(tmp_path: Path) -> list[str]:
    home = tmp_path / "ssd" / f"monarch-{os.geteuid()}"
    return sorted(entry.name for entry in home.iterdir()) if home.exists() else []


def read_all(agent: AgentProcess, dataset: Dataset) -> bool:
    expected = b"".join(path.read_bytes() for path in dataset.paths)
    return agent.read(*dataset.paths) == expected


def test_the_start_line_names_the_dataset_and_its_tier(start, dataset):
    agent = start(ready=False)

    line = agent.listen("ready")

    assert line.startswith(f"staging {dataset.root} (41 files, ")
    assert line.endswith("to ssd 64.0 MiB")


def test_everything_is_staged_in_the_background_and_removed_at_the_end(
    start, tmp_path, run_root, dataset
):
    agent = start()
    agent.await_staged(41)
    figures = agent.figures()

    assert figures["staged_bytes"] == dataset.size_bytes
    assert figures["origin_read_bytes"] == dataset.size_bytes + figures["tried_bytes"]
    assert agent.stop() == 0
    assert homes(tmp_path) == []
    assert list(run_root.iterdir()) == []


def test_threads_are_named_by_their_purpose(start):
    agent = start()

    tasks = Path(f"/proc/{agent.process.pid}/task").glob("*/comm")
    names = {path.read_text().strip() for path in tasks}

    assert {"requests", "copy 1", "copy 2"} <= names


def test_a_program_reads_the_right_bytes_from_the_tier(
    start, dataset, shim, tier_codec
):
    agent = start()
    agent.await_staged(41)

    assert read_all(agent, dataset)
    counters = agent.status()["report"]["counters"]
    assert ready_opens(counters) == 41 - in_blocks(tier_codec)
    assert (
        counters["opens_origin"] == counters["origin_blocks"] == in_blocks(tier_codec)
    )


def test_cold_opens_are_answered_by_transfers(start, dataset, shim):
    agent = start("--set", "fill.enabled=false")

    assert read_all(agent, dataset)
    counters = agent.status()["report"]["counters"]
    assert counters["opens_miss"] == 40
    assert counters["origin_large"] == 1
    assert agent.figures()["demand_transfers"] == 41  # the large one, partly


def test_a_start_that_takes_too_long_lets_the_program_start(start):
    agent = start("--set", "catalog.wait_max=0s", ready=False)

    said = agent.listen("late")
    assert "datasets not indexed after 0 s" in said
    assert len(f"monarch: {said}") <= 80
    agent.listen("ready")
    assert agent.status()["state"] == "ready"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--data", "/nonexistent"], "/nonexistent does not exist"),
        (["--data", "/dev/null"], "/dev/null is not a directory"),
        (["--tier", "ssd:4096PiB:/tmp"], "is larger than /tmp"),
        (["--set", "nonsense=1"], "nonsense"),
        (["--tier", "tape:1GiB"], "tape"),
    ],
)
def test_an_invalid_request_fails_with_2_and_leaves_nothing(
    start, run_root, options, words
):
    agent = start(*options, ready=False)

    assert words in agent.listen("fail")
    assert agent.ended() == 2
    assert all(line.startswith("fail 2 ") for line in agent.heard)
    assert [entry.name for entry in (run_root / "j.n").iterdir()] == ["agent.log"]


def test_a_tier_inside_the_dataset_fails_with_2(start, dataset):
    inside = dataset.root / "class-1"
    agent = start("--tier", f"ssd:1MiB:{inside}", ready=False)

    assert f"{inside} is inside the dataset" in agent.listen("fail")
    assert agent.ended() == 2


def test_a_run_directory_has_one_agent(start):
    first = start()
    second = start(ready=False)

    assert "another agent is already running" in second.listen("fail")
    assert second.ended() == 125
    assert first.status()["state"] == "ready"


@pytest.mark.parametrize("signo", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_agent_in_order(start, run_root, tmp_path, signo):
    agent = start()

    agent.process.send_signal(signo)

    assert agent.ended() == 0
    assert list(run_root.iterdir()) == []
    assert homes(tmp_path) == []


def test_a_launcher_that_dies_before_its_program_ends_the_agent(start):
    agent = start()

    agent.notices.close()

    assert agent.process.wait(timeout=10) == 0


def test_the_end_of_the_last_program_ends_the_agent_with_a_summary(
    start, tmp_path, dataset, shim
):
    agent = start("--report", str(tmp_path / "%j-%n.json"))
    script = 'read go; LD_PRELOAD=$1 exec cat "$2"'
    with subprocess.Popen(
        ["sh", "-c", script, "sh", agent.run / "shim.so", dataset.paths[0]],
        env={**os.environ, "MONARCH_STAGING_RUN": str(agent.run)},
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
    ) as program:
        sign_in(agent, program.pid)
        program.communicate(b"go\n")

    assert agent.ended() == 0
    said = [line for line in agent.heard if line.startswith("say ")]
    assert said[0].startswith("say monarch: active in 1 of 1 process; ")
    assert (tmp_path / "j-n.json").exists()


def sign_in(agent: AgentProcess, pid: int) -> None:
    """Take a slot for a program, as its launcher does."""
    with open(agent.run / "counters", "r+b") as file:
        segment = np.memmap(file, DTYPES["counters"], "r+", shape=(1,))
        segment["slots_used_max"] = 2
        slots = segment[0]["process"]
        slots["pid"][1], slots["starttime"][1] = pid, start_time(pid)
        slots["state"][1] = ProcessState.LAUNCHER


@pytest.mark.parametrize(
    ("line", "answer"),
    [
        (b"[1]\n", b"not a JSON object"),
        (b"{\n", b"not a JSON line"),
        (b'{"op": "dance"}\n', b"unknown op 'dance'"),
        (b"x" * 200_000 + b"\n", b""),
    ],
    ids=["list", "cut", "unknown", "endless"],
)
def test_rubbish_on_the_control_socket_harms_nobody(start, line, answer):
    agent = start()

    with socket.socket(socket.AF_UNIX) as peer, directory_fd(agent.run) as fd:
        peer.connect(f"/proc/self/fd/{fd}/control")
        with contextlib.suppress(BrokenPipeError):
            peer.sendall(line)
        with contextlib.suppress(ConnectionResetError):
            assert answer in peer.recv(1000)

    assert agent.status()["pid"] == agent.process.pid


@contextlib.contextmanager
def directory_fd(path: Path) -> Iterator[int]:
    fd = os.open(path, os.O_PATH)
    try:
        yield fd
    finally:
        os.close(fd)


def test_other_launchers_can_read_the_agent_state(start):
    agent = start()

    requests = (agent.run / "requests").read_bytes()

    assert agent_state(requests) == AgentState.READY


def agent_state(requests: bytes) -> int:
    return int(np.frombuffer(requests, DTYPES["requests"])[0]["agent_state"])


def test_a_killed_agent_leaves_nothing_that_the_next_one_trusts(
    start, run_root, tmp_path, dataset, soak_count
):
    for number in range(soak_count(6, 100)):
        agent = start(ready=False)
        delay = threading.Event()
        delay.wait(0.05 * (number % 12))  # moments from the import to the staging
        agent.kill()

    last = start()
    last.await_staged(41)
    replicas = tmp_path / "ssd" / f"monarch-{os.geteuid()}" / "j.n" / "ssd"
    assert len(list(replicas.iterdir())) == 41
    assert last.stop() == 0
    assert list(run_root.iterdir()) == []


def test_an_agent_stages_the_files_of_a_killed_one_of_its_job_again(start):
    killed = start()
    killed.await_staged(41)
    killed.kill()

    again = start()

    again.await_staged(41)
    assert again.stop() == 0


def test_the_next_job_removes_the_leftovers_of_a_killed_one(start, run_root, tmp_path):
    dead = start(job="dead")
    dead.kill()
    # A launcher creates this file first; it identifies a run directory.
    (run_root / "dead.n" / "start").touch(mode=0o600)

    living = start(job="living")
    while (run_root / "dead.n").exists() or homes(tmp_path) != ["living.n"]:
        assert living.process.poll() is None
