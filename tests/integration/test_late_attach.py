"""Programs that start before there is a Catalog: they attach to it when it is there,
and what they have changed before is not served."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.obedient import Program
from support.shim_fixtures import Board, python

# All that a program can see of a tree, except access times.
DESCRIBE = """
import hashlib, json, os, stat, sys
seen = {}
for path, directories, names in os.walk(sys.argv[1]):
    for name in [*directories, *names, '.']:
        full = os.path.join(path, name)
        about = os.lstat(full)
        seen[full] = [*about[:7], about.st_mtime_ns, about.st_ctime_ns]
        if stat.S_ISREG(about.st_mode):
            with open(full, 'rb') as file:
                seen[full].append(hashlib.sha1(file.read()).hexdigest())
            seen[full].append(os.stat(full).st_size)
print(json.dumps(seen, sort_keys=True))
"""


def describe(root: Path, environ: dict[str, str] | None = None) -> dict[str, list[int]]:
    """A program's view of a tree, under the Shim with its environment."""
    command = [sys.executable, "-c", DESCRIBE, str(root)]
    done = subprocess.run(command, env=environ, capture_output=True, check=True)
    seen: dict[str, list[int]] = json.loads(done.stdout)
    return seen


@pytest.fixture
def early(board: Board) -> Iterator[Callable[..., Program]]:
    """Starts programs before there is a Catalog."""
    started: list[Program] = []
    (board.root / "latest").symlink_to("two.bin")
    (board.root / "other.bin").write_bytes(b"other")

    def start(*options: str) -> Program:
        if board.agent is None:
            board.start("-e", *options)
        one = Program.run(board.environ())
        assert one.do(f"os.chdir({str(board.root)!r})") == "None"
        started.append(one)
        return one

    yield start
    for one in started:
        if one.process.stdin is not None and not one.process.stdin.closed:
            one.end()


def stage(board: Board) -> None:
    """The Catalog is complete, and every File ready, but no program may know yet."""
    board.ask("scan")
    board.ask("publish-all")


def test_programs_are_served_as_soon_as_the_catalog_is_ready(
    board: Board, early: Callable[..., Program]
) -> None:
    one = early()
    path = board.root / "two.bin"
    assert one.read(path).startswith("(b'two'")
    assert board.counters()["origin_early"] == 1
    stage(board)
    assert one.read(path).startswith("(b'two'")
    assert board.counters()["opens_hit_tier0"] == 0

    board.ask("serve")

    assert one.read(path).startswith("(b'two'")
    counters = board.counters()
    assert counters["opens_hit_tier0"] == 1
    assert counters["stats_answered"] >= 1
    assert counters["origin_early"] == 2


def test_process_started_before_the_catalog_is_active_and_has_one_slot(
    board: Board, early: Callable[..., Program]
) -> None:
    one = early()
    board.ask("scan")
    board.ask("serve")
    one.read(board.root / "two.bin")

    slots = [state for pid, state, _ in board.processes() if pid == one.process.pid]
    assert slots == [3]


def test_child_started_before_the_catalog_attaches_itself(
    board: Board, early: Callable[..., Program]
) -> None:
    one = early()
    stage(board)
    assert one.do("os.fork() and os._exit(0)") == "0"
    board.ask("serve")

    one.read(board.root / "two.bin")

    assert board.counters()["opens_hit_tier0"] == 1


def test_filtered_program_is_not_served_later_either(
    board: Board, early: Callable[..., Program]
) -> None:
    one = early("-f", os.path.basename(os.path.realpath(sys.executable)))
    stage(board)
    board.ask("serve")

    one.read(board.root / "two.bin")

    assert board.counters()["opens_hit_tier0"] == 0


@pytest.mark.root
def test_process_that_changes_its_user_before_is_not_served_later(
    board: Board, early: Callable[..., Program]
) -> None:
    one = early()
    stage(board)
    assert one.do("os.setgroups([12]) or os.setgroups([])") == "None"
    board.ask("serve")

    one.read(board.root / "two.bin")

    assert board.counters()["opens_hit_tier0"] == 0


