"""A file that is written whole replaces the old one, or leaves it as it was."""

import os
from pathlib import Path

import pytest

from monarch.atomic_file import whole_file


def test_the_new_file_replaces_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")

    with whole_file(path, mode=0o640) as file:
        file.write(b"new")
        assert path.read_bytes() == b"old"

    assert path.read_bytes() == b"new"
    assert path.stat().st_mode & 0o777 == 0o640
    assert os.listdir(tmp_path) == ["file"]


def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")

    with pytest.raises(ZeroDivisionError), whole_file(path, mode=0o600) as file:
        file.write(b"half" * (1 // 0))

    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["file"]


def test_a_link_stays_and_its_target_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("folder/target")

    with whole_file(tmp_path / "link", mode=0o600) as file:
        file.write(b"x")

    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "folder" / "target").read_bytes() == b"x"


def test_a_device_is_written_to_and_stays_a_device(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)

    with whole_file(fifo, mode=0o600) as file:
        file.write(b"line")

    assert os.read(reader, 10) == b"line"
    os.close(reader)
    assert fifo.is_fifo()


@pytest.mark.root
def test_a_link_of_another_user_is_refused(tmp_path: Path) -> None:
    (tmp_path / "target").write_bytes(b"mine")
    (tmp_path / "trap").symlink_to("target")
    os.lchown(tmp_path / "trap", 65534, 65534)

    with (
        pytest.raises(OSError, match="another user"),
        whole_file(tmp_path / "trap", mode=0o600) as file,
    ):
        file.write(b"x")

    assert (tmp_path / "target").read_bytes() == b"mine"
