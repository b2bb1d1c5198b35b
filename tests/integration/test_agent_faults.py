"""Faults around an agent: its programs read the right bytes every time."""

import contextlib
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from support.agents import AgentProcess, start_agent
from support.dataset import Dataset, make_dataset


@pytest.fixture
def begin(run_root, tmp_path, dataset, monkeypatch):
    """A function that starts an agent on the dataset with the Tiers of the test."""
    import monarch.native

    library = Path(monarch.native.__file__).parent / "libmonarch_shim.so"
    if not library.exists() or library.stat().st_size < 20_000:
        pytest.skip("the Shim is not built")
    monkeypatch.setenv("MONARCH_STAGING_NODE", "n")
    started: list[AgentProcess] = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()

    def start(*options, job="j", data=dataset.root, cgroup=None):
        agent = start_agent(run_root / f"{job}.n", ["--data", str(data), *options])
        started.append(agent)
        if cgroup is not None:
            (cgroup / "cgroup.procs").write_text(str(agent.process.pid))
        agent.listen("ready")
        return agent

    yield start
    for agent in started:
        agent.kill()


def ssd(path: Path, capacity="64MiB") -> tuple[str, str]:
    return "--tier", f"ssd:{capacity}:{path}"


def replicas(path: Path, job="j.n") -> Path:
    return path.joinpath(f"monarch-{os.geteuid()}", job, "ssd")


def right(agent: AgentProcess, dataset: Dataset) -> bool:
    expected = b"".join(path.read_bytes() for path in dataset.paths)
    return agent.read(*dataset.paths) == expected


@pytest.fixture
def small_mount(tmp_path):
    """A tmpfs of 4 MiB."""
    path = tmp_path / "mount"
    path.mkdir()
    subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(path)], check=True
    )
    yield path
    subprocess.run(["umount", "-l", str(path)], check=True)


@pytest.mark.root
def test_a_full_tier_is_counted_and_takes_no_more(begin, dataset, small_mount):
    agent = begin("--set", "fill.enabled=false", *ssd(small_mount, "100%"))
    ballast = small_mount / "ballast"
    ballast.write_bytes(bytes(3 << 20))
    with contextlib.suppress(OSError), open(ballast, "ab", buffering=0) as file:
        while file.write(bytes(4096)):
            pass

    assert right(agent, dataset)
    assert agent.figures()["tiers_full"] >= 1
    assert agent.figures()["agent_errors"] == 0


def test_a_capacity_too_small_for_all_stages_the_files_that_fit(
    begin, dataset, tmp_path
):
    agent = begin(*ssd(tmp_path / "a", "256KiB"))
    agent.await_staged(5)

    assert right(agent, dataset)
    report = agent.status()["report"]
    assert report["tiers"][0]["used_bytes"] <= 256 << 10
    assert any("no tier had room" in row["reason"] for row in report["unstaged"])


def test_a_removed_tier_directory_is_survived_by_the_next_tier(
    begin, dataset, tmp_path
):
    agent = begin(
        "--set",
        "fill.enabled=false",
        *ssd(tmp_path / "a"),
        *("--tier", f"ssd:64MiB:{tmp_path / 'b'}", "--set", "tiers[1].name=second"),
    )
    assert right(agent, dataset)
    shutil.rmtree(replicas(tmp_path / "a"))

    assert right(agent, dataset)
    assert right(agent, dataset)
    agent.await_figure("tiers_lost", 1)
    agent.await_staged(41)
    tiers = agent.status()["report"]["tiers"]
    assert [tier["in_service"] for tier in tiers] == [False, True]
    assert tiers[1]["files"] == 41


def test_a_removed_replica_is_staged_again(begin, dataset, tmp_path):
    agent = begin(*ssd(tmp_path / "a"))
    agent.await_staged(41)
    victim = next(replicas(tmp_path / "a").iterdir())
    victim.unlink()

    assert right(agent, dataset)
    agent.await_figure("replicas_lost", 1)
    agent.await_staged(41)
    assert victim.exists()
    assert right(agent, dataset)


def test_an_origin_that_changed_since_the_scan_is_never_staged(
    begin, dataset, tmp_path
):
    agent = begin("--set", "fill.enabled=false", *ssd(tmp_path / "a"))
    changed = dataset.paths[3]
    changed.write_bytes(b"new content")

    assert agent.read(changed) == b"new content"
    assert agent.read(changed) == b"new content"
    report = agent.status()["report"]
    assert report["changed"] == [str(changed)]
    assert report["agent"]["files_changed"] == 1


def test_a_program_reads_the_origin_after_its_agent_is_killed(begin, dataset, tmp_path):
    agent = begin(*ssd(tmp_path / "a"))
    agent.await_staged(10)
    environ = agent.environ()
    agent.kill()

    command = ["cat", *map(str, dataset.paths)]
    done = subprocess.run(command, env=environ, stdout=subprocess.PIPE, check=True)

    assert done.stdout == b"".join(path.read_bytes() for path in dataset.paths)


# -- retained tiers -----------------------------------------------------------------


RETAIN = ("--set", "retain=node")


def test_a_retained_tier_is_adopted_without_reading_the_origin(
    begin, dataset, tmp_path
):
    first = begin(*RETAIN, *ssd(tmp_path / "a"))
    first.await_staged(41)
    first.stop()

    second = begin(*RETAIN, *ssd(tmp_path / "a"), job="k")
    figures = second.await_figure("adopted_files", 41)

    assert figures["origin_read_bytes"] == figures["staged_files"] == 0
    assert right(second, dataset)


