"""The rank of a process, the number of ranks, and a name shared by all ranks."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from monarch.errors import UsageError

_PAIRS: Final = (
    ("RANK", "WORLD_SIZE"),  # torchrun
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("PMIX_RANK", "PMIX_SIZE"),
    ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),
)
_JOBS: Final = (
    ("TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT"),
    ("OMPI_MCA_ess_base_jobid",),
    ("PMIX_NAMESPACE",),
    ("SLURM_JOB_ID", "SLURM_STEP_ID"),
)


@dataclass(frozen=True, slots=True)
class Ranks:
    """The ranks of a job.

    Attributes:
        source: the source of these values.
        job: name of the job, equal for all its ranks on a node.
        comm: a communicator as of mpi4py, if one is used.
    """

    rank: int
    world_size: int
    source: str
    job: str
    comm: Any = None

    def told_by_first(self, value: Any) -> Any:
        """Return the value of rank 0; without a communicator, the own value."""
        return value if self.comm is None else self.comm.bcast(value, root=0)


def find_ranks(
    rank: int | None,
    world_size: int | None,
    comm: Any = None,
    environ: Mapping[str, str] = os.environ,
) -> Ranks:
    """Return the ranks, from arguments, a communicator or the launcher's variables.

    Args:
        comm: a communicator as of mpi4py.

    Raises:
        UsageError: the arguments contradict each other.
    """
    if (rank is None) != (world_size is None):
        raise UsageError("give rank and world_size together, or neither")
    if rank is not None and world_size is not None:
        job = _job(environ) if world_size > 1 else _own()
        return Ranks(rank, world_size, "arguments", job, comm)
    if comm is not None:
        of, size = comm.Get_rank(), comm.Get_size()
        return Ranks(of, size, "communicator", _job(environ), comm)
    for names in _PAIRS:
        found = [environ.get(name, "") for name in names]
        if all(value.isdecimal() for value in found) and int(found[1]) > 1:
            return Ranks(int(found[0]), int(found[1]), names[0], _job(environ))
    return Ranks(0, 1, "one process", _own())


def _job(environ: Mapping[str, str]) -> str:
    """Return a name that is equal for all ranks of one launcher."""
    for names in _JOBS:
        found = [environ.get(name, "") for name in names]
        if all(found):
            return ".".join(found)
    return f"child.{os.getppid()}"


def _own() -> str:
    return f"process.{os.getpid()}"
