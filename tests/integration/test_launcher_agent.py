"""How `monarch run` finds the agent of this node or starts it once."""

import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from support.launcher import HEALTHY, SANITIZED, START, Launch, Step
from support.processes import wait_until

pytest_plugins = ["support.launcher_fixtures"]

READY: list[Step] = [*START, ["write", "ready staging nothing to ram\n"]]
REST = HEALTHY[len(READY) :]


def test_agent_inherits_nothing_but_its_pipe(launch: Launch, tmp_path: Path) -> None:
    launch.script([*START, ["report_self"], ["write", "ready x\n"], *REST])
    preload = launch.environ | {"LD_PRELOAD": launch.layout["shim"]}

    def bind() -> None:
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGUSR1})

    extra = os.open("/dev/zero", os.O_RDONLY)
    done = launch.run(
        "true", env=preload, cwd=tmp_path, pass_fds=[extra], preexec_fn=bind
    )
    os.close(extra)

    (agent,) = launch.events("self")
    assert done.returncode == 0
    assert {fd: agent["fds"][fd] for fd in ("0", "1")} == dict.fromkeys(
        "01", "/dev/null"
    )
    assert agent["fds"].pop("2").endswith("/agent.log")
    kinds = {target.split(":")[0] for fd, target in agent["fds"].items() if fd > "1"}
    assert "/dev/zero" not in kinds
    assert sum(target.startswith("pipe:") for target in agent["fds"].values()) == 1
    assert agent["fds"]["3"].startswith("pipe:")
    assert "MONARCH_STAGING_RUN" not in agent["environment"]
    assert agent["preload"] is None
    assert agent["cwd"] == str(tmp_path)
    assert agent["session"] not in (os.getsid(0), agent["pid"])
    assert agent["cpus"] == len(os.sched_getaffinity(0))
    blocked = {line.split()[0]: int(line.split()[1], 16) for line in agent["signals"]}
    assert blocked["SigBlk:"] == 0
    # Python itself ignores SIGPIPE and SIGXFSZ.
    assert not blocked["SigIgn:"] & 1 << (signal.SIGINT - 1)


def test_only_the_program_keeps_the_agent_alive(launch: Launch) -> None:
    done = launch.run("sh", "-c", "echo $$")

    (finish,) = launch.events("finish")
    (pid,) = [pid for pid, begun in finish["launchers"] if begun]
    assert pid == int(done.stdout)


