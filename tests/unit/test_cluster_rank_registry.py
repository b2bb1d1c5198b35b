"""Nodes without a node list find each other by counting MPI's ranks."""

import os
import stat
import time

import pytest

from monarch.cluster import NodeList, RankRegistry, UnnamedNodes
from monarch.errors import MonarchError

FOUR = UnnamedNodes("nobody says", expected=True, size=4, local=1)


def registry(directory, node, ranks=1, size=4):
    launch = UnnamedNodes("nobody says", expected=True, size=size, local=ranks)
    return RankRegistry(directory, "mpi-41-h", node, launch)


def test_all_nodes_know_each_other_when_all_ranks_have_started(tmp_path):
    nodes = [registry(tmp_path, name) for name in ("n10", "n2", "n1", "big")]

    early = [node.poll() for node in nodes]
    late = [node.poll() for node in nodes]

    names = ("big", "n1", "n2", "n10")
    assert early[:3] == [None, None, None]
    assert late == [NodeList(names, n, "the ranks of MPI", {}) for n in (3, 2, 1, 0)]
    assert early[3] == late[3]


def test_nodes_may_have_several_ranks_each(tmp_path):
    many, few = registry(tmp_path, "a", 3), registry(tmp_path, "b", 1)

    assert many.poll() is None
    assert repr(many).endswith("mpi-41-h.nodes: 3/4 ranks>")
    assert "accounts for 3 of 4 ranks" in many.reason
    assert few.poll() == NodeList(("a", "b"), 1, "the ranks of MPI", {})


def test_jobs_do_not_count_each_others_ranks(tmp_path):
    other = RankRegistry(tmp_path, "mpi-42-h", "x", FOUR)
    other.poll()
    ours = registry(tmp_path, "a", 3)

    assert ours.poll() is None
    assert ours.counted == 3


def test_a_node_that_died_long_ago_is_not_counted(tmp_path):
    dead, living = registry(tmp_path, "dead"), registry(tmp_path, "a", 3)
    dead.poll()
    (path,) = (tmp_path / "mpi-41-h.nodes").iterdir()
    before = time.time() - 3600
    os.utime(path, (before, before))

    assert living.poll() is None
    assert living.counted == 3
    assert dead.poll() is not None
    assert living.poll() is not None


def test_invalid_entries_are_not_counted(tmp_path):
    node = registry(tmp_path, "a", 3)
    node.poll()
    for name in ("b", "b@", "b@0", "b@-1", "b@1.new", "@1", "b c@1", "b@9999999999"):
        (tmp_path / "mpi-41-h.nodes" / name).touch()

    assert node.poll() is None
    assert node.counted == 3


def test_the_last_node_removes_the_registry(tmp_path):
    nodes = [registry(tmp_path, "a", 3), registry(tmp_path, "b")]
    for node in nodes:
        node.poll()

    nodes[0].close()
    left = os.listdir(tmp_path / "mpi-41-h.nodes")
    nodes[1].close()
    nodes[1].close()

    assert left == ["b@1"]
    assert os.listdir(tmp_path) == []


def test_the_nodes_of_a_job_are_its_users_alone(tmp_path):
    before = os.umask(0)
    try:
        registry(tmp_path, "a").poll()
    finally:
        os.umask(before)
    place = tmp_path / "mpi-41-h.nodes"

    assert stat.S_IMODE(place.stat().st_mode) == 0o700
    assert stat.S_IMODE((place / "a@1").stat().st_mode) == 0o600
    place.chmod(0o770)
    with pytest.raises(MonarchError, match="must be private"):
        registry(tmp_path, "a").poll()


def test_a_directory_that_cannot_be_used_is_one_line(tmp_path):
    with pytest.raises(MonarchError, match="No such file or directory"):
        registry(tmp_path / "gone", "a").poll()
