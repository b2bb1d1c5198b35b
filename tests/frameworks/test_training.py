"""A killed training resumes on fewer ranks as if it had not been killed."""

import json
import os
import signal
import socket
import statistics
import subprocess
import sys
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path

import numpy as np
import pytest

from support.mpiexec import Mpi
from support.processes import wait_until
from support.programs import consumer

pytest_plugins = ["support.launched_fixtures"]
pytestmark = [pytest.mark.frameworks, pytest.mark.timeout(600)]

PROGRAM = "train_mlp.py"
LIMIT_S = 240
WITHIN = 0.01
Batches = list[list[int]]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Samples, ordered by what is to be learned."""
    path = tmp_path_factory.mktemp("training") / "samples.npy"
    subprocess.run([sys.executable, *consumer(PROGRAM, "make", path)[1:]], check=True)
    return path


@pytest.fixture(params=["torchrun", "mpich", "openmpi"])
def launcher(request: pytest.FixtureRequest) -> "Launcher":
    """What starts the ranks."""
    if request.param == "torchrun":
        return Launcher(None)
    return Launcher(request.getfixturevalue(request.param))


class Launcher:
    """Starts a training on some ranks of this machine."""

    def __init__(self, mpi: Mpi | None) -> None:
        self._mpi = mpi

    def start(self, data: Path, folder: Path, ranks: int) -> subprocess.Popen[str]:
        """Start the ranks."""
        words = consumer(PROGRAM, "train", data)[1:]
        if self._mpi is None:
            line = [sys.executable, "-P", "-m", "torch.distributed.run", "--standalone"]
            line += [f"--nproc-per-node={ranks}", *words, str(folder)]
        else:
            line = [*self._mpi.here(ranks), sys.executable, *words, str(folder)]
        folder.mkdir(exist_ok=True)
        environ = {**os.environ, **meeting_point(), "OMP_NUM_THREADS": "1"}
        with (folder / "errors").open("a") as errors:
            return subprocess.Popen(
                line, env=environ, stdout=subprocess.PIPE, stderr=errors, text=True
            )

    def train(self, data: Path, folder: Path, ranks: int) -> float:
        """Train to the end; return the loss."""
        with self.start(data, folder, ranks) as process:
            told, _ = process.communicate(timeout=LIMIT_S)
        assert process.returncode == 0, (folder / "errors").read_text()
        return float(told.split()[-1])


def meeting_point() -> dict[str, str]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    return {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}


def said(folder: Path, start: int) -> Iterator[tuple[int, int, list[int]]]:
    """The output of ranks since a start: step, process and samples, by rank."""
    for path in sorted(folder.glob(f"rank-*-from-{start}")):
        for line in path.read_text().splitlines(keepends=True):
            if line.endswith("\n"):
                step, pid, ids = json.loads(line)
                yield step, pid, ids


def batches(folder: Path, start: int, end: int) -> Batches:
    """The global batches of the steps from `start` to before `end`."""
    found: dict[int, list[list[int]]] = {}
    for step, _, ids in said(folder, start):
        found.setdefault(step, []).append(ids)
    return [list(chain(*found[step])) for step in range(start, end)]


def starts(folder: Path) -> list[int]:
    """The steps from which the training was started."""
    return sorted({int(path.name.rpartition("-")[2]) for path in folder.glob("rank-*")})


def test_a_killed_training_resumes_with_the_same_batches_on_fewer_ranks(
    launcher: Launcher, data: Path, tmp_path: Path
) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    whole_loss = launcher.train(data, whole, 4)
    wanted = batches(whole, 0, max(step for step, _, _ in said(whole, 0)) + 1)

    with launcher.start(data, killed, 4) as process:
        wait_until(lambda: len(list(said(killed, 0))) > len(wanted), "some steps")
        victims = sorted({pid for _, pid, _ in said(killed, 0)})
        os.kill(victims[2], signal.SIGKILL)
        process.communicate(timeout=LIMIT_S)
    assert process.returncode != 0
    loss = launcher.train(data, killed, 2)

    _, start = starts(killed)
    epoch = len(wanted) // 2
    assert start % epoch > 0, "killed between epochs"
    assert batches(killed, 0, start) + batches(killed, start, len(wanted)) == wanted
    for first in (0, epoch):
        ids = list(chain(*wanted[first : first + epoch]))
        assert len(set(ids)) == len(ids) == epoch * 64
    assert loss == pytest.approx(whole_loss, rel=WITHIN)


def test_the_order_of_the_loader_learns_as_well_as_a_full_shuffle(data: Path) -> None:
    done = subprocess.run(
        [sys.executable, *consumer(PROGRAM, "compare", data)[1:]],
        stdout=subprocess.PIPE,
        check=True,
        text=True,
    )

    losses: dict[str, Sequence[float]] = json.loads(done.stdout)
    loaded, shuffled = (statistics.mean(losses[one]) for one in ("loaded", "shuffled"))
    assert len(losses["loaded"]) == 5
    assert loaded <= shuffled * (1 + WITHIN)
    variance = float(np.load(data)[:, -1].var())
    assert shuffled < variance / 2, "nothing was learned"
