"""A name created by a program on one node soon appears on all nodes."""

import json
import time
from collections.abc import Callable
from dataclasses import replace

import pytest

from support.clusters import Cluster
from support.writers import Writer, Writers, seconds_until

SETTLED_S = 2.2
"""After this time without a change a directory may be listed from the Catalog."""
# A directory is checked once a second; the rest allows for a busy machine.
WINDOW_S = 1.0 + 2.0


@pytest.fixture
def nodes(make_cluster: Callable[..., Cluster]) -> Cluster:
    """Two nodes, and a dataset that has not changed for a while."""
    cluster = make_cluster(2, files=6)
    time.sleep(SETTLED_S)
    return replace(cluster, origin=replace(cluster.origin, root=cluster.origin.source))


def start(writers: Writers, cluster: Cluster, number: int, *options: str) -> Writer:
    node = cluster.nodes[number]
    node.run_root.mkdir(mode=0o700, parents=True, exist_ok=True)
    line = cluster.line([*options], cluster.nodes)
    return writers.start(number, [*node.prefix, *line], env=node.environ)


def test_an_index_that_one_node_builds_appears_to_those_that_poll(
    nodes: Cluster,
) -> None:
    """As the first rank builds one beside the data, while the others wait for it."""
    root, writers = nodes.origin.root, Writers()
    index = root / "index.bin"
    report = nodes.folder / "report.json"
    try:
        first, second = (
            start(writers, nodes, number, "--report", str(report)) for number in (0, 1)
        )
        for writer in (first, second):
            assert not writer.do("exists", str(index))
            assert index.name not in writer.do("list", str(root))
        for _ in range(20):
            assert not second.do("exists", str(index))

        first.do("create", str(index))

        assert first.do("exists", str(index))
        assert index.name in first.do("list", str(root))
        seconds_until(
            [
                lambda: second.do("exists", str(index)),
                lambda: index.name in second.do("list", str(root)),
            ],
            WINDOW_S,
        )
        second.do("unlink", str(index))
        assert index.name not in second.do("list", str(root))
        assert index.name not in first.do("list", str(root))
    finally:
        writers.end()
    counters = json.loads(report.read_text())["counters"]
    assert counters["listings_answered"] >= 2
    assert counters["absent_answered"] >= 20
