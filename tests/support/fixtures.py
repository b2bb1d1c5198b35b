"""Fixtures: programs that run under Monarch, and several nodes on one machine."""

import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from support import readers, spaces
from support.clusters import Cluster, Shape, Tools, clustered
from support.programs import Runner
from support.richtree import make_rich_tree
from support.spaces import Between, Space


@pytest.fixture
def make_cluster(
    monarch_command: Path, countfs_program: Path, tmp_path: Path
) -> Iterator[Callable[..., Cluster]]:
    """A function that makes nodes and their dataset; nothing outlives the test."""
    tools = Tools(monarch_command, countfs_program)
    with ExitStack() as undo:

        def make(
            nodes: int = 4, open_us: int = 0, read_us: int = 0, **more: Any
        ) -> Cluster:
            folder = Path(tempfile.mkdtemp(prefix="nodes-", dir=tmp_path))
            slow = {"open_us": open_us, "read_us": read_us}
            cluster = clustered(tools, folder, Shape(nodes, **more), **slow)
            return undo.enter_context(cluster)

        yield make


@pytest.fixture
def switched(tool: Callable[[str], str]) -> Iterator[Callable[..., list[Space]]]:
    """A function that makes network namespaces on a switch; see support.spaces."""
    for name in ("ip", "tc", "nsenter"):
        tool(name)
    with ExitStack() as undo:

        def make(count: int = 4, **more: Any) -> list[Space]:
            return undo.enter_context(spaces.switched(count, **more))

        yield make


@pytest.fixture
def between(tool: Callable[[str], str], tmp_path: Path) -> Iterator[Between]:
    """Two nodes with a program between them; they are to meet in `tmp_path / meet`."""
    for name in ("ip", "nsenter"):
        tool(name)
    folder = tmp_path / "meet"
    folder.mkdir(mode=0o700)
    with spaces.meddled(folder) as found:
        yield found


@pytest.fixture
def runner(monarch_command: Path, run_root: Path, tmp_path: Path) -> Runner:
    """Runs programs plain and under the installed Monarch."""
    return Runner(monarch_command, tmp_path)


@pytest.fixture
def rich_tree(tmp_path: Path) -> Path:
    """A dataset root with a bit of everything that a tree can hold."""
    root = tmp_path / "rich" / "tree"
    root.mkdir(parents=True)
    return make_rich_tree(root)


@pytest.fixture(scope="session")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of the compiled consumers, or a skip that names missing parts."""
    if lack := readers.missing():
        pytest.skip(lack)
    return readers.build_programs(tmp_path_factory.mktemp("programs"))
