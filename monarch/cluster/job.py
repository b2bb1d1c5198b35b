"""Which job and node this process belongs to, as the launcher names them too."""

import os
import re
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from monarch.cluster.hydra import launch_name
from monarch.errors import UsageError
from monarch.native import home, homes

NAME_MAX: Final = 64
RUN_VARIABLE: Final = "MONARCH_STAGING_RUN"

_MPI_VARIABLES: Final = (
    "PMIX_NAMESPACE",
    "OMPI_MCA_ess_base_jobid",
    "PALS_APID",
    "PMI_JOBID",
)
_OUTSIDE: Final = re.compile(r"[^A-Za-z0-9._-]")


def safe_name(text: str) -> str:
    """Return `text` as part of a file name: 64 harmless characters at most."""
    return _OUTSIDE.sub("_", text)[:NAME_MAX]


def node_name(environ: Mapping[str, str]) -> str:
    """Return the name of this node."""
    for variable in ("MONARCH_STAGING_NODE", "SLURMD_NODENAME"):
        if environ.get(variable):
            return safe_name(environ[variable])
    return safe_name(socket.gethostname())


def job_name(environ: Mapping[str, str]) -> str | None:
    """Return the name of the job that a scheduler or MPI has given, if one has."""
    job, step = environ.get("SLURM_JOB_ID"), environ.get("SLURM_STEP_ID")
    if job and step and not by_own_daemons(environ):
        return safe_name(f"{job}.{step}")
    for variable in _MPI_VARIABLES:
        if environ.get(variable):
            return safe_name(f"mpi-{environ[variable]}")
    launch = launch_name(os.getppid()) if environ.get("PMI_RANK") else None
    return safe_name(f"mpi-{launch}") if launch else None


def by_own_daemons(environ: Mapping[str, str]) -> bool:
    """Say whether Open MPI's daemons have launched us.

    Within Slurm they are a step that lacks the node of mpiexec itself.
    """
    namespace = environ.get("PMIX_NAMESPACE", "")
    return namespace.startswith("prte") or bool(environ.get("OMPI_MCA_ess_base_jobid"))


def run_root(environ: Mapping[str, str]) -> Path:
    """Return the directory in which new run directories are made on this node."""
    given = environ.get("MONARCH_STAGING_RUN_DIR")
    return Path(given) if given else home(make=True)


def run_roots(environ: Mapping[str, str]) -> list[Path]:
    """Return each directory in which run directories of this user may be."""
    given = environ.get("MONARCH_STAGING_RUN_DIR")
    return [Path(given)] if given else homes()


def find_run(environ: Mapping[str, str], job: str | None) -> list[Path]:
    """Return the run directories that the environment or `job` names.

    Without either they are all run directories of this user on this node.
    """
    if job is None and environ.get(RUN_VARIABLE):
        return [Path(environ[RUN_VARIABLE])]
    name = safe_name(job) if job is not None else job_name(environ)
    roots = run_roots(environ)
    if name is not None:
        return [root / f"{name}.{node_name(environ)}" for root in roots]
    return [run for root in roots for run in _runs_in(root)]


def _runs_in(root: Path) -> list[Path]:
    try:
        return sorted(path for path in root.iterdir() if (path / "lock").exists())
    except FileNotFoundError:
        return []
    except OSError as error:
        raise UsageError(f"{root}: {error.strerror}") from error
