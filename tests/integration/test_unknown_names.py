"""Names and inodes unknown to the Catalog: reported, followed, or left alone."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from support.programs import Runner
from support.shim_fixtures import Board, begin, python


@pytest.mark.parametrize("call", ["rename", "chmod", "unlink"])
def test_link_on_the_way_to_a_root_is_watched_by_any_spelling(
    board: Board, call: str
) -> None:
    (board.folder / "above").symlink_to(board.folder)
    board.start("-a", str(board.folder / "above" / board.root.name))
    ways = {
        "rename": "os.rename('above', 'moved')",
        "unlink": "os.unlink(os.path.join('/proc/self/cwd', 'above'))",
        "chmod": "os.chmod('.', 0o700)",
    }

    python(board, f"os.chdir('..'); {ways[call]}")

    assert board.ask("root") == "1"


@pytest.mark.root
def test_parent_of_a_closed_directory_is_resolved_by_the_kernel(
    board: Board,
) -> None:
    (board.root / "a").chmod(0o644)
    (board.root / "a" / "b").chmod(0o700)
    begin(board, "two.bin")

    shown = board.run(
        "sh", "-c", f'exec 3<"{board.root}/a/../two.bin"; readlink /proc/self/fd/3'
    )

    assert shown == f"{board.root}/two.bin\n"


def moved_inode(board: Board) -> None:
    """The effect of a write on an overlay: another inode, same name."""
    copy = board.root.parent / "copy"
    shutil.copy2(board.root / "two.bin", copy)
    copy.rename(board.root / "two.bin")


@pytest.mark.parametrize("way", ["../latest", "/proc/self/cwd/../latest"])
def test_write_to_an_inode_that_changed_is_known_by_its_path(
    board: Board, way: str
) -> None:
    (board.root.parent / "latest").symlink_to(board.root / "two.bin")
    board.start("-u")
    board.ask("publish two.bin")
    moved_inode(board)

    shown = python(board, f"open({way!r}, 'r+').write('NEW'); print(read('two.bin'))")

    assert shown == "NEW\n"
    assert board.ask("root") == "0"


def test_write_that_identity_cannot_resolve_lets_the_root_pass(board: Board) -> None:
    board.start("-u")
    board.ask("publish-all")
    moved_inode(board)
    os.link(board.root / "two.bin", board.root.parent / "other")

    shown = python(board, "open('../other', 'r+').write('NEW'); print(read('two.bin'))")

    assert shown == "NEW\n"
    assert board.ask("root") == "1"


def test_write_outside_of_a_root_with_changing_inodes_marks_nothing(
    board: Board,
) -> None:
    board.start("-u")

    python(board, "open('../fresh', 'w').write('NEW')")

    assert board.counters()["mutations"] == 0


PARENTS = [
    *("{0}/beside/../dataset/two.bin", "beside/../dataset/a/../two.bin"),
    *("../{1}/dataset/two.bin", "{0}/to-beside/../../dataset/two.bin"),
]


@pytest.mark.parametrize("spelling", PARENTS)
def test_path_with_a_parent_step_before_the_root_is_served(
    board: Board, spelling: str
) -> None:
    (board.folder / "beside" / "deep").mkdir(parents=True)
    (board.folder / "to-beside").symlink_to("beside/deep")
    begin(board, "two.bin")
    path = spelling.format(board.folder, board.folder.name)

    python(board, f"os.chdir('..'); assert read({path!r}) == 'two'")

    assert board.counters()["opens_hit_tier0"] == 1


def test_path_with_a_parent_step_to_another_directory_is_not_served(
    board: Board,
) -> None:
    other = board.folder / "deep" / "dataset"
    other.mkdir(parents=True)
    (other / "two.bin").write_text("other")
    begin(board, "two.bin")

    script = "os.mkdir('../deep/x'); print(read('../deep/x/../dataset/two.bin'))"
    shown = python(board, script)

    assert shown == "oth\n"


def test_unknown_name_of_a_dataset_is_reported(board: Board) -> None:
    (board.folder / "alias").symlink_to("dataset")
    begin(board, "two.bin")

    python(board, "assert read('../alias/two.bin') == 'two'")

    assert board.counters()["opens_elsewhere"] == 1


@pytest.mark.parametrize(
    "path", ["../to-new", "/proc/self/cwd/a/new", "to-hidden", "{0}/a/new"]
)
@pytest.mark.parametrize("mode", ["w", "r"])
def test_file_created_by_any_name_shows_in_the_times_of_its_directory(
    board: Board, path: str, mode: str
) -> None:
    (board.folder / "to-new").symlink_to(board.root / "a" / "new")
    (board.root / "to-hidden").symlink_to("../to-new")
    os.utime(board.root / "a", (1, 1))
    board.start()
    name = path.format(board.root)

    call = {"w": f"open({name!r}, 'w')", "r": f"os.open({name!r}, os.O_CREAT)"}[mode]
    shown = python(board, f"{call}; print(os.stat('a').st_mtime > 1)")

    assert shown == "True\n"
    assert board.ask("root") == "0"


CHANGES = {
    "fchmod": "os.fchmod(fd, 0o600)",
    "alias": "os.chmod(f'/proc/self/fd/{fd}', 0o600)",
    "write": "os.write(os.open(f'/proc/self/fd/{fd}', os.O_WRONLY), b'NEW')",
}


@pytest.mark.parametrize("change", CHANGES)
def test_change_by_a_redirected_descriptor_shows_in_every_root_that_has_the_file(
    runner: Runner, tmp_path: Path, change: str
) -> None:
    roots = [tmp_path / "one", tmp_path / "two"]
    for root in roots:
        root.mkdir()
    (roots[0] / "file").write_bytes(b"old")
    os.link(roots[0] / "file", roots[1] / "link")
    script = (
        "import os, sys\n"
        "one, two = sys.argv[1:]\n"
        "def seen(): return os.stat(one).st_mode & 0o777, open(one).read()\n"
        "before = seen(); fd = os.open(two, os.O_RDONLY); assert before[1] == 'old'\n"
        "assert 'link' not in os.readlink(f'/proc/self/fd/{fd}')\n"
        f"{CHANGES[change]}\n"
        "print(seen() != before)"
    )
    files = str(roots[0] / "file"), str(roots[1] / "link")
    words = [sys.executable, "-c", script, *files]

    done = runner.under_monarch(words, roots=roots)

    assert done.succeed().stdout == b"True\n"


OVERLAY = """
mkdir low up work root && printf old > low/file || exit
layers=lowerdir=low,upperdir=up,workdir=work
mount -t overlay none -o $layers root 2>/dev/null || exit 77
set -- -q --data . --tier ram:1MiB --set cold_open.mode=wait
cd root && exec "$0" run "$@" -- sh -c '
    exec 3<file; readlink /proc/self/fd/3; mv file moved; printf NEW > moved
    cat /dev/fd/3 2>&1'