@pytest.mark.parametrize("harm", ["flipped", "cut", "replaced"])
def test_a_retained_replica_that_has_changed_is_staged_anew(
    begin, dataset, tmp_path, harm
):
    first = begin(*RETAIN, *ssd(tmp_path / "a"))
    first.await_staged(41)
    first.stop()
    retained = next((tmp_path / "a").glob("monarch-*/retained-*"))
    victim = max(retained.glob("?" * 32), key=lambda path: path.stat().st_size)
    content = bytearray(victim.read_bytes())
    victim.chmod(0o600)
    if harm == "flipped":
        content[len(content) // 2] ^= 1
    elif harm == "cut":
        del content[-1]
    else:
        victim.unlink()
        content = bytearray(b"another file")
    victim.write_bytes(content)

    second = begin(*RETAIN, *ssd(tmp_path / "a"), job="k")
    figures = second.await_figure("adopted_files", 40)
    second.await_staged(41)

    assert second.figures()["staged_files"] == 1
    assert figures["agent_errors"] == 0
    assert right(second, dataset)


def test_files_changed_between_jobs_are_not_adopted(begin, dataset, tmp_path):
    first = begin(*RETAIN, *ssd(tmp_path / "a"))
    first.await_staged(41)
    first.stop()
    dataset.paths[0].write_bytes(b"changed since")

    second = begin(*RETAIN, *ssd(tmp_path / "a"), job="k")
    second.await_staged(41)

    assert second.figures()["adopted_files"] == 40
    assert second.read(dataset.paths[0]) == b"changed since"
    assert len(list(replicas(tmp_path / "a", "k.n").iterdir())) == 41


# -- memory -------------------------------------------------------------------------


@pytest.fixture
def memory_cgroup():
    """A memory cgroup of 256 MiB below our own (v1), or a reason to skip."""
    lines = Path("/proc/self/cgroup").read_text().splitlines()
    own = next((li.split(":", 2)[2] for li in lines if ":memory:" in li), None)
    if own is None:
        pytest.skip("needs a memory hierarchy of cgroup v1")
    path = Path(f"/sys/fs/cgroup/memory{own}/monarch-test-{os.getpid()}")
    try:
        path.mkdir()
        (path / "memory.limit_in_bytes").write_text(str(MEMORY_MIB << 20))
    except OSError as error:
        pytest.skip(f"needs to make cgroups: {error.strerror}")
    yield path
    for pid in (path / "cgroup.procs").read_text().split():
        (path.parent / "cgroup.procs").write_text(pid)
    path.rmdir()


# Allocates 1 MiB more with each line that it reads, while the job runs.
GREEDY = """
import sys
held = []
for _ in sys.stdin:
    held.append(bytearray(b"x") * (1 << 20))
    print(flush=True)
"""
MEMORY_MIB = 256


@pytest.mark.root
def test_ram_replicas_take_and_keep_no_memory_that_the_job_needs(
    begin, tmp_path, memory_cgroup
):
    large = make_dataset(tmp_path / "large", files=100, mean_bytes=1 << 20, large=20)
    options = ("--set", "fill.enabled=false", "--tier", "ram:240MiB")
    agent = begin(*options, data=large.root, cgroup=memory_cgroup)

    # Many readers at once stage more than fits, within a moment.
    readers = [agent.begin_read(*large.paths[first::4]) for first in range(4)]
    assert [reader.wait() for reader in readers] == [0] * 4
    assert agent.process.poll() is None
    shell = f'echo $$ >{memory_cgroup}/cgroup.procs; exec "$@"'
    line = ["sh", "-c", shell, "sh", sys.executable, "-c", GREEDY]
    with subprocess.Popen(
        line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as greedy:
        assert greedy.stdin is not None
        assert greedy.stdout is not None
        # The space that the Replicas leave free depends on their speed. The agent
        # checks once a second: memory taken in between must not end the job.
        for _ in range(MEMORY_MIB):
            print(file=greedy.stdin, flush=True)
            assert greedy.stdout.readline() == "\n"
            if agent.figures()["evicted_files"]:
                break
            time.sleep(0.25)
        greedy.communicate()

    assert agent.figures()["evicted_files"] >= 1
    assert greedy.returncode == 0
    assert right(agent, large)
    assert agent.process.poll() is None
    agent.stop()


def test_a_program_beside_those_of_a_dead_agent_sees_their_writes(
    begin, dataset, monarch_command, tmp_path, memory
):
    # In its own directory: other tests must not find leftovers of a killed agent.
    agent = begin(*ssd(tmp_path / "a"))
    path = dataset.paths[0]
    agent.await_staged(41)
    shell = (
        f"cat {path} >/dev/null; echo read; read go; printf NEW >{path}; echo written"
    )
    before = subprocess.Popen(
        ["sh", "-c", f"{shell}; read go"],
        env=agent.environ(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert before.stdin is not None
    assert before.stdout is not None
    assert before.stdout.readline() == "read\n"
    agent.kill()

    with before:
        run = [str(monarch_command), "run", "--job", "j", "--data", str(dataset.root)]
        run += ["--tier", f"ram:64MiB:{memory}"]
        script = f"echo began; read go; head -c3 {path}"
        beside = subprocess.Popen(
            [*run, "--", "sh", "-c", script],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert beside.stdout is not None
        assert beside.stdout.readline() == "began\n"
        print(file=before.stdin, flush=True)
        assert before.stdout.readline() == "written\n"
        shown, told = beside.communicate("\n", timeout=30)
        print(file=before.stdin, flush=True)

    assert shown == "NEW"
    assert "the agent of this job has died" in told
