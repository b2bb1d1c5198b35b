"""`monarch agent` in the foreground: started before the programs of its job."""

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from support.commands import python_without
from support.dataset import Dataset

PATIENCE_S = 30


@pytest.fixture
def words(monarch_command: Path, run_root: Path, dataset: Dataset, memory: Path):
    """A function that returns the command line of an agent of job `early`."""
    staging = ["--data", str(dataset.root), "--tier", f"ram:256MiB:{memory}"]
    staging += ["--set", "agent.linger=1s"]

    def line(*options):
        return [str(monarch_command), "agent", "--job", "early", *staging, *options]

    return line


def begin(words):
    """Start an agent and wait until programs can find it."""
    process = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
    status = [words[0], "status", "--job", "early"]
    while complete(status).returncode:
        assert process.poll() is None, process.communicate()[1]
        time.sleep(0.05)
    return process


def complete(words):
    return subprocess.run(words, capture_output=True, text=True, check=False)


def test_programs_find_the_agent_and_it_ends_after_them(
    words, monarch_command, dataset, run_root
):
    agent = begin(words())
    program = ["sha256sum", *map(str, dataset.paths)]
    digests = [dataset.digests[name] for name in sorted(dataset.digests)]

    done = complete([monarch_command, "run", "--job", "early", "--", *program])

    _, summary = agent.communicate(timeout=PATIENCE_S)
    assert done.returncode == agent.returncode == 0
    assert (done.stderr, done.stdout.split()[::2]) == ("", digests)
    assert "active in 1 of 1 process" in summary
    assert os.listdir(run_root) == []


def test_programs_find_the_agent_before_the_datasets_are_indexed(
    words, monarch_command, dataset
):
    agent = begin(words("--set", "catalog.wait_max=0s"))
    program = ["sha256sum", *map(str, dataset.paths)]
    digests = [dataset.digests[name] for name in sorted(dataset.digests)]

    done = complete([monarch_command, "run", "--job", "early", "--", *program])

    _, said = agent.communicate(timeout=PATIENCE_S)
    assert done.returncode == agent.returncode == 0
    assert done.stdout.split()[::2] == digests
    late = "programs start and are served later"
    assert f"monarch: datasets not indexed after 0 s: {late}" in said
    assert "active in 1 of 1 process" in said


def test_successive_runs_of_one_job_find_the_agent(
    words, monarch_command, dataset, run_root
):
    agent = begin(words("--set", "agent.linger=5s"))
    run = [monarch_command, "run", "--job", "early", "--", "cksum", dataset.paths[0]]

    statuses = []
    for pause_s in (0.0, 0.3, 0.0):
        time.sleep(pause_s)
        statuses.append(complete(run).returncode)

    _, summary = agent.communicate(timeout=PATIENCE_S)
    assert statuses == [0, 0, 0]
    assert "active in 3 of 3 processes" in summary
    assert "not active" not in summary


def test_a_run_started_beside_the_agent_waits_for_it(words, monarch_command, dataset):
    """It waits for 3 s; a busy machine may not have loaded the agent by then."""
    run = [monarch_command, "run", "--job", "early", "--", "cat", dataset.paths[0]]
    agent: subprocess.Popen[str] | None = None
    for _ in range(PATIENCE_S // 3):
        with subprocess.Popen(
            run, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as early:
            if agent is None:
                agent = subprocess.Popen(words(), stderr=subprocess.PIPE, text=True)
            content, told = early.communicate(timeout=PATIENCE_S)
        if b"has no agent here" not in told:
            break

    assert agent is not None
    _, summary = agent.communicate(timeout=PATIENCE_S)
    assert (early.returncode, told) == (0, b"")
    assert content == Path(dataset.paths[0]).read_bytes()
    assert "active in 1 of 1 process" in summary


def test_a_run_whose_agent_has_ended_runs_without_staging(
    monarch_command, run_root, dataset
):
    run = [monarch_command, "run", "--job", "early"]

    done = complete([*run, "--", "cksum", dataset.paths[0]])
    strict = complete([*run, "--strict", "--", "cksum", dataset.paths[0]])

    assert done.returncode == 0
    assert done.stderr == (
        "monarch: job early has no agent here, and no dataset; "
        "the program runs without staging\n"
    )
    assert strict.returncode == 125


def test_a_run_with_other_datasets_than_its_agent_gets_a_warning(
    words, monarch_command, dataset, tmp_path
):
    other = tmp_path / "other"
    other.mkdir()
    agent = begin(words())

    run = [monarch_command, "run", "--job", "early"]
    same = complete([*run, *words()[4:], "--", "true"])
    done = complete([*run, "--data", other, "--", "true"])

    agent.communicate(timeout=PATIENCE_S)
    assert same.stderr == ""
    assert done.stderr == (
        "monarch: the agent already runs with other options; "
        "those of this command are ignored\n"
    )


def test_the_agent_waits_for_programs_until_a_signal_ends_it(words, run_root):
    agent = begin(words("-q"))
    time.sleep(0.3)
    assert agent.poll() is None

    agent.send_signal(signal.SIGTERM)

    _, told = agent.communicate(timeout=PATIENCE_S)
    assert (agent.returncode, told) == (0, "")
    assert os.listdir(run_root) == []


def test_a_job_has_one_agent_on_a_node(words):
    agent = begin(words())

    second = complete(words())

    agent.terminate()
    agent.communicate(timeout=PATIENCE_S)
    assert second.returncode == 125
    assert second.stderr.endswith("another agent is already running\n")
    assert second.stderr.count("\n") == 1


def test_launchers_wait_while_the_agent_starts(
    words, monarch_command, dataset, mount_counted
):
    slow = mount_counted(dataset.root, stat_us=20_000)
    line = words("--data", str(slow.root))
    agent = subprocess.Popen(line, stderr=subprocess.PIPE, text=True)
    started = Path(os.environ["MONARCH_STAGING_RUN_DIR"])
    while not list(started.glob("early.*/lock")):
        time.sleep(0.01)

    name = sorted(dataset.digests)[0]
    run = [monarch_command, "run", "--job", "early", "--", "cat"]
    done = subprocess.run([*run, slow.root / name], capture_output=True, check=False)

    _, told = agent.communicate(timeout=PATIENCE_S)
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout == (dataset.root / name).read_bytes()
    assert "active in 1 of 1 process" in told


def test_an_agent_without_a_job_name_is_refused(words):
    done = complete([words()[0], "agent", *words()[4:]])

    assert done.returncode == 2
    assert done.stderr.startswith("monarch: --job NAME is required")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (["--no-such"], "unexpected argument '--no-such'"),
        (["program"], "unexpected argument 'program'"),
        (["--set", "fill.concurrency=0"], "fill.concurrency: 0 is not valid"),
        (["--tier", "ssd:1MiB:/nowhere"], "/nowhere does not exist"),
    ],
)
def test_bad_input_is_one_line_and_2(words, options, line):
    done = complete(words(*options))

    assert done.returncode == 2
    assert line in done.stderr
    assert done.stderr.count("\n") == 1


def test_many_nodes_of_mpi_need_mpi4py(words, tmp_path, monkeypatch):
    python = python_without("mpi4py", tmp_path)
    monkeypatch.setenv("MONARCH_STAGING_PYTHON", python)
    launch = {"PMI_RANK": "0", "PMI_SIZE": "4", "MPI_LOCALNRANKS": "1"}
    for name, value in launch.items():
        monkeypatch.setenv(name, value)

    done = complete(words())

    assert done.returncode == 2
    assert "pip install 'monarch-staging[mpi]'" in done.stderr
    assert done.stderr.count("\n") == 1
