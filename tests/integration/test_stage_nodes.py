"""`monarch stage` on several nodes, each of which is an agent without programs."""

import hashlib
import json
import os
import subprocess
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from support.commands import without_doubts
from support.countfs import CountFs
from support.dataset import EXTENT_BYTES, Dataset, make_dataset
from support.processes import wait_until
from support.programs import tried_bytes
from support.sites import LAUNCH_TIMEOUT_S, HostSite

FILES = 60
RETAIN = ("--set", "retain=node")

Make = Callable[..., HostSite]


@pytest.fixture
def data(tmp_path: Path) -> Dataset:
    return make_dataset(tmp_path / "dataset", files=FILES, large=2)


@pytest.fixture
def site(monarch_command: Path, tmp_path: Path) -> Make:
    """A function that makes nodes with one Tier each, of the given capacities."""

    def make(*capacities: str) -> HostSite:
        return HostSite(tmp_path, len(capacities), monarch_command, capacities)

    return make


@pytest.fixture
def view(mount_counted: Callable[..., CountFs], data: Dataset) -> CountFs:
    return mount_counted(data.root)


def digests(paths):
    return Counter(hashlib.sha256(path.read_bytes()).hexdigest() for path in paths)


def staged(site, data, *options):
    """Stage with success; return the summary and the report."""
    place = site.folder / "report.json"
    place.unlink(missing_ok=True)
    done = site.stage(data, "--report", str(place), *options)
    assert [one.status for one in done] == [0] * site.nodes, done
    return done[0].stdout, json.loads(place.read_text())


