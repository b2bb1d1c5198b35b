"""Fixtures of the tests under real launchers."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from support import slurm
from support.certified import make_certified
from support.launched import Site
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


@pytest.fixture
def site(monarch_command: Path, run_root: Path, tmp_path: Path) -> Iterator[Site]:
    """The folders of a test, with a dataset; nothing that it has started stays."""
    data = tmp_path / "dataset"
    make_certified(data, FILES, MEAN_BYTES)
    site = Site(monarch_command, tmp_path, run_root, data)
    yield site
    site.kill_everything()


@pytest.fixture
def slurm_site(site: Site, cluster: Slurm) -> Site:
    """The same with commands that find the Slurm."""
    return Site(site.command, site.folder, site.run_root, site.data, cluster.environ)
