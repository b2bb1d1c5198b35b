"""Which launchers find the same job: those of one launch, on any node."""

import os
import subprocess
from pathlib import Path

import pytest

from monarch.native import config_file, hosts_job
from support.launcher import Launch

pytest_plugins = ["support.launcher_fixtures"]

HOSTS = "node[0-3],big:7001"


def job_of(launch: Launch, *words: str, **variables: str) -> str:
    """The job that `monarch run` joins or begins on node `n`."""
    environ = {**launch.environ, "MONARCH_STAGING_NODE": "n", **variables}
    done = launch.run(
        *("-q", *words, "printenv", "MONARCH_STAGING_RUN"),
        env=environ,
        cwd=launch.folder,
    )
    assert done.stdout, done.stderr
    return name_of(done.stdout)


def name_of(output: bytes) -> str:
    """The job of a run directory that was printed."""
    return Path(os.fsdecode(output).strip()).name.removesuffix(".n")


def test_the_same_command_on_each_host_is_one_job(launch: Launch) -> None:
    (launch.folder / "c.yaml").write_text("schema: 1\n")
    words = ("--hosts", HOSTS, "-c", "c.yaml", "--data", "/d")

    here, there = (job_of(launch, *words, SLURMD_NODENAME=n) for n in ("n1", "n2"))

    assert here == there
    assert here.startswith("hosts-")
    assert len(here) == len("hosts-") + 12
    assert job_of(launch, "--hosts", HOSTS, "--data", "/d", "-c", "c.yaml") == here
    assert job_of(launch, "--strict", *words) == here


def test_another_list_option_or_configuration_is_another_job(launch: Launch) -> None:
    file = launch.folder / "c.yaml"
    file.write_text("schema: 1\n")
    words = ("-c", "c.yaml")

    jobs = [
        job_of(launch, "--hosts", HOSTS, *words),
        job_of(launch, "--hosts", "a,b", *words),
        job_of(launch, "--hosts", HOSTS, *words, "--data", "/d"),
        job_of(launch, "--hosts", HOSTS, *words, "--data", "/d", "--data", "/e"),
        job_of(launch, "--hosts", HOSTS, *words, "--data", "/e", "--data", "/d"),
        job_of(launch, "--hosts", HOSTS),
    ]
    file.write_text("schema: 1\nretain: node\n")
    jobs.append(job_of(launch, "--hosts", HOSTS, *words))

    assert len(set(jobs)) == len(jobs)


def test_a_name_or_a_scheduler_takes_precedence_over_the_list(launch: Launch) -> None:
    words = ("--hosts", HOSTS)

    assert job_of(launch, *words, "--job", "mine") == "mine"
    assert job_of(launch, *words, SLURM_JOB_ID="7", SLURM_STEP_ID="0") == "7.0"
    assert job_of(launch, *words, PMIX_NAMESPACE="x") == "mpi-x"
    assert job_of(launch, MONARCH_STAGING_HOSTS="").startswith("local-")


def options_of(launch: Launch, *words: str, **variables: str) -> int:
    """The fingerprint of options that the agent of a job without a name is given."""
    assert job_of(launch, *words, **variables).startswith("local-")
    argv = launch.events("start")[-1]["argv"]
    return int(argv[argv.index("--options-fingerprint") + 1], 16)


@pytest.mark.parametrize("place", ["option", "variable", "here", "xdg", "home", "none"])
def test_the_agent_names_a_job_by_its_list_like_the_launcher(
    launch: Launch, place: str
) -> None:
    files = {
        "option": "c.yaml",
        "variable": "v.yaml",
        "here": "monarch.yaml",
        "xdg": "xdg/monarch-staging/config.yaml",
        "home": ".config/monarch-staging/config.yaml",
        "none": "elsewhere",
    }
    path = launch.folder / files[place]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"schema: 1 # \xc3\xa9\n" * 1000)
    environ = {"HOME": str(launch.folder)}
    environ["XDG_CONFIG_HOME"] = str(launch.folder / "xdg") if place == "xdg" else "x"
    if place == "variable":
        environ["MONARCH_STAGING_CONFIG"] = "v.yaml"
    words = ["--set", "a=1", "--data", "/d", "--set", "b=\u00e9", "--tier", "ram:1GiB"]
    if place == "option":
        words += ["-cc.yaml"]

    options = options_of(launch, *words, **environ)
    named = job_of(launch, *words, **environ, MONARCH_STAGING_HOSTS=HOSTS)

    file = "c.yaml" if place == "option" else config_file(environ, launch.folder)
    assert (file is None) == (place == "none")
    assert file is None or (launch.folder / file).samefile(path)
    config = None if file is None else launch.folder / file
    assert named == hosts_job(HOSTS, options, config)


def test_the_name_by_a_list_depends_on_options_of_the_agent_only(
    launch: Launch,
) -> None:
    words = ("--index=", "--report", "r", "--secret-file=s")

    options = options_of(launch, *words, HOME="relative")
    named = job_of(launch, "--wait", *words, HOME="relative", MONARCH_STAGING_HOSTS="a")

    assert named == hosts_job("a", options, None)
    assert options != options_of(launch, *words[1:], HOME="relative")


def test_the_agent_of_a_named_job_gets_no_options_fingerprint(launch: Launch) -> None:
    job_of(launch, "--job", "mine", "--data", "/d")

    assert "--options-fingerprint" not in launch.events("start")[-1]["argv"]


def test_ranks_below_proxies_of_one_mpiexec_are_one_job(launch: Launch) -> None:
    environ = {**launch.environ, "MONARCH_STAGING_NODE": "n", "PMI_RANK": "1"}
    command = launch.argv("-q", "printenv", "MONARCH_STAGING_RUN")

    def rank(port: str, between: str) -> str:
        proxy = ["hydra_pmi_proxy", "--control-port", f"head.site:{port}", "--x"]
        shell = f'shift 3; {between} "$@"; exit $?'
        words = ["sh", "-c", shell, *proxy, *command]
        done = subprocess.run(words, capture_output=True, env=environ, check=True)
        return name_of(done.stdout)

    assert rank("4711", "") == "mpi-4711-head.site"
    assert rank("4711", "sh -c '\"$@\"; exit $?' between") == "mpi-4711-head.site"
    assert rank("4712", "") == "mpi-4712-head.site"


def test_open_mpi_within_a_slurm_step_is_named_by_its_own_daemons(
    launch: Launch,
) -> None:
    step = {"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0"}

    on_head = job_of(launch, SLURM_JOB_ID="7", PMIX_NAMESPACE="prterun-h-9@1")
    in_step = job_of(launch, **step, PMIX_NAMESPACE="prterun-h-9@1")

    assert on_head == in_step == "mpi-prterun-h-9_1"
    assert job_of(launch, **step, OMPI_MCA_ess_base_jobid="5") == "mpi-5"
    assert job_of(launch, **step, PMIX_NAMESPACE="slurm.pmix.7.0") == "7.0"