"""


@pytest.mark.root
def test_moved_and_written_file_of_an_overlay_is_never_read_as_it_was(
    monarch_command: Path, run_root: Path, tmp_path: Path
) -> None:
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", OVERLAY, monarch_command],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )

    if done.returncode == 77:
        pytest.skip("no overlay can be mounted here")
    replica, shown = done.stdout.splitlines()
    assert "/monarch-" in replica
    assert "Stale file handle" in shown


@pytest.mark.parametrize("option", ["-u", None])
def test_file_with_several_names_is_the_origins_where_inodes_may_change(
    board: Board, option: str | None
) -> None:
    os.link(board.root / "two.bin", board.root / "link.bin")
    board.start(*([option] if option else []))
    board.ask("publish-all")

    python(board, "read('two.bin'), read('link.bin')")

    assert board.counters()["opens_hit_tier0"] == (0 if option else 2)


@pytest.mark.parametrize("option", ["-u", None])
def test_status_of_a_file_with_several_names_is_the_origins_where_inodes_may_change(
    board: Board, option: str | None
) -> None:
    os.link(board.root / "two.bin", board.root / "link.bin")
    board.start(*([option] if option else []))

    python(board, "os.stat('two.bin'), os.stat('link.bin')")

    assert board.counters()["stats_answered"] == (0 if option else 2)


@pytest.mark.root
@pytest.mark.parametrize(
    ("change", "shown"),
    [
        ("open('../bound/two.bin', 'r+').write('NEW'); print(read('two.bin'))", "NEW"),
        (
            "os.rename('../bound/a', '../bound/before');"
            " print(os.path.exists('a/b/three.bin'))",
            "False",
        ),
    ],
)
def test_change_by_another_mount_of_what_has_another_inode_lets_the_root_pass(
    board: Board, change: str, shown: str
) -> None:
    (board.folder / "bound").mkdir()
    board.start("-u")
    board.ask("publish-all")
    moved_inode(board)
    shutil.copytree(board.root / "a", board.folder / "copy")
    (board.root / "a").rename(board.folder / "before")
    (board.folder / "copy").rename(board.root / "a")
    script = f'cd {board.root}; mount --bind . ../bound; exec python3 -c "$0"'

    body = f"import os\nread = lambda name: open(name).read(3)\n{change}"
    found = board.run("unshare", "-m", "sh", "-c", script, body)

    assert found == f"{shown}\n"
    assert board.ask("root") == "1"


def test_rename_of_a_directory_whose_inode_changed_is_known_by_its_path(
    board: Board,
) -> None:
    (board.folder / "latest").symlink_to(board.root)
    board.start("-u")
    shutil.copytree(board.root / "a", board.folder / "copy")
    (board.root / "a").rename(board.folder / "before")
    (board.folder / "copy").rename(board.root / "a")

    python(board, "os.rename('../latest/a/b', '../gone')")

    assert board.ask("root") == "1"


@pytest.mark.parametrize("option", ["-u", None])
def test_status_of_a_directory_is_the_origins_where_inodes_may_change(
    board: Board, option: str | None
) -> None:
    board.start(*([option] if option else []))

    python(board, "os.stat('a'), os.stat('two.bin')")

    assert board.counters()["stats_answered"] == (1 if option else 2)


SUBVOLUMES = """
truncate -s 120M image && mkfs.btrfs -qf image > mkfs.txt && mkdir top || exit 77
mount -o loop image top || exit 77
cd top && btrfs -q subvolume create old && echo old > old/file
btrfs -q subvolume snapshot old new && echo new > new/file
exec "$0" run -q --data old --tier ram:1MiB --set cold_open.mode=wait -- sh -c '
    cat old/file; btrfs -q subvolume delete old; btrfs -q subvolume snapshot new old
    cat old/file'
"""


@pytest.mark.root
def test_subvolume_that_replaces_a_root_is_never_read_as_the_old_one(
    monarch_command: Path, run_root: Path, tmp_path: Path
) -> None:
    if not shutil.which("mkfs.btrfs"):
        pytest.skip("btrfs-progs is not installed")
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", SUBVOLUMES, monarch_command],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )

    if done.returncode == 77:
        pytest.skip("no btrfs can be mounted here")
    assert done.stdout == "old\nnew\n", done.stderr


def test_change_without_a_free_descriptor_lets_the_root_pass(board: Board) -> None:
    (board.root.parent / "latest").symlink_to(board.root / "two.bin")
    board.start("-u")
    board.ask("publish two.bin")
    moved_inode(board)

    shown = python(
        board,
        "import resource; read('two.bin')\n"
        "limits = resource.getrlimit(resource.RLIMIT_NOFILE)\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (0, limits[1]))\n"
        "os.truncate('../latest', 1)\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, limits); print(read('two.bin'))",
    )

    assert shown == "t\n"
    assert board.ask("root") == "1"