CHANGES = {
    "written": "open('two.bin', 'w').write('NEW')",
    "written by its link": "open('latest', 'w').write('NEW')",
    "written by another name": "open('a/same.bin', 'r+').write('NEW')",
    "appended": "os.write(os.open('two.bin', os.O_WRONLY | os.O_APPEND), b'NEW')",
    "truncated": "os.truncate('two.bin', 5)",
    "by a shell": "os.system('printf NEW >> two.bin')",
    "removed": "os.unlink('two.bin')",
    "removed and made again": "os.unlink('two.bin'), open('two.bin', 'w').write('NEW')",
    "replaced": "open('new', 'w').write('NEW'), os.rename('new', 'two.bin')",
    "moved": "os.rename('two.bin', 'a/two.bin')",
    "exchanged": (
        "__import__('ctypes').CDLL(None)"
        ".renameat2(-100, b'two.bin', -100, b'other.bin', 2)"
    ),
    "linked": "os.link('two.bin', 'a/third.bin')",
    "mode": "os.chmod('two.bin', 0o600)",
    "times": "os.utime('two.bin', (1, 1))",
    "link led elsewhere": "os.unlink('latest'), os.symlink('other.bin', 'latest')",
    "link replaced": "os.symlink('other.bin', 'x'), os.rename('x', 'latest')",
    "file made": "open('a/b/new.bin', 'w').write('NEW')",
    "directory made": "os.mkdir('a/new')",
    "directory moved": "os.rename('a', 'z')",
    "directory removed": "os.unlink('a/b/.hidden'), os.rmdir('..odd') if 0 else None",
    "mode of a directory": "os.chmod('a/b', 0o700)",
}


@pytest.mark.parametrize("unstable", [(), ("-u",)], ids=["stable", "unstable"])
@pytest.mark.parametrize("change", CHANGES)
def test_files_changed_before_the_catalog_are_not_served(
    board: Board,
    early: Callable[..., Program],
    change: str,
    unstable: tuple[str, ...],
) -> None:
    one = early(*unstable)
    stage(board)  # the scan has seen the earlier contents

    assert "Error" not in one.do(CHANGES[change])
    board.ask("serve")

    assert describe(board.root, board.environ()) == describe(board.root)


@pytest.mark.parametrize("change", CHANGES)
def test_changes_before_the_catalog_are_right_if_the_scan_saw_them(
    board: Board, early: Callable[..., Program], change: str
) -> None:
    one = early()

    assert "Error" not in one.do(CHANGES[change])
    stage(board)
    board.ask("serve")

    assert describe(board.root, board.environ()) == describe(board.root)


def test_file_with_a_new_inode_lets_its_root_pass_through(
    board: Board, early: Callable[..., Program]
) -> None:
    """As on an overlay, which copies files that are written to."""
    one = early("-u")
    stage(board)
    path = board.root / "two.bin"
    path.rename(board.folder / "kept")
    path.write_bytes(b"two.bin" * 4000)

    one.write(path)
    board.ask("serve")

    assert board.ask("root") == "1"
    assert python(board, "print(read('two.bin'))") == "NEW\n"


def test_write_beside_a_root_whose_inodes_change_lets_it_be_served(
    board: Board, early: Callable[..., Program]
) -> None:
    one = early("-u")
    stage(board)

    one.write(board.folder / "log")
    board.ask("serve")

    assert board.ask("root") == "0"


def test_process_that_ended_before_has_left_its_marks(
    board: Board, early: Callable[..., Program]
) -> None:
    one = early()
    stage(board)
    one.write(board.root / "two.bin")
    one.end()

    board.ask("serve")

    assert board.ask("written two.bin") == "1"
    assert python(board, "print(read('two.bin'))") == "NEW\n"


