"""Datasets of links that leave them: staged like files, on one node and on several."""

import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from support.clusters import Cluster
from support.nodes import Plan

FILES = 200
OVERREAD_MAX = 1.02


def file_links(cluster: Cluster, root: Path) -> None:
    """Each file is a link of its own."""
    for name in cluster.sizes:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).symlink_to(cluster.origin.root / name)


def folder_links(cluster: Cluster, root: Path) -> None:
    """Each folder is a link, as in subsets of ImageNet."""
    for place in cluster.origin.root.iterdir():
        (root / place.name).symlink_to(os.path.relpath(place, root))


def chained_links(cluster: Cluster, root: Path) -> None:
    """Links lead to links, by a link to a directory."""
    (root.parent / "current").symlink_to(cluster.origin.root)
    (root.parent / "pool").mkdir()
    for number, name in enumerate(cluster.sizes):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root.parent / "pool" / str(number)).symlink_to(f"../current/{name}")
        up = "/".join([".."] * len(Path(name).parts))
        (root / name).symlink_to(f"{up}/pool/{number}")


LAYOUTS = (file_links, folder_links, chained_links)


def linked(cluster: Cluster, layout: Callable[[Cluster, Path], None]) -> Cluster:
    """The cluster with a dataset of links to its files."""
    root = cluster.folder / "linked"
    root.mkdir()
    layout(cluster, root)
    return replace(cluster, linked=root)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("nodes", [1, 4])
def test_the_origin_is_read_once_through_links(make_cluster, layout, nodes):
    cluster = linked(make_cluster(nodes), layout)

    job = cluster.start(Plan(3), hold=[1])
    job.await_epoch(1)
    first = cluster.origin.counts()
    job.release(1)
    outcome = job.finish().right(opens=3 * nodes * FILES)

    counts = cluster.origin.counts()
    assert cluster.size_bytes <= counts.read_bytes
    assert counts.read_bytes <= OVERREAD_MAX * cluster.size_bytes
    assert (counts.opens, counts.read_bytes) == (first.opens, first.read_bytes)
    assert not any(one.at_origin for one in outcome.opens)
    assert not any("warning" in words for words in outcome.said.values())


def test_two_links_to_one_file_are_one_copy(make_cluster):
    cluster = linked(make_cluster(1), file_links)
    again = cluster.folder / "again"
    again.mkdir()
    file_links(cluster, again)

    outcome = cluster.run(Plan(1), "--data", str(again)).right(opens=FILES)

    assert cluster.origin.counts().read_bytes <= OVERREAD_MAX * cluster.size_bytes
    assert outcome.report["staging"]["files"] == FILES


@pytest.mark.root
@pytest.mark.parametrize("there", ["copies", "nothing"])
def test_a_node_with_other_targets_works_alone_and_reports_it(make_cluster, there):
    cluster = linked(make_cluster(2), chained_links)
    hidden = cluster.origin.root if there == "copies" else cluster.folder / "pool"
    other = cluster.folder / "other"
    if there == "copies":
        shutil.copytree(cluster.origin.source, other)
    else:
        other.mkdir()
    hide = f'mount --bind {other} {hidden}; exec "$@"'
    words = ("unshare", "-m", "--propagation", "private", "sh", "-c", hide, "sh")
    bound = replace(cluster.nodes[1], prefix=words)
    cluster = replace(cluster, nodes=(cluster.nodes[0], bound))

    job = cluster.start(Plan(1))
    for one in job.running.values():
        one.process.wait(60)
    outcome = job.notes()

    opens = [one for one in outcome.opens if one.node == 0]
    wrong = [one for one in outcome.wrong if one.startswith("node 0")]
    assert len(opens) == FILES
    assert not wrong
    assert not any(one.at_origin for one in opens)
    assert "works alone" in outcome.said[1]
    assert str(cluster.folder) in outcome.said[1]
    # A link to a missing file is an error of the program, as without Monarch.
    assert bool(outcome.wrong) == (there == "nothing")
