"""Names of job and node, as the native launcher gives them too."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from monarch.cluster import (
    find_run,
    hosts_job,
    job_name,
    mesh_job,
    node_name,
    run_root,
    safe_name,
)
from monarch.cluster import (
    job as names,
)
from monarch.config import RunOptions

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
    code = "from monarch.cluster import job_name; print(job_name({'PMI_RANK': '0'}))"
    proxy = f"import subprocess as s; s.run([{sys.executable!r}, '-c', {code!r}])"

    said = subprocess.check_output([sys.executable, "-c", proxy, *words], text=True)

    assert said.strip() == str(name)


def test_only_a_rank_of_mpich_looks_for_its_proxy(monkeypatch):
    monkeypatch.setattr(names, "launch_name", lambda _: "41-h")

    assert job_name({}) is None
    assert job_name({"PMI_RANK": "0", "PMI_JOBID": "x"}) == "mpi-x"
    assert job_name({"PMI_RANK": "0"}) == "mpi-41-h"


def test_nodes_meet_by_the_name_of_their_job_or_of_their_list(tmp_path):
    options = RunOptions(data=("/d",))
    about: tuple[RunOptions, dict[str, str], Path] = (options, {}, tmp_path)

    met = mesh_job("local-0123456789ab", ["a", "b[1-2]:7"], *about)

    assert met == hosts_job("a,b[1-2]:7", *about)
    assert met != mesh_job("local-0123456789ab", ["a", "b"], *about)
    assert mesh_job("7.0", ["a", "b"], *about) == "7.0"
    assert mesh_job("local-0123456789ab", [], *about) == "local-0123456789ab"


def test_a_node_is_named_by_us_then_by_slurm_then_by_itself():
    slurm = {"SLURMD_NODENAME": "n1"}

    assert node_name({**slurm, "MONARCH_STAGING_NODE": "mine"}) == "mine"
    assert node_name(slurm) == "n1"
    assert node_name({}) == safe_name(socket.gethostname())


def test_names_are_harmless_and_short():
    assert safe_name("a/../b c") == "a_.._b_c"
    assert len(safe_name("x" * 200)) == 64


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
