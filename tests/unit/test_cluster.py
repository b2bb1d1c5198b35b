"""Names of job and node, as the native launcher gives them too."""

import os
import socket
from pathlib import Path

import pytest

from monarch.cluster import find_run, job_name, node_name, run_root, safe_name


@pytest.mark.parametrize(
    ("environ", "name"),
    [
        ({"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0"}, "7.0"),
        ({"SLURM_JOB_ID": "7"}, None),
        ({"PMIX_NAMESPACE": "prterun-n1@1"}, "mpi-prterun-n1_1"),
        ({"OMPI_MCA_ess_base_jobid": "99"}, "mpi-99"),
        ({}, None),
    ],
    ids=["step", "batch script", "pmix", "open mpi", "alone"],
)
def test_a_job_is_named_by_its_launch_and_not_by_a_batch_script(environ, name):
    assert job_name(environ) == name


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
