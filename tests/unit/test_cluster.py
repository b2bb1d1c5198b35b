"""Names of job and node, and where their run directories are."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from monarch.cluster import find_run, node_name, run_root, safe_name, shared_job
from monarch.native import hosts_job, job_name

STEP = {"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0"}


@pytest.mark.parametrize(
    ("environ", "name"),
    [
        (STEP, "7.0"),
        ({"SLURM_JOB_ID": "7"}, None),
        ({"PMIX_NAMESPACE": "prterun-n1@1"}, "mpi-prterun-n1_1"),
        ({"OMPI_MCA_ess_base_jobid": "99"}, "mpi-99"),
        ({**STEP, "PMIX_NAMESPACE": "slurm.pmix.7.0"}, "7.0"),
        ({**STEP, "PMIX_NAMESPACE": "prterun-n1-9@1"}, "mpi-prterun-n1-9_1"),
        ({**STEP, "OMPI_MCA_ess_base_jobid": "99"}, "mpi-99"),
        ({}, None),
    ],
    ids=[
        *("step", "batch script", "pmix", "open mpi"),
        *("pmix of slurm", "open mpi in slurm", "old open mpi in slurm", "alone"),
    ],
)
def test_a_job_is_named_by_its_launch_and_not_by_a_batch_script(environ, name):
    assert job_name(environ) == name


def below_proxy(words: list[str], environ: dict[str, str]) -> str:
    """The name of a job, asked for by a child of a process with these arguments."""
    code = f"from monarch.native import job_name; print(job_name({environ!r}))"
    proxy = f"import subprocess as s; s.run([{sys.executable!r}, '-c', {code!r}])"
    command = [sys.executable, "-c", proxy, *words]
    return subprocess.check_output(command, text=True).strip()


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (["--control-port", "h.site:41"], "mpi-41-h.site"),
        (["--control-port", "::1:41"], "mpi-41-__1"),
        (["--control-port", "41"], None),
        (["--control-port"], None),
        (["--other", "h:41"], None),
    ],
)
def test_a_rank_of_mpich_is_named_by_where_its_mpiexec_listens(words, name):
    assert below_proxy(words, {"PMI_RANK": "0"}) == str(name)


def test_only_a_rank_of_mpich_looks_for_its_proxy():
    proxy = ["--control-port", "h:41"]

    assert below_proxy(proxy, {}) == "None"
    assert below_proxy(proxy, {"PMI_RANK": "0", "PMI_JOBID": "x"}) == "mpi-x"
    assert below_proxy(proxy, {"PMI_RANK": "0"}) == "mpi-41-h"


def test_nodes_meet_by_the_name_of_their_job_or_of_their_list(tmp_path):
    file = tmp_path / "job.yaml"
    file.write_text("schema: 1")
    job, hosts = "local-0123456789ab", ["a", "b[1-2]:7"]

    met = shared_job(job, hosts, 7, file)

    assert met == hosts_job("a,b[1-2]:7", 7, file)
    assert met.startswith("hosts-")
    others = [(["a", "b"], 7, file), (hosts, 8, file), (hosts, 7, None)]
    assert met not in [shared_job(job, *other) for other in others]
    assert shared_job("7.0", hosts, None, file) == "7.0"
    assert shared_job(job, [], 7, file) == job


def test_the_name_by_a_list_is_the_same_in_every_version(tmp_path):
    file = tmp_path / "job.yaml"
    file.write_bytes(b"schema: 1 # \xc3\xa9\n" * 1000)

    assert hosts_job("node[0-3],big:7001", 0, None) == "hosts-af0ab38d27d1"
    assert hosts_job("a", 0x1234567890ABCDEF, file) == "hosts-1677b006bccf"
    assert hosts_job("a", 0x1234567890ABCDEF, tmp_path) == "hosts-6a82688b6d07"


def test_a_node_is_named_by_us_then_by_slurm_then_by_itself():
    slurm = {"SLURMD_NODENAME": "n1"}

    assert node_name({**slurm, "MONARCH_STAGING_NODE": "mine"}) == "mine"
    assert node_name(slurm) == "n1"
    assert node_name({}) == safe_name(socket.gethostname())


def test_names_are_harmless_and_short():
    assert safe_name("a/../b c") == "a_.._b_c"
    assert len(safe_name("x" * 200)) == 64
    assert safe_name("\u00e9") == "__"  # by bytes, as the launcher counts them


def test_the_run_root_is_private_memory_unless_one_is_given():
    assert run_root({}) == Path(f"/dev/shm/monarch-{os.geteuid()}")
    assert run_root({"MONARCH_STAGING_RUN_DIR": "/r"}) == Path("/r")


def test_inside_a_job_its_own_run_directory_is_found(tmp_path):
    environ = {
        "MONARCH_STAGING_RUN": "/r/mine.n",
        "MONARCH_STAGING_RUN_DIR": str(tmp_path),
        "MONARCH_STAGING_NODE": "n",
    }

    assert find_run(environ, None) == [Path("/r/mine.n")]
    assert find_run(environ, "other") == [tmp_path / "other.n"]


def test_outside_of_any_job_all_run_directories_are_found(tmp_path):
    for name in ("a.n", "b.n", "unlocked.n"):
        (tmp_path / name).mkdir()
    for name in ("a.n", "b.n"):
        (tmp_path / name / "lock").touch()
    root = {"MONARCH_STAGING_RUN_DIR": str(tmp_path)}

    assert find_run(root, None) == [tmp_path / "a.n", tmp_path / "b.n"]
    assert find_run({"MONARCH_STAGING_RUN_DIR": "/nonexistent"}, None) == []
