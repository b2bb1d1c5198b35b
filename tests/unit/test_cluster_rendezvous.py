"""The rendezvous directory: secrets and addresses of jobs as shared files."""

import errno
import os
import stat
import threading

import pytest

from monarch.cluster import (
    given_secret,
    job_secret,
    open_rendezvous,
    read_secret,
    rendezvous_directory,
)
from monarch.cluster.rendezvous_directory import (
    read_addresses,
    remove_address,
    remove_secret,
    write_address,
)
from monarch.errors import MonarchError


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    monkeypatch.setattr(rendezvous_directory, "SECRET_TIMEOUT_S", 0.2)


def test_all_nodes_of_a_job_have_the_secret_that_the_first_has_made(tmp_path):
    found = []
    nodes = [
        threading.Thread(target=lambda: found.append(job_secret(tmp_path, "7.0")))
        for _ in range(8)
    ]
    for node in nodes:
        node.start()
    for node in nodes:
        node.join()

    assert len(found) == 8
    assert len(set(found)) == 1
    assert len(found[0]) == 32
    assert job_secret(tmp_path, "8.0") != found[0]


def test_the_secret_is_its_users_alone_whatever_the_umask(tmp_path):
    before = os.umask(0)
    try:
        job_secret(tmp_path, "7.0")
    finally:
        os.umask(before)

    assert stat.S_IMODE((tmp_path / "7.0.key").stat().st_mode) == 0o600


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660])
def test_a_secret_that_others_may_use_is_refused(tmp_path, mode):
    job_secret(tmp_path, "7.0")
    (tmp_path / "7.0.key").chmod(mode)

    with pytest.raises(MonarchError, match="must be private"):
        job_secret(tmp_path, "7.0")


@pytest.mark.root
def test_a_secret_of_another_user_is_refused(tmp_path):
    job_secret(tmp_path, "7.0")
    os.chown(tmp_path / "7.0.key", 1, 1)

    with pytest.raises(MonarchError, match="belongs to user 1"):
        job_secret(tmp_path, "7.0")


@pytest.mark.parametrize("content", [b"", b"x" * 31, b"x" * 33])
def test_a_secret_of_another_length_is_refused(tmp_path, content):
    path = tmp_path / "7.0.key"
    path.write_bytes(content)
    path.chmod(0o600)

    with pytest.raises(MonarchError, match=r"empty|must contain exactly 32 bytes"):
        job_secret(tmp_path, "7.0")


def test_a_link_or_a_pipe_is_no_secret(tmp_path):
    real = tmp_path / "real"
    real.write_bytes(b"x" * 32)
    real.chmod(0o600)
    (tmp_path / "7.0.key").symlink_to(real)
    os.mkfifo(tmp_path / "8.0.key", 0o600)

    assert read_secret(real) == b"x" * 32
    for job in ("7.0", "8.0"):
        with pytest.raises(MonarchError):
            job_secret(tmp_path, job)


def test_without_a_directory_no_secret_exists(tmp_path):
    with pytest.raises(MonarchError, match="No such file"):
        job_secret(tmp_path / "gone", "7.0")


def test_a_secret_that_is_given_is_refused_by_the_name_of_its_key(tmp_path):
    path = tmp_path / "mine"
    with pytest.raises(MonarchError, match=r"^peers\.secret_file: .*No such file"):
        given_secret(str(path))
    path.write_bytes(b"x" * 32)
    path.chmod(0o600)

    assert given_secret(str(path)) == b"x" * 32


def test_a_removed_secret_is_made_anew(tmp_path):
    first = job_secret(tmp_path, "7.0")
    remove_secret(tmp_path, "7.0")
    remove_secret(tmp_path, "7.0")

    assert job_secret(tmp_path, "7.0") != first


def test_an_address_is_found_until_it_is_withdrawn(tmp_path):
    assert read_addresses(tmp_path, "7.0", 0) == []
    write_address(tmp_path, "7.0", 0, ["10.0.0.1"], 4000)
    write_address(tmp_path, "7.0", 0, ["n2", "10.0.0.2"], 4001)

    found = read_addresses(tmp_path, "7.0", 0)
    assert found == [("n2", 4001), ("10.0.0.2", 4001)]
    assert [path.name for path in tmp_path.iterdir()] == ["7.0.0.address"]

    remove_address(tmp_path, "7.0", 0)
    assert read_addresses(tmp_path, "7.0", 0) == []


@pytest.mark.parametrize(
    "content",
    [
        *(b"", b"x", b"[]", b'{"hosts":["h"]}', b'{"hosts":["h"],"port":0}'),
        *(b'{"hosts":["h"],"port":70000}', b'{"hosts":["h"],"port":"x"}'),
        *(b'{"hosts":7,"port":9}', b"[" * 900),
    ],
)
def test_an_invalid_address_is_ignored(tmp_path, content):
    (tmp_path / "7.0.0.address").write_bytes(content)

    assert read_addresses(tmp_path, "7.0", 0) == []


def test_a_secret_that_cannot_be_written_leaves_no_empty_file(tmp_path, monkeypatch):
    """As in a home directory whose quota is used up."""

    def no_room(fd):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", no_room)
    with pytest.raises(MonarchError, match="No space left on device"):
        job_secret(tmp_path, "7.0")
    assert not list(tmp_path.iterdir())


# -- the directory ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("environ", "path"),
    [
        ({"XDG_STATE_HOME": "{tmp}/state"}, "state/monarch-staging"),
        ({"HOME": "{tmp}"}, ".local/state/monarch-staging"),
        (
            {"HOME": "{tmp}", "XDG_STATE_HOME": "relative"},
            ".local/state/monarch-staging",
        ),
    ],
)
def test_the_directory_is_in_the_home_directory_by_default(tmp_path, environ, path):
    filled = {name: value.format(tmp=tmp_path) for name, value in environ.items()}
    before = os.umask(0)
    try:
        found = open_rendezvous(None, filled)
        again = open_rendezvous(None, filled)
        given = open_rendezvous(str(tmp_path / "given"), filled)
    finally:
        os.umask(before)

    assert found == again == tmp_path / path
    assert given == tmp_path / "given"
    assert stat.S_IMODE(found.stat().st_mode) == 0o700


@pytest.mark.parametrize("mode", [0o770, 0o707, 0o720])
def test_a_directory_that_others_may_change_is_refused(tmp_path, mode):
    place = tmp_path / "place"
    place.mkdir()
    place.chmod(mode)

    with pytest.raises(MonarchError, match=r"peers\.rendezvous: .* is writable"):
        open_rendezvous(str(place), {})

    place.chmod(mode | stat.S_ISVTX)
    assert open_rendezvous(str(place), {}) == place


@pytest.mark.root
def test_a_directory_of_another_user_is_refused(tmp_path):
    os.chown(tmp_path, 1, 1)

    with pytest.raises(MonarchError, match="belongs to user 1"):
        open_rendezvous(str(tmp_path), {})


def test_a_directory_that_cannot_be_made_is_one_line(tmp_path):
    (tmp_path / "file").touch()

    with pytest.raises(MonarchError, match=r"peers\.rendezvous: .*: Not a directory"):
        open_rendezvous(str(tmp_path / "file" / "below"), {})
