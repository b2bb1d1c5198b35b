"""How the nodes of a job find each other at start, all on this machine."""

import json
import os
import random
import signal
import socket
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from support.processes import wait_for_end, wait_until
from support.programs import tried_bytes

FILES = 40
FILE_BYTES = 30_000
READ = 'cat "$1"/* >/dev/null'


@dataclass
class Site:
    """A dataset, and nodes that have no directory in common but what a test names."""

    command: Path
    folder: Path
    run_root: Path
    running: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def dataset(self) -> Path:
        """The root of the dataset."""
        return self.folder / "set"

    def start(
        self, node: str, options: list[str], program: str = READ
    ) -> subprocess.Popen[bytes]:
        """Start `monarch run` on a node, with the same options as on the others."""
        environ = {
            **os.environ,
            "HOME": str(self.folder / f"home-{node}"),
            "MONARCH_STAGING_NODE": node,
            "MONARCH_STAGING_RUN_DIR": str(self.run_root / node),
        }
        environ.pop("XDG_STATE_HOME", None)
        line = [str(self.command), "run", "--data", str(self.dataset)]
        line += ["--tier", "ram:16MiB", "--report", str(self.folder / "report.json")]
        words = [*line, *options, "--", "sh", "-c", program, "sh", str(self.dataset)]
        process = subprocess.Popen(
            words, env=environ, stderr=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self.running.append(process)
        return process

    def met(self, *nodes: str) -> None:
        """All nodes were one job, in which the origin was read once."""
        for process in self.running:
            _, said = process.communicate(timeout=60)
            assert process.returncode == 0, said
        report = json.loads((self.folder / "report.json").read_text())
        assert [node["name"] for node in report["nodes"]] == [*nodes]
        read_bytes = report["origin"]["agent_read_bytes"] - tried_bytes(report)
        assert read_bytes == FILES * FILE_BYTES


@pytest.fixture
def site(monarch_command: Path, tmp_path: Path, run_root: Path) -> Iterator[Site]:
    """A site whose nodes have nothing in common yet."""
    site = Site(monarch_command, tmp_path, run_root)
    site.dataset.mkdir()
    for number in range(FILES):
        (site.dataset / f"{number}.bin").write_bytes(random.randbytes(FILE_BYTES))
    yield site
    for process in site.running:
        process.kill()
        process.communicate()


def free_ports(count: int) -> list[int]:
    """Unused ports."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [taken.getsockname()[1] for taken in sockets]
    for taken in sockets:
        taken.close()
    return ports


def test_ports_and_a_given_secret_need_no_directory_that_nodes_share(
    site: Site,
) -> None:
    nodes = ("127.0.0.1", "127.0.0.2")
    ports = free_ports(2)
    hosts = ",".join(f"{node}:{port}" for node, port in zip(nodes, ports, strict=True))
    secret = site.folder / "key"
    secret.write_bytes(os.urandom(32))
    secret.chmod(0o600)

    for node in nodes:
        site.start(node, ["--hosts", hosts, "--secret-file", str(secret)])

    site.met(*nodes)
    assert not [*site.folder.glob("home-*/.local/state/monarch-staging/*.*")]


def test_hosts_in_the_file_alone_are_one_job(site: Site) -> None:
    file = site.folder / "job.yaml"
    shared = site.folder / "shared"
    file.write_text(f"hosts: ['n[0-2]']\npeers: {{rendezvous: {shared}}}\n")

    for node in ("n2", "n0", "n1"):
        site.start(node, ["-c", str(file)])

    site.met("n0", "n1", "n2")
    assert os.listdir(shared) == []


def test_interrupted_wait_ends_its_agent_and_the_other_nodes_continue(
    site: Site,
) -> None:
    gate, shared = site.folder / "gate", site.folder / "shared"
    options = ["--hosts", "n0,n1", "--set", f"peers.rendezvous={shared}"]
    slow = f'until [ -e {gate} ]; do sleep 0.05; done; cat "$1"/* | wc -c'
    ended = site.start("n0", options, f"{READ}; echo $$")
    going = site.start("n1", options, slow)
    assert ended.stdout
    wait_for_end(int(ended.stdout.readline()))

    ended.send_signal(signal.SIGINT)
    ended.communicate(timeout=10)

    assert ended.returncode == 0
    wait_until(lambda: not [*(site.run_root / "n0").glob("*/lock")])
    assert going.poll() is None
    gate.touch()
    printed, said = going.communicate(timeout=60)
    assert (going.returncode, int(printed)) == (0, FILES * FILE_BYTES), said
