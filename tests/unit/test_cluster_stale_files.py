"""Rendezvous files of killed jobs are removed if the jobs are proved to be dead."""

import json
import os
import socket
import time
from contextlib import closing
from pathlib import Path

import pytest

from monarch.cluster import stale_files
from monarch.cluster.rendezvous_directory import (
    machine_id,
    read_addresses,
    write_address,
)
from monarch.cluster.stale_files import remove_stale_files

OLD_S = 7200.0


def leave(directory, job, *ports, hosts=("127.0.0.1",), age_s=OLD_S, where=None):
    """Leave the files that a job's nodes leave; return them in the order of removal."""
    files = []
    for number, port in enumerate(ports):
        file = directory / f"{job}.{number}.address"
        told = {"hosts": hosts, "port": port, "machine": where or machine_id()}
        file.write_text(json.dumps(told))
        files.append(file)
    files.append(directory / f"{job}.key")
    files[-1].write_bytes(bytes(32))
    for file in files:
        file.chmod(0o600)
        os.utime(file, (time.time() - age_s,) * 2)
    return files


def listen():
    server = socket.socket()
    server.bind(("127.0.0.1", 0))
    server.listen()
    return server


@pytest.fixture
def dead_port():
    with closing(listen()) as server:
        return server.getsockname()[1]


def clean(directory: Path, *living: str, default: bool = True):
    return remove_stale_files(
        directory, time.time(), living.__contains__, default=default
    )


def test_leftovers_of_a_dead_job_are_removed_and_named(tmp_path, dead_port):
    left = leave(tmp_path, "j.0", dead_port, dead_port)
    census = tmp_path / "j.0.nodes"
    census.mkdir(mode=0o700)
    (census / "n@1").touch()
    os.utime(census, (0, 0))

    found = clean(tmp_path)

    assert found.removed == [census, *left]
    assert found.kept == []
    assert os.listdir(tmp_path) == []


def test_a_job_of_which_one_node_listens_keeps_all(tmp_path, dead_port):
    with closing(listen()) as server:
        port = server.getsockname()[1]
        left = leave(tmp_path, "j", dead_port, port)
        found = clean(tmp_path)

    assert found.removed == []
    assert found.kept == [
        f"kept the files of job j in {tmp_path}: 127.0.0.1:{port} accepts"
    ]
    assert all(file.exists() for file in left)


def test_a_job_of_which_an_agent_lives_here_keeps_all(tmp_path, dead_port):
    left = leave(tmp_path, "j", dead_port)
    dead = leave(tmp_path, "j2", dead_port)

    assert clean(tmp_path, "j").removed == dead
    assert all(file.exists() for file in left)


def test_an_address_that_does_not_answer_proves_nothing(
    tmp_path, dead_port, monkeypatch
):
    monkeypatch.setattr(stale_files, "CONNECT_S", 0.2)
    with closing(socket.socket()) as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        place = full.getsockname()
        waiting = [socket.socket() for _ in range(3)]
        for one in waiting:
            one.setblocking(False)
            one.connect_ex(place)
        left = leave(tmp_path, "j", dead_port, place[1])
        found = clean(tmp_path)
        for one in waiting:
            one.close()

    assert found.removed == []
    assert found.kept[0].endswith("does not answer")
    assert all(file.exists() for file in left)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "no.such.host.invalid"])
def test_an_address_that_means_another_machine_here_proves_nothing(
    tmp_path, dead_port, host
):
    leave(tmp_path, "j", dead_port, hosts=(host,), where="another machine")

    found = clean(tmp_path)

    assert found.removed == []
    assert found.kept[0].endswith(
        f"{host}:{dead_port} cannot be resolved from this node"
    )


@pytest.mark.parametrize("addresses", [0, 1])
def test_a_job_that_starts_keeps_its_secret(tmp_path, dead_port, addresses):
    left = leave(tmp_path, "j", *[dead_port] * addresses, age_s=30)

    assert clean(tmp_path).removed == []
    assert all(file.exists() for file in left)


def test_a_secret_without_addresses_is_dead_after_an_hour(tmp_path):
    dead = leave(tmp_path, "dead")
    leave(tmp_path, "young", age_s=1800)

    assert clean(tmp_path, default=False).removed == []
    assert clean(tmp_path).removed == dead


def test_files_of_others_stay(tmp_path, dead_port):
    for name in ("long.key", "open.key", "notes.txt", "a.address", "b.x.address"):
        (tmp_path / name).write_bytes(bytes(32))
        (tmp_path / name).chmod(0o600)
        os.utime(tmp_path / name, (0, 0))
    (tmp_path / "long.key").write_bytes(bytes(33))
    os.utime(tmp_path / "long.key", (0, 0))
    (tmp_path / "open.key").chmod(0o644)
    (tmp_path / "link.key").symlink_to("long.key")
    before = sorted(os.listdir(tmp_path))

    assert clean(tmp_path).removed == []
    assert sorted(os.listdir(tmp_path)) == before


def test_an_address_names_its_machine(tmp_path):
    write_address(tmp_path, "j", 0, ["a", "b"], 7)

    assert json.loads((tmp_path / "j.0.address").read_text())["machine"] == machine_id()
    assert read_addresses(tmp_path, "j", 0) == [("a", 7), ("b", 7)]
    assert clean(tmp_path / "absent").removed == []
