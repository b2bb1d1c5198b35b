"""The processes of an MPI launch: one on each node acts for it, the others wait."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Mapping
from typing import Any, Final, Self

from monarch.cluster import node_name
from monarch.errors import UsageError

# MPI libraries wait by spinning, which would take a core from the program beside us.
LOOK_S: Final = 0.005
# One signal ends all processes of a launch; some may end later than others.
LAST_S: Final = 5.0


def import_mpi() -> Any:
    """Return mpi4py's module MPI; importing it starts MPI.

    Raises:
        UsageError: it is not installed, or finds no MPI library.
    """
    try:
        from mpi4py import MPI
    except ModuleNotFoundError:
        raise UsageError(
            "MPI needs the package mpi4py: pip install 'monarch-staging[mpi]'"
        ) from None
    except (ImportError, RuntimeError, OSError) as error:
        reason = " ".join(str(error).split())
        raise UsageError(
            f"mpi4py finds no MPI library ({reason}): load your site's MPI, or "
            "pip install mpich"
        ) from error
    return MPI


class Launch:
    """The role of this process in an MPI launch.

    Attributes:
        nodes: the names of the nodes, in the order of their first ranks.
        number: the number of this node.
        acts: whether this process is the first one on its node.
        first: whether this process is the first of all, which reports for all.
        acting: the communicator of the acting processes; unused by the others.
    """

    def __init__(self, mpi: Any, environ: Mapping[str, str]) -> None:
        _use_all_cpus()
        self._mpi = mpi
        self.world = mpi.COMM_WORLD
        names = self.world.allgather(node_name(environ))
        self.nodes: tuple[str, ...] = tuple(dict.fromkeys(names))
        rank = self.world.Get_rank()
        self.number = self.nodes.index(names[rank])
        self.first = rank == 0
        self.acts = names.index(names[rank]) == rank
        self.acting = self.world.Split(0 if self.acts else 1, rank)

    def __repr__(self) -> str:
        return f"<Launch on {len(self.nodes)} nodes, this is {self.number}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: object, _trace: object
    ) -> None:
        """Leave MPI together with all others.

        After an error the others are aborted if they do not leave soon: they may wait.
        """
        timeout_s = None if kind is None else LAST_S
        if not rest(self.world.Ibarrier(), timeout_s):
            # This is the last message of this process.
            node, what = self.nodes[self.number], kind.__name__ if kind else ""
            print(f"monarch: on {node}: {what}: {error}", file=sys.stderr, flush=True)
            self.world.Abort(125)
        self._mpi.Finalize()

    def meet(self) -> None:
        """Wait for all processes that act, without spinning."""
        rest(self.acting.Ibarrier())


def _use_all_cpus() -> None:
    """Undo the binding of a rank to one core: the work is done by threads.

    The kernel limits the set to the CPUs that the job may use.
    """
    with contextlib.suppress(OSError):
        os.sched_setaffinity(0, range(os.cpu_count() or 1))


def rest(request: Any, timeout_s: float | None = None) -> bool:
    """Wait for an MPI request without spinning; return False after the timeout."""
    deadline_s = None if timeout_s is None else time.monotonic() + timeout_s
    while not request.Test():
        if deadline_s is not None and time.monotonic() >= deadline_s:
            return False
        time.sleep(LOOK_S)
    return True
