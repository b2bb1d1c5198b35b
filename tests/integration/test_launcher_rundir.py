"""The run directory: private, or not used at all."""

import os
import stat
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from support.launcher import Launch

pytest_plugins = ["support.launcher_fixtures"]

UNSTAGED = "; the program runs without staging\n"


def link(path: Path) -> str:
    """Puts a symbolic link in the place of a directory."""
    path.with_name("elsewhere").mkdir(mode=0o700)
    path.symlink_to("elsewhere")
    return f"{path} is a symbolic link, not a directory"


def readable(path: Path) -> str:
    """Makes a directory that others can read."""
    path.mkdir()
    path.chmod(0o750)
    return f"{path} has mode 0750, not 0700"


def sticky(path: Path) -> str:
    """Makes a directory with a bit too many."""
    path.mkdir()
    path.chmod(0o1700)
    return f"{path} has mode 1700, not 0700"


def foreign(path: Path) -> str:
    """Makes a directory of another user."""
    if os.geteuid():
        pytest.skip("needs root")
    path.mkdir(mode=0o700)
    os.chown(path, 12345, 12345)
    return f"{path} belongs to user 12345, not to you"


def file(path: Path) -> str:
    """Makes a file."""
    path.touch(mode=0o700)
    return f"{path}: Not a directory"


def dangling(path: Path) -> str:
    """Makes a link to nothing."""
    path.symlink_to("nowhere")
    return f"{path} is a symbolic link, not a directory"


HOSTILE = [link, readable, sticky, foreign, file, dangling]


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("make", HOSTILE)
def test_root_that_is_not_ours_alone_is_refused(
    launch: Launch, make: Callable[[Path], str], strict: bool
) -> None:
    why = make(launch.run_root)

    done = launch.run(*["--strict"] * strict, "echo", "hello")

    assert done.stderr.decode() == f"monarch: {why}" + (UNSTAGED, "\n")[strict]
    assert done.stdout == (b"hello\n", b"")[strict]
    assert done.returncode == (0, 125)[strict]
    assert not launch.events("start")


@pytest.mark.parametrize("make", HOSTILE)
def test_run_directory_that_is_not_ours_alone_is_refused(
    launch: Launch, make: Callable[[Path], str]
) -> None:
    launch.run_root.mkdir(mode=0o700)
    launch.environ["MONARCH_STAGING_NODE"] = "n"
    why = make(launch.run_root / "j.n")

    done = launch.run("--job", "j", "echo", "hello")

    assert done.stderr.decode() == f"monarch: {why}{UNSTAGED}"
    assert done.stdout == b"hello\n"


@pytest.mark.parametrize("make", [link, readable, foreign])
def test_parent_run_that_is_not_ours_alone_is_not_joined(
    launch: Launch, tmp_path: Path, make: Callable[[Path], str]
) -> None:
    make(tmp_path / "parent")
    launch.environ["MONARCH_STAGING_RUN"] = str(tmp_path / "parent")

    done = launch.run("-q", "printenv", "MONARCH_STAGING_RUN")

    assert done.stdout.decode().startswith(str(launch.run_root))


@pytest.mark.parametrize("umask", [0o000, 0o077, 0o777])
def test_modes_are_private_whatever_the_umask(launch: Launch, umask: int) -> None:
    def set_umask() -> None:
        os.umask(umask)

    launch.run("--job", "j", "-q", "true", preexec_fn=set_umask)
    launch.script([["write", "fail 125 no\n"]])
    launch.run("--job", "j", "-q", "true", preexec_fn=set_umask)

    (run_dir,) = launch.run_root.iterdir()
    for path in (launch.run_root, run_dir):
        assert stat.S_IMODE(path.stat().st_mode) == 0o700
    for path in run_dir.iterdir():
        # Links have no mode of their own.
        assert path.is_symlink() or not stat.S_IMODE(path.lstat().st_mode) & 0o077


@pytest.mark.parametrize("name", ["relative", "/tmp/a b", "/tmp/a:b", "/tmp/$LIB"])
def test_root_that_cannot_be_preloaded_from_is_refused(
    launch: Launch, name: str
) -> None:
    launch.environ["MONARCH_STAGING_RUN_DIR"] = name

    done = launch.run("echo", "hello")

    assert done.stdout == b"hello\n"
    assert done.stderr.decode() == (
        "monarch: MONARCH_STAGING_RUN_DIR must be an absolute path without "
        f"spaces, colons or dollars: {name}{UNSTAGED}"
    )


def test_root_that_cannot_be_made_is_one_warning(launch: Launch) -> None:
    launch.environ["MONARCH_STAGING_RUN_DIR"] = "/proc/monarch"

    done = launch.run("echo", "hello")

    assert done.stdout == b"hello\n"
    assert done.stderr.decode().startswith("monarch: cannot make /proc/monarch: ")


def test_root_of_any_length_is_one_warning(launch: Launch) -> None:
    launch.environ["MONARCH_STAGING_RUN_DIR"] = "/" + "x" * 5000

    done = launch.run("echo", "hello")

    assert done.stdout == b"hello\n"
    assert b"too long" in done.stderr


@pytest.mark.parametrize("name", ["start", "lock"])
def test_lock_that_is_a_link_is_not_followed(
    launch: Launch, tmp_path: Path, name: str
) -> None:
    launch.environ["MONARCH_STAGING_NODE"] = "n"
    (launch.run_root / "j.n").mkdir(parents=True)
    launch.run_root.chmod(0o700)
    (launch.run_root / "j.n").chmod(0o700)
    (launch.run_root / "j.n" / name).symlink_to(tmp_path / "made")

    done = launch.run("--job", "j", "echo", "hello")

    assert done.stdout == b"hello\n"
    if name == "start":
        assert not (tmp_path / "made").exists()


@pytest.mark.parametrize("job", ["", "--job j"])
@pytest.mark.parametrize("inodes", [1, 2])
def test_full_run_root_is_one_warning_and_nothing_stays(
    launch: Launch, tmp_path: Path, inodes: int, job: str
) -> None:
    if os.geteuid():
        pytest.skip("needs root")
    launch.run_root.mkdir(mode=0o700)
    options = f"size=4k,nr_inodes={inodes},mode=700"
    mount = f"mount -t tmpfs -o {options} x {launch.run_root}"
    run = " ".join(map(str, launch.argv(*job.split(), "echo", "hello")))
    (tmp_path / "script").write_text(f"{mount} && {run}; ls {launch.run_root}")

    done = subprocess.run(
        ["unshare", "-m", "sh", str(tmp_path / "script")],
        env=launch.environ,
        capture_output=True,
    )

    assert done.stdout == b"hello\n"
    assert b"No space left on device; the program runs without" in done.stderr