def test_changes_while_the_agent_settles_the_marks_are_marked_at_once(
    board: Board, early: Callable[..., Program]
) -> None:
    """The agent may have read the table: the process sets the mark itself."""
    one = early()
    stage(board)
    assert board.ask("settling") == "1"

    one.write(board.root / "two.bin")

    assert board.ask("written two.bin") == "1"
    assert board.counters()["opens_hit_tier0"] == 0


def test_program_that_begins_while_the_agent_settles_is_served_afterwards_only(
    board: Board, early: Callable[..., Program]
) -> None:
    early()
    stage(board)
    board.ask("settling")
    one = early()
    path = board.root / "two.bin"
    one.read(path)
    before = board.counters()["opens_hit_tier0"]

    board.ask("serve")

    one.read(path)
    assert (before, board.counters()["opens_hit_tier0"]) == (0, 1)


def test_inherited_writable_descriptor_is_marked(board: Board) -> None:
    """The Shim has not seen the open."""
    board.start("-e")
    with (board.root / "two.bin").open("a") as given:
        command = ["sh", "-c", "echo started >&2; read line; printf NEW; read line"]
        with subprocess.Popen(
            command,
            env=board.environ(),
            stdin=subprocess.PIPE,
            stdout=given,
            stderr=subprocess.PIPE,
        ) as child:
            assert child.stderr is not None
            assert child.stderr.readline() == b"started\n"
            stage(board)
            board.ask("serve")
            assert board.ask("written two.bin") == "1"
            child.communicate(b"go\ngo\n")


def test_mapping_made_by_an_unseen_call_is_marked_on_attaching(
    board: Board, early: Callable[..., Program]
) -> None:
    one = early()
    board.ask("scan")
    raw = f"syscall(257, -100, {os.fsencode(board.root / 'two.bin')!r}, os.O_RDWR)"
    assert int(one.do(f"__import__('ctypes').CDLL(None).{raw}")) > 2
    board.ask("serve")
    assert board.ask("written two.bin") == "0"

    one.read(board.root / "other.bin")

    assert board.ask("written two.bin") == "1"


def test_changes_elsewhere_take_no_room(
    board: Board, early: Callable[..., Program]
) -> None:
    """Files on other devices, and one file however often it is written to."""
    one = early()
    places = Path("/dev/shm") / f"monarch-test-{os.getpid()}", board.folder / "log"
    places[0].mkdir()
    try:
        assert places[0].stat().st_dev != board.root.stat().st_dev
        far = f"open({str(places[0])!r} + '/%d' % n, 'a').close()"
        assert one.do(f"[{far} for n in range(9000)][0]") == "None"
        near = f"open({str(places[1])!r}, 'a').close()"
        assert one.do(f"[{near} for n in range(9000)][0]") == "None"
    finally:
        shutil.rmtree(places[0])
    stage(board)
    board.ask("serve")

    assert board.ask("root") == "0"


def test_more_changes_than_the_table_holds_let_the_root_pass_through(
    board: Board, early: Callable[..., Program]
) -> None:
    one = early()
    (board.folder / "many").mkdir()
    made = "[open('../many/%d' % n, 'w').close() for n in range(8300)][0]"
    assert one.do(made) == "None"
    stage(board)
    one.write(board.root / "two.bin")

    board.ask("serve")

    assert board.ask("root") == "1"
    assert python(board, "print(read('two.bin'))") == "NEW\n"


@pytest.mark.root
def test_mount_made_before_the_catalog_is_seen(
    board: Board, early: Callable[..., Program]
) -> None:
    one = early()
    libc = "__import__('ctypes').CDLL(None)"
    assert one.do(f"{libc}.unshare(0x20000)") == "0"
    assert one.do(f"{libc}.mount(None, b'/', None, 0x44000, None)") == "0"
    board.ask("scan")
    before = int(board.ask("mounts") or 0)
    board.ask("serve")

    assert int(board.ask("mounts")) > before
