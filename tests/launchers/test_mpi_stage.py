"""`monarch stage --mpi` on nodes that are ranks of a real MPI."""

import hashlib
import signal
import subprocess
import time
from collections import Counter
from pathlib import Path

import pytest

from support.dataset import make_dataset
from support.mpiexec import Mpi
from support.ranks import RankSite
from support.sites import LAUNCH_TIMEOUT_S

pytest_plugins = ["support.launched_fixtures"]
pytestmark = [pytest.mark.launchers]

NODES = 3
KEEP = ("--set", "retain=node")
# Otherwise a large file opened before its checksum is compared reads the origin.
WAIT = ("--set", "cold_open.mode=wait")


@pytest.fixture
def site(tmp_path: Path, mpi: Mpi) -> RankSite:
    return RankSite(tmp_path, NODES, mpi)


@pytest.fixture
def words(monarch_command: Path, tmp_path: Path):
    """A function that returns a command line with the node's own Tier."""
    config = tmp_path / "job.yaml"
    config.write_text(
        "tiers:\n  - {name: ssd, kind: ssd, path: '${TIER}', capacity: 64MiB}\n"
    )

    def line(verb, data, *options):
        return [monarch_command, verb, "-c", str(config), "--data", data, *options]

    return lambda *given: [str(word) for word in line(*given)]


def digests(paths):
    return Counter(hashlib.sha256(path.read_bytes()).hexdigest() for path in paths)


def test_the_origin_is_read_once_and_later_jobs_not_at_all(
    site, words, mount_counted, tmp_path
):
    dataset = make_dataset(tmp_path / "dataset", files=60, large=2)
    view = mount_counted(dataset.root)

    done = site.run(words("stage", view.root, "--mpi", "--mode", "replicate", *KEEP))

    assert done.status == 0, done.stderr
    assert done.stdout.startswith(f"staged {62 * NODES} copies of 62 files, ")
    assert f" on {NODES} nodes in " in done.stdout
    counts = view.counts()
    assert counts.read_bytes == dataset.size_bytes
    # Several nodes read parts of each of the two large files.
    assert (
        len(dataset.digests) <= counts.opens <= len(dataset.digests) + 2 * (NODES - 1)
    )
    view.reset()
    names = sorted(dataset.digests)
    for node in range(NODES):
        assert digests(site.retained(node)) == Counter(dataset.digests.values())
        program = ["sha256sum", *(view.root / name for name in names)]
        later = subprocess.run(
            words("run", view.root, *KEEP, *WAIT, "--", *program),
            env=site.surroundings(node),
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        found = [line.split()[0] for line in later.stdout.splitlines()]
        assert found == [dataset.digests[name] for name in names]
    assert view.counts().read_bytes == view.counts().opens == 0


def test_a_partition_is_read_once_and_scanned_once(
    site, words, mount_counted, tmp_path
):
    dataset = make_dataset(tmp_path / "dataset", files=60, large=2)
    view = mount_counted(dataset.root)

    done = site.run(words("stage", view.root, "--mpi", "--mode", "partition", *KEEP))

    assert done.status == 0, done.stderr
    held = [digests(site.retained(node)) for node in range(NODES)]
    assert sum(held, Counter()) == Counter(dataset.digests.values())
    assert all(held)
    counts = view.counts()
    assert counts.read_bytes == dataset.size_bytes
    assert counts.listings == 1 + len({path.parent for path in dataset.paths})


def test_a_later_job_of_these_nodes_reads_nothing_from_the_origin(
    site, words, mount_counted, tmp_path, monkeypatch
):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    dataset = make_dataset(tmp_path / "dataset", files=60, large=0)
    view = mount_counted(dataset.root)
    one_copy = ("--set", "peers.mode=partition", *KEEP)
    assert site.run(words("stage", view.root, "--mpi", *one_copy)).status == 0
    view.reset()
    names = sorted(dataset.digests)
    program = ["sha256sum", *(view.root / name for name in names)]
    hosts = ("--job", "later", "--hosts", ",".join(f"n{one}" for one in range(NODES)))

    jobs = [
        subprocess.Popen(
            words("run", view.root, *one_copy, *hosts, "--", *program),
            env=site.surroundings(node),
            stdout=subprocess.PIPE,
            text=True,
        )
        for node in range(NODES)
    ]

    for job in jobs:
        told, _ = job.communicate(timeout=LAUNCH_TIMEOUT_S)
        found = [line.split()[0] for line in told.splitlines()]
        assert found == [dataset.digests[name] for name in names]
    # The other nodes send the files that a node does not hold.
    assert view.counts().read_bytes == view.counts().opens == 0
    assert sum(len(site.retained(node)) for node in range(NODES)) == len(names)


def test_one_rank_of_each_node_stages(mpi, words, dataset, tmp_path):
    site = RankSite(tmp_path, 2, mpi, per_node=2)

    done = site.run(words("stage", dataset.root, "--mpi", *KEEP))

    assert done.status == 0, done.stderr
    assert done.stdout.startswith("staged 82 copies of 41 files, ")
    assert " on 2 nodes in " in done.stdout
    assert [len(site.retained(node)) for node in range(2)] == [41, 41]


def test_one_node_that_cannot_take_part_is_named_once(site, words, dataset):
    site.tier(1).rmdir()

    done = site.run(words("stage", dataset.root, "--mpi", *KEEP))

    assert done.status == 2
    ours = [line for line in done.stderr.splitlines() if "monarch:" in line]
    assert len(ours) == 1
    assert ours[0].startswith("monarch: on n1: ")
    assert "tier1 does not exist" in ours[0]
    assert [site.retained(node) for node in (0, 2)] == [[], []]


def test_a_mode_that_keeps_nodes_apart_is_refused(site, words, dataset):
    off = ("--set", "peers.mode=off")

    done = site.run(words("stage", dataset.root, "--mpi", *off, *KEEP))

    assert done.status == 2
    assert "peers.mode is off, which --mpi on 3 nodes does not support" in done.stderr


def test_unstaged_files_are_reported_with_exit_status_1(site, words, dataset):
    small = ("--set", "tiers[0].capacity=2MiB")

    done = site.run(words("stage", dataset.root, "--mpi", *small, *KEEP))

    assert done.status == 1
    assert "stay at the origin: no node has room for them" in done.stdout


def test_a_signal_to_the_launcher_ends_all_ranks(site, words, mount_counted, tmp_path):
    dataset = make_dataset(tmp_path / "dataset", files=200, large=0)
    view = mount_counted(dataset.root, read_us=100_000)
    command = site.start(words("stage", view.root, "--mpi", *KEEP))
    # Without a terminal the first line of progress appears after some seconds.
    while not view.counts().reads:
        assert command.is_running
        time.sleep(0.01)

    command.process.send_signal(signal.SIGTERM)

    assert command.end(30).status != 0