def test_sixty_four_at_once_start_one_agent(launch: Launch, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    launch.script(
        [["sleep", 0.2], *START[:-1], ["sleep", 0.2], *START[-1:], *HEALTHY[4:]]
    )
    program = f"echo $$ >> {tmp_path}/pids; while ! [ -e {gate} ]; do sleep 0.1; done"

    runs = [launch.popen("--job", "j", "sh", "-c", program) for _ in range(64)]
    pids = tmp_path / "pids"
    wait_until(lambda: pids.exists() and len(pids.read_text().split()) == 64)
    gate.touch()
    ends = [run.communicate(timeout=60) for run in runs]

    assert [run.returncode for run in runs] == [0] * 64
    assert len(launch.events("start")) == 1
    assert sum(b"the report" in err for _, err in ends) == 1
    assert sum(bool(err) for _, err in ends) == 1
    (finish,) = launch.events("finish")
    assert {pid for pid, _ in finish["launchers"]} == set(
        map(int, pids.read_text().split())
    )


def test_a_second_launcher_becomes_the_program(launch: Launch, tmp_path: Path) -> None:
    first = launch.start_agent(tmp_path / "gate")

    second = launch.popen("--job", "j", "sh", "-c", "echo $$; echo $LD_PRELOAD")
    out, err = second.communicate(timeout=30)
    (tmp_path / "gate").touch()
    first.communicate(timeout=30)

    pid, preload = out.decode().split()
    assert int(pid) == second.pid
    assert preload.endswith("/shim.so")
    assert err == b""
    assert first.returncode == 11


@pytest.mark.parametrize(
    ("words", "warned"),
    [
        ([], False),
        (["--data", "/d", "--set=a=b", "--strict", "-q"], False),
        (["--data", "/d", "--set", "a=b"], False),
        (["--data", "/d"], True),
        (["--data", "/d", "--set", "a=c"], True),
    ],
)
def test_other_options_than_the_agents_are_one_warning(
    launch: Launch, tmp_path: Path, words: list[str], warned: bool
) -> None:
    first = launch.start_agent(tmp_path / "gate", "--data=/d", "--set", "a=b")

    second = launch.run("--job", "j", *words, "echo", "hello")
    (tmp_path / "gate").touch()
    first.communicate(timeout=30)

    warning = (
        "monarch: the agent already runs with other options; "
        "those of this command are ignored"
    )
    assert second.stdout == b"hello\n"
    assert second.stderr.decode() == f"{warning}\n" * warned


def test_with_wait_a_second_launcher_stays_until_the_agent_ends(
    launch: Launch, tmp_path: Path
) -> None:
    first = launch.start_agent(tmp_path / "gate")

    second = launch.popen("--job", "j", "--wait", "sh", "-c", "echo $$; exit 6")
    assert second.stdout
    assert int(second.stdout.readline()) != second.pid
    with pytest.raises(subprocess.TimeoutExpired):
        second.wait(timeout=1)
    (tmp_path / "gate").touch()
    second.communicate(timeout=30)
    first.communicate(timeout=30)

    assert second.returncode == 6
    assert launch.events("finish")


def test_a_nested_run_joins_its_parent(launch: Launch) -> None:
    inner = f"{launch.command} run --job other sh -c 'echo $LD_PRELOAD; exit 8'"

    done = launch.run("sh", "-c", f"echo $LD_PRELOAD; {inner}")

    outer, nested = done.stdout.decode().splitlines()
    assert outer == nested
    assert len(launch.events("start")) == 1
    assert done.returncode == 8


def test_a_nested_run_without_a_living_parent_has_its_own_agent(
    launch: Launch, tmp_path: Path
) -> None:
    gone = tmp_path / "gone"
    environ = launch.environ | {
        "MONARCH_STAGING_RUN": str(gone),
        "LD_PRELOAD": f"{gone}/shim.so:{launch.layout['shim']}",
    }

    done = launch.run("-q", "sh", "-c", "echo $LD_PRELOAD", env=environ)

    other, shim = done.stdout.decode().strip().split(":")
    assert shim.startswith(str(launch.run_root))
    assert other == launch.layout["shim"]


def test_progress_is_a_line_now_and_then_and_each_warning_is_one(
    launch: Launch,
) -> None:
    progress = "".join(f"progress {number}\n" for number in range(1, 14))
    warnings = "warn w\nnew x\nwarn v\n"
    launch.script([*START, ["write", progress + warnings], *HEALTHY[4:]])

    done = launch.run("true")

    assert done.stderr.decode().splitlines()[:3] == [
        "monarch: 1",
        "monarch: w",
        "monarch: v",
    ]


def test_launcher_that_finds_an_ending_agent_starts_another_one(
    launch: Launch, tmp_path: Path
) -> None:
    launch.script([*READY, ["follow"], ["state", 3], ["sleep", 1], ["remove"]])
    first = launch.popen("--job", "j", "true")
    wait_until(lambda: launch.events("finish"))
    launch.script(HEALTHY)

    second = launch.run("--job", "j", "echo", "hello")

    first.communicate(timeout=30)
    assert second.stdout == b"hello\n"
    assert second.stderr.endswith(b"the report\n")
    assert len(launch.events("start")) == 2


def test_the_programs_outputs_end_when_the_program_closes_them(
    launch: Launch, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    program = f"exec >&-; while ! [ -e {gate} ]; do sleep 0.05; done"

    run = launch.popen("-q", "sh", "-c", program, stderr=None)
    with run:
        assert run.stdout
        rest = run.stdout.read()
        gate.touch()

    assert rest == b""
    assert run.returncode == 0


def test_killed_launcher_leaves_the_program_alone(
    launch: Launch, tmp_path: Path
) -> None:
    gate, done = tmp_path / "gate", tmp_path / "done"
    program = f"echo $$; while ! [ -e {gate} ]; do sleep 0.05; done; touch {done}"
    with launch.popen("-q", "sh", "-c", program, stderr=None) as run:
        assert run.stdout
        run.stdout.readline()
        run.kill()
    gate.touch()

    wait_until(done.exists)
    wait_until(lambda: launch.events("finish"))


@pytest.mark.parametrize(
    ("environ", "name"),
    [
        ({"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0"}, "7.0.n1"),
        ({"PMIX_NAMESPACE": "a/b c"}, "mpi-a_b_c.n1"),
        ({"OMPI_MCA_ess_base_jobid": "99"}, "mpi-99.n1"),
        ({"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "1", "PMIX_NAMESPACE": "x"}, "7.1.n1"),
        ({"SLURMD_NODENAME": "n2", "PMIX_NAMESPACE": "x"}, "mpi-x.n1"),
        ({"PMIX_NAMESPACE": "p" * 200}, "mpi-" + "p" * 60 + ".n1"),
    ],
)
def test_job_and_node_are_named_by_the_launch(
    launch: Launch, environ: dict[str, str], name: str
) -> None:
    node = {"MONARCH_STAGING_NODE": "n1"}

    done = launch.run(
        "-q", "printenv", "MONARCH_STAGING_RUN", env=launch.environ | environ | node
    )

    assert Path(done.stdout.decode().strip()).name == name


def test_a_batch_script_is_a_job_of_its_own(launch: Launch) -> None:
    batch = {"SLURM_JOB_ID": "7", "SLURMD_NODENAME": "n2"}

    done = launch.run(
        "-q", "printenv", "MONARCH_STAGING_RUN", env=launch.environ | batch
    )

    job, node = Path(done.stdout.decode().strip()).name.split(".")
    assert job.startswith("local-")
    assert len(job) == len("local-") + 12
    assert node == "n2"


@pytest.mark.skipif(SANITIZED, reason="sanitizers make calls of their own")
def test_joining_costs_few_system_calls(
    launch: Launch, tmp_path: Path, tool: Callable[[str], str]
) -> None:
    strace = tool("strace")
    first = launch.start_agent(tmp_path / "gate")
    trace = tmp_path / "trace"
    words = map(str, launch.argv("--job", "j", "/bin/true"))

    subprocess.run(
        [strace, "-f", "-o", trace, "-e", "trace=%file,%desc", *words],
        check=True,
        env=launch.environ,
    )
    (tmp_path / "gate").touch()
    first.communicate(timeout=30)

    assert len(trace.read_text().splitlines()) <= 100
