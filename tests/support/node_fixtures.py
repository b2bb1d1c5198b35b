"""Fixtures of the tests that run several nodes on this machine."""

import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from support import spaces
from support.certified import make_certified
from support.countfs import CountFs
from support.nodes import Cluster, Node
from support.spaces import Space

NAMES = "abcdefgh"
MakeCluster = Callable[..., Cluster]


@pytest.fixture
def make_cluster(
    monarch_command: Path, mount_counted: Callable[..., CountFs], tmp_path: Path
) -> Iterator[MakeCluster]:
    """A function that makes nodes and their dataset; nothing outlives the test."""
    with ExitStack() as undo:

        def make(
            nodes: int = 4,
            *,
            files: int = 200,
            mean_bytes: int = 20_000,
            links: list[Space] | None = None,
            **settings: int,
        ) -> Cluster:
            folder = Path(tempfile.mkdtemp(prefix="cluster-", dir=tmp_path))
            source = folder / "source"
            make_certified(source, files, mean_bytes)
            places = sorted(p for p in source.rglob("*") if p.is_file())
            sizes = {str(p.relative_to(source)): p.stat().st_size for p in places}
            ram = Path(tempfile.mkdtemp(prefix="monarch-test-", dir="/dev/shm"))
            undo.callback(shutil.rmtree, ram, ignore_errors=True)
            (folder / "meet").mkdir(mode=0o700)
            cluster = Cluster(
                monarch_command,
                folder,
                mount_counted(source, **settings),
                sizes,
                tuple(make_node(folder, number, links) for number in range(nodes)),
                ram,
                folder / "meet",
            )
            undo.callback(cluster.kill_everything)
            return cluster

        yield make


def make_node(folder: Path, number: int, links: list[Space] | None) -> Node:
    """One node, in a network namespace of its own if there are links."""
    place = folder / f"node{number}"
    if links is None:
        return Node(number, NAMES[number], place)
    return Node(number, NAMES[number], place, links[number].prefix, "eth0")


@pytest.fixture
def switched(tool: Callable[[str], str]) -> Iterator[Callable[..., list[Space]]]:
    """A function that makes network namespaces on a switch; see support.spaces."""
    for name in ("ip", "tc", "nsenter"):
        tool(name)
    with ExitStack() as undo:

        def make(count: int = 4, **more: Any) -> list[Space]:
            return undo.enter_context(spaces.switched(count, **more))

        yield make