def test_each_file_is_read_by_one_node_and_stored_on_all(site, data, view):
    nodes = site("64MiB", "64MiB", "64MiB")

    summary, report = staged(nodes, view.root, "--mode", "replicate")

    assert summary.startswith("staged 186 copies of 62 files, ")
    show = [nodes.command, "report", nodes.folder / "report.json"]
    shown = subprocess.check_output(show, text=True)
    # Lines are folded in a pipe.
    assert " ".join(shown.split()) == " ".join(summary.split())
    read = [row["origin_read_bytes"] for row in report["nodes"]]
    assert sum(read) == view.counts().read_bytes
    assert sum(read) == data.size_bytes + tried_bytes(report)
    # Each owner of an Extent of a large file opens it.
    sizes = [path.stat().st_size for path in data.paths]
    extents = sum(max(1, -(-size // EXTENT_BYTES)) for size in sizes)
    opens = view.counts().opens - report["agent"]["tried_reads"]
    assert len(data.digests) <= opens <= extents
    assert all(0 < size < data.size_bytes for size in read)
    for node in range(3):
        assert digests(nodes.retained(node)) == Counter(data.digests.values())
    assert not nodes.leftovers()


def test_a_partition_has_one_copy_and_no_peer_traffic(site, data, view):
    nodes = site("64MiB", "64MiB", "64MiB")

    _, report = staged(nodes, view.root, "--mode", "partition")

    held = [digests(nodes.retained(node)) for node in range(3)]
    assert sum(held, Counter()) == Counter(data.digests.values())
    assert all(held)
    assert report["exchange"]["fetched_bytes"] == 0
    assert view.counts().read_bytes == data.size_bytes
    assert view.counts().listings == 1 + len({path.parent for path in data.paths})


def test_each_node_checks_its_part_of_a_partition(site, data, view):
    nodes = site("64MiB", "64MiB", "64MiB")
    staged(nodes, view.root, "--mode", "partition")
    view.reset()

    right = nodes.stage(view.root, "--check")
    nodes.retained(1)[0].unlink()
    wrong = nodes.stage(view.root, "--check")

    assert [one.status for one in right] == [0, 0, 0], right
    assert all("of this node of 3 nodes" in " ".join(o.stdout.split()) for o in right)
    assert view.counts().read_bytes == 0
    assert [one.status for one in wrong] == [0, 1, 0]
    assert "its copy is missing" in " ".join(wrong[1].stdout.split())


def test_as_many_copies_are_made_as_fit(site, mount_counted, tmp_path):
    small = make_dataset(tmp_path / "small", files=FILES, large=0)
    view = mount_counted(small.root)
    room = f"{small.size_bytes * 3 // 4}B"

    _, report = staged(site(room, room, room), view.root, "--mode", "auto")

    held = report["share"]["ready_files"]
    assert len(small.digests) < held < 3 * len(small.digests)
    assert view.counts().read_bytes == small.size_bytes


def test_retained_files_are_neither_read_nor_sent_again(site, data, view):
    nodes = site("64MiB", "64MiB")
    staged(nodes, view.root, "--mode", "replicate")
    for path in nodes.retained(1)[:10]:
        path.unlink()

    _, report = staged(nodes, view.root, "--mode", "replicate")

    first, second = report["nodes"]
    assert first["adopted_files"] == len(data.digests)
    assert second["adopted_files"] == len(data.digests) - 10
    assert second["staged_files"] + second["fetched_files"] == 10
    for node in range(2):
        assert digests(nodes.retained(node)) == Counter(data.digests.values())


def test_a_damaged_replica_of_an_earlier_staging_is_staged_anew(site, data):
    nodes = site("64MiB")
    staged(nodes, data.root)
    victim = nodes.retained(0)[0]
    os.chmod(victim, 0o600)
    content = bytearray(victim.read_bytes())
    content[0] ^= 1
    victim.write_bytes(content)
    os.chmod(victim, 0o400)

    _, report = staged(nodes, data.root)

    assert report["staging"]["files"] == 1
    assert report["agent"]["adoptions_refused"] == 1
    assert digests(nodes.retained(0)) == Counter(data.digests.values())


def test_files_without_room_stay_at_the_origin(site, data):
    done = site("8MiB", "8MiB").stage(data.root, "--mode", "partition")

    assert [one.status for one in done] == [1, 0]
    assert "stay at the origin: no node has room for them" in done[0].stdout


def test_copies_that_do_not_fit_are_counted(site, data):
    done = site("64MiB", "12MiB").stage(data.root, "--mode", "replicate")

    assert done[0].status == 1
    assert "of the copies that the mode asks for have no room" in done[0].stdout


def test_a_node_without_room_for_anything_is_no_error(site, data):
    _, report = staged(site("64MiB", "4KiB"), data.root, "--mode", "auto")

    assert report["nodes"][1]["share"]["ready_files"] == 0


def test_a_file_that_changed_after_the_scan_is_named(
    site, data, monarch_command, tmp_path
):
    nodes = site("64MiB", "64MiB")
    index = tmp_path / "index"
    make = [monarch_command, "index", data.root, "-o", index]
    assert os.spawnv(os.P_WAIT, make[0], [str(word) for word in make]) == 0
    victim = data.paths[0]
    victim.write_bytes(b"another content")

    done = nodes.stage(data.root, "--mode", "replicate", "--index", str(index))

    assert done[0].status == 1
    assert f"changed after the scan: {victim}" in done[0].stdout
    for node in range(2):
        assert len(nodes.retained(node)) == len(data.digests) - 1
    assert not nodes.leftovers()


def test_a_missing_node_is_named_with_exit_status_1(site, data):
    nodes = site("64MiB", "64MiB")
    nodes.capacities = ["64MiB"]

    done = nodes.stage(data.root, "--set", "peers.join_timeout=1s")

    assert done[0].status == 1
    assert "n1 has not joined; continuing without it" in done[0].stderr
    assert "no report from n1: never joined" in done[0].stdout
    assert digests(nodes.retained(0)) == Counter(data.digests.values())


def test_a_job_after_it_reads_nothing_from_the_origin(
    site, data, view, monarch_command, tmp_path
):
    nodes = site("64MiB")
    staged(nodes, view.root)
    view.reset()
    names = sorted(data.digests)
    words = [monarch_command, "run", "-q", "-c", tmp_path / "job.yaml"]
    words += ["--data", view.root, "--set", "cold_open.mode=wait", "--", "cat"]
    words += [view.root / name for name in names]

    command = [str(word) for word in words]
    code = os.spawnve(os.P_WAIT, command[0], command, nodes.surroundings(0))

    assert code == 0
    assert view.counts().read_bytes == view.counts().opens == 0


def test_a_second_process_on_a_node_is_refused(site, data):
    nodes = site("64MiB", "64MiB")
    nodes.capacities = ["64MiB"]
    [first] = nodes.start(data.root)
    try:
        wait_until(
            lambda: list(nodes.folder.glob("run0/*/requests")), "the first agent"
        )

        [second] = nodes.stage(data.root)
    finally:
        first.kill()
        first.process.wait()

    assert second.status == 2
    assert "run one process on each node" in second.stderr
    assert len(without_doubts(second.stderr)) == 1


def test_nodes_continue_without_a_killed_one(site, data, mount_counted):
    view = mount_counted(data.root, read_us=50_000)
    nodes = site("64MiB", "64MiB", "64MiB")
    running = nodes.start(view.root, "--mode", "replicate")
    try:
        wait_until(
            lambda: list(nodes.folder.glob("tier2/monarch-*/stage-*/*/*")),
            "the first replica of the last node",
        )
        running[2].kill()
        running[2].process.wait()

        first, second = (one.end(LAUNCH_TIMEOUT_S) for one in running[:2])
    finally:
        for one in running:
            one.kill()

    assert (first.status, second.status) == (1, 0)
    assert "no report from n2: " in first.stdout
    for node in range(2):
        assert digests(nodes.retained(node)) == Counter(data.digests.values())


@pytest.mark.root
def test_a_tier_filled_by_others_is_reported_with_exit_status_1(site, data):
    nodes = site("14MiB")
    tier = nodes.tier(0)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16M", "none", tier], check=True)
    try:
        (tier / "of-others").write_bytes(bytes(13 << 20))
        [done] = nodes.stage(data.root, "--set", "tiers[0].headroom=0")
        retained = nodes.retained(0)
    finally:
        subprocess.run(["umount", "-l", tier], check=True)

    assert done.status == 1
    assert ": no tier had room for them" in done.stdout
    assert 0 < len(retained) < len(data.digests)


def test_a_run_directory_that_others_can_enter_is_named(site, data):
    nodes = site("64MiB")
    (nodes.folder / "run0").chmod(0o755)

    [done] = nodes.stage(data.root)

    assert done.status != 0
    assert "run0 is not private" in done.stderr
