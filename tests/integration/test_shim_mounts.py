"""Mounts below and above a root: each process reads what the kernel shows it."""

import ctypes
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from support.shim_fixtures import Board

pytestmark = pytest.mark.root

OURS = ("LD_PRELOAD", "MONARCH_STAGING_RUN")
THREE = "a/b/three.bin"


@pytest.fixture
def other(staged: Board) -> Path:
    """A directory with other files under the names of those in a/b."""
    directory = staged.folder / "other"
    directory.mkdir()
    (directory / "three.bin").write_text("other")
    return directory


def shimmed(board: Board, command: str) -> str:
    """Shell text that runs a command under the Shim, in a shell that is not."""
    env = board.environ()
    return " ".join(f"{name}='{env[name]}'" for name in OURS) + f" {command}"


def in_private(board: Board, script: str, *options: str) -> str:
    """What a shell that the Shim does not see prints in its own mount namespace."""
    env = {name: value for name, value in os.environ.items() if name not in OURS}
    done = subprocess.run(
        ["unshare", "-m", *options, "sh", "-ec", script],
        env=env,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def hits(board: Board) -> int:
    """How many opens were served by a Replica."""
    return board.counters()["opens_hit_tier0"]


@contextmanager
def bound(source: Path, target: Path) -> Iterator[None]:
    """A bind mount in the namespace of the tests, made where no Shim sees it."""
    subprocess.run(["mount", "--bind", source, target], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", target], check=True)


def test_process_in_another_namespace_is_served(staged: Board) -> None:
    shown = in_private(staged, shimmed(staged, f"cat {staged.root}/two.bin"))

    assert shown.startswith("two.bin")
    assert hits(staged) == 1


@pytest.mark.parametrize("name", [THREE, "folder/three.bin", "a/link.bin"])
def test_private_mount_below_a_root_is_not_answered_for(
    staged: Board, other: Path, name: str
) -> None:
    path = staged.root / name
    script = (
        f"mount --bind {other} {staged.root}/a/b; "
        + shimmed(staged, f"cat {path}; ")
        + shimmed(staged, f"stat -L -c %s {path}")
    )

    assert in_private(staged, script) == "other5\n"
    assert staged.ask("root") == "0"


def test_file_mounted_over_a_file_is_not_answered_for(
    staged: Board, other: Path
) -> None:
    script = f"mount --bind {other}/three.bin {staged.root}/two.bin; " + shimmed(
        staged, f"cat {staged.root}/two.bin"
    )

    assert in_private(staged, script) == "other"


def test_name_from_a_directory_above_a_mount_is_not_answered_for(
    staged: Board, other: Path
) -> None:
    program = (
        f"import os; d = os.open('{staged.root}/a', os.O_RDONLY); "
        "print(os.read(os.open('b/three.bin', os.O_RDONLY, dir_fd=d), 5))"
    )
    script = f"mount --bind {other} {staged.root}/a/b; " + shimmed(
        staged, f'{sys.executable} -c "{program}"'
    )

    assert in_private(staged, script) == "b'other'\n"


def test_names_beside_a_private_mount_are_served(staged: Board, other: Path) -> None:
    script = f"mount --bind {other} {staged.root}/a/b; " + shimmed(
        staged, f"cat {staged.root}/two.bin"
    )

    assert in_private(staged, script).startswith("two.bin")
    assert hits(staged) == 1


def test_program_that_enters_a_namespace_reads_the_files_of_that_namespace(
    staged: Board, other: Path
) -> None:
    script = f"mount --bind {other} {staged.root}/a/b; echo ready; exec sleep 60"
    with subprocess.Popen(
        ["unshare", "-m", "sh", "-ec", script], stdout=subprocess.PIPE, text=True
    ) as holder:
        try:
            assert holder.stdout is not None
            assert holder.stdout.readline() == "ready\n"
            path = staged.root / THREE

            shown = staged.run("nsenter", "-m", "-t", str(holder.pid), "cat", path)
        finally:
            holder.kill()

    assert shown == "other"


def test_mount_of_the_job_is_seen_by_running_processes_and_so_is_its_end(
    staged: Board, other: Path
) -> None:
    covered, path = staged.root / "a" / "b", staged.root / THREE
    program = f"for _ in input, input, input: print(open('{path}').read(5)); _()"
    with subprocess.Popen(
        [sys.executable, "-uc", program],
        env=staged.environ(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as reader:
        assert reader.stdin is not None
        assert reader.stdout is not None
        seen = [reader.stdout.readline()]
        for change in (
            ("mount", "--bind", str(other), str(covered)),
            ("umount", str(covered)),
        ):
            staged.run(*change)
            print(file=reader.stdin, flush=True)
            seen.append(reader.stdout.readline())
        print(file=reader.stdin, flush=True)

    assert seen == ["a/b/t\n", "other\n", "a/b/t\n"]
    assert staged.ask("root") == "0"


def test_private_mount_over_a_parent_leaves_others_served(staged: Board) -> None:
    staged.run("unshare", "-m", "mount", "-t", "tmpfs", "none", staged.root.parent)

    assert staged.run("cat", staged.root / "two.bin").startswith("two.bin")
    assert hits(staged) == 1
    assert staged.ask("root") == "0"


def test_mount_of_the_scan_that_is_missing_elsewhere_is_not_answered_for(
    board: Board,
) -> None:
    (board.root / "inner").mkdir()
    (board.root / "inner" / "below").write_text("below")
    source = board.folder / "source"
    source.mkdir()
    (source / "below").write_text("mounted")
    path = board.root / "inner" / "below"
    with bound(source, board.root / "inner"):
        board.start()
        board.ask("publish-all")

        shown = in_private(
            board, f"umount {board.root}/inner; " + shimmed(board, f"cat {path}")
        )
        assert board.run("cat", path) == "mounted"

    assert shown == "below"


def test_program_in_another_root_reads_the_files_of_that_root(
    staged: Board, other: Path
) -> None:
    jail = staged.folder / "jail"
    jail.mkdir()
    inside = Path(f"{jail}{staged.root}")
    with (
        bound(Path("/"), jail),
        bound(Path("/proc"), jail / "proc"),
        bound(other, inside / "a" / "b"),
    ):
        shown = staged.run("chroot", jail, "cat", staged.root / THREE)
        beside = staged.run("chroot", jail, "cat", staged.root / "two.bin")

    assert (shown, beside[:7]) == ("other", "two.bin")


def other_mount(board: Board) -> Path:
    """Where else a test mounts the dataset."""
    alias = board.folder / "alias"
    alias.mkdir()
    return alias


def test_mount_below_an_alias_is_not_answered_for(board: Board) -> None:
    alias, other = other_mount(board), board.folder / "other"
    other.mkdir()
    (other / "three.bin").write_text("other")
    with bound(board.root, alias), bound(other, alias / "a" / "b"):
        board.start("-a", str(alias))
        board.ask("publish-all")

        assert board.run("cat", alias / THREE) == "other"
        assert board.run("cat", alias / "two.bin").startswith("two.bin")
        assert board.run("cat", board.root / THREE).startswith(THREE)

    assert hits(board) == 2


def test_mount_below_another_mount_of_the_root_is_not_answered_for(
    staged: Board, other: Path
) -> None:
    alias = other_mount(staged)
    program = (
        "import os, sys; d = os.open(sys.argv[1], os.O_RDONLY)\n"
        "def first(n): return os.read(os.open(n, os.O_RDONLY, dir_fd=d), 3).decode()\n"
        "print(first('a/b/three.bin'), first('two.bin'))"
    )
    read = (sys.executable, "-c", program)
    with bound(staged.root, alias), bound(other, alias / "a" / "b"):
        assert staged.run(*read, alias) == "oth two\n"

    assert staged.run(*read, staged.root) == "a/b two\n"


@pytest.mark.parametrize("hide", ["umount -l /proc", "mount -t tmpfs none /proc"])
def test_process_that_cannot_read_its_mounts_reads_the_origin(
    staged: Board, other: Path, hide: str
) -> None:
    script = f"mount --bind {other} {staged.root}/a/b; {hide}; " + shimmed(
        staged, f"cat {staged.root}/{THREE} {staged.root}/two.bin"
    )

    assert in_private(staged, script).startswith("other\0")
    assert hits(staged) == 0


def test_names_of_mounts_may_hold_blanks(staged: Board, other: Path) -> None:
    covered = staged.root / "..odd"
    (other / "x y").write_text("other")
    script = f"mount --bind {other} '{covered}'; " + shimmed(
        staged, f"cat '{covered}/x y'"
    )

    assert in_private(staged, script) == "other"


@pytest.mark.root
def test_redirected_descriptor_that_is_bound_elsewhere_is_the_origins_file(
    board: Board,
) -> None:
    (board.folder / "place").touch()
    board.start()
    board.ask("publish-all")
    script = (
        f"exec 9<{board.root}/two.bin; cd {board.folder}\n"
        "mount --bind /proc/$$/fd/9 place && printf NEW > place && umount place"
    )

    board.run("unshare", "-m", "sh", "-c", script)

    assert (board.root / "two.bin").read_text() == "NEW"


@pytest.mark.root
@pytest.mark.parametrize(
    ("start", "name"),
    [
        ("fd", "b''"),
        ("-100", "f'/proc/self/fd/{fd}'.encode()"),
        ("os.open('/proc/self/fd', os.O_PATH)", "str(fd).encode()"),
    ],
)
def test_redirected_descriptor_whose_mount_is_copied_is_the_origins_file(
    board: Board, start: str, name: str
) -> None:
    if not hasattr(ctypes.CDLL(None), "open_tree"):
        pytest.skip("libc has no open_tree")
    (board.folder / "place").touch()
    board.start()
    board.ask("publish-all")
    script = (
        "import ctypes, os; libc = ctypes.CDLL(None, use_errno=True)\n"
        f"fd = os.open('{board.root}/two.bin', os.O_RDONLY)\n"
        f"tree = libc.open_tree({start}, {name}, 0x1001)\n"
        "assert tree >= 0, ctypes.get_errno()\n"
        f"place = b'{board.folder}/place'\n"
        "assert libc.move_mount(tree, b'', -100, place, 4) == 0, ctypes.get_errno()\n"
        "open(place, 'w').write('NEW')"
    )

    board.run("unshare", "-m", sys.executable, "-c", script)

    assert (board.root / "two.bin").read_text() == "NEW"
