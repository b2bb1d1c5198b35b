"""Writable objects are marked by identity, not by name: no stale byte is read."""

import ctypes
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest

from support.shim_fixtures import Board, Compile, begin, python

NOBODY = 65534
SYSTEM_PYTHON = "/usr/bin/python3"


@pytest.fixture
def linked(board: Board) -> Board:
    """two.bin and other.bin, and a link that leads to the first of them."""
    (board.root / "other.bin").write_bytes(b"other")
    (board.root / "latest").symlink_to("two.bin")
    return begin(board, "two.bin", "other.bin")


RETARGETS = {
    "replaced": "os.symlink('other.bin', 'new'); os.rename('new', 'latest')",
    "made again": "os.unlink('latest'); os.symlink('other.bin', 'latest')",
    "exchanged": (
        "os.symlink('other.bin', 'new');"
        "ctypes.CDLL(None).renameat2(-100, b'new', -100, b'latest', 2)"
    ),
    "spelled": (
        "os.symlink('other.bin', 'new');os.rename('new', '/proc/self/cwd/a/../latest')"
    ),
    "hard": "os.unlink('latest'); os.link('other.bin', 'latest')",
}
WRITES = {
    "open": "open('latest', 'w').write('NEW')",
    "update": "open('latest', 'r+').write('NEW')",
    "shell": "os.system('printf NEW > latest')",
    "truncate": "os.truncate('latest', 0)",
    "directory": (
        "d = os.open('a', os.O_RDONLY);"
        "os.write(os.open('../latest', os.O_WRONLY, dir_fd=d), b'NEW')"
    ),
}


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("retarget", RETARGETS)
def test_write_through_a_link_that_was_retargeted_marks_the_new_target(
    linked: Board, retarget: str, write: str
) -> None:
    shown = python(
        linked,
        f"assert read('other.bin') == 'oth'; {RETARGETS[retarget]}; {WRITES[write]}\n"
        "print(read('other.bin'))",
    )

    assert shown.strip() == ("" if write == "truncate" else "NEW")


def test_write_through_a_link_that_replaced_a_file_marks_its_target(
    linked: Board,
) -> None:
    shown = python(
        linked,
        "os.unlink('two.bin'); os.symlink('other.bin', 'two.bin')\n"
        "open('two.bin', 'w').write('NEW'); print(read('other.bin'))",
    )

    assert shown == "NEW\n"


def test_chmod_through_a_retargeted_link_shows_in_the_stat(linked: Board) -> None:
    shown = python(
        linked,
        f"{RETARGETS['replaced']}; os.chmod('latest', 0o600)\n"
        "print(oct(os.stat('other.bin').st_mode))",
    )

    assert shown == "0o100600\n"


@pytest.mark.parametrize("flags", [os.O_WRONLY | os.O_CREAT, os.O_RDWR | os.O_CREAT])
def test_descriptor_inherited_open_for_writing_is_marked(
    board: Board, flags: int
) -> None:
    (board.root / "log").write_bytes(b"")
    begin(board, "log")
    output = os.open(board.root / "log", flags)
    try:
        python(board, "os.write(1, b'hello')", stdout=output)
        assert board.ask("written log") == "1"
        assert python(board, "print(read('log'))") == "hel\n"
    finally:
        os.close(output)


def test_descriptor_inherited_for_reading_marks_nothing(linked: Board) -> None:
    with open(linked.root / "two.bin", "rb") as source:
        python(linked, "pass", stdin=source)

    assert linked.counters()["mutations"] == 0


SPELLINGS = {
    "proc": "'/proc/self/fd/%d' % fd",
    "slashes": "'//proc/self/fd/%d' % fd",
    "dot": "'/./proc/self/fd/%d' % fd",
    "thread": "'/proc/thread-self/fd/%d' % fd",
    "pid": "'/proc/%d/fd/%d' % (os.getpid(), fd)",
    "dev": "'/dev/fd/%d' % fd",
    "cwd": "(os.chdir('/proc/self/fd'), str(fd))[1]",
    "link": "(os.symlink('/dev/fd/%d' % fd, '../to-fd'), '../to-fd')[1]",
}
OPENS = {
    "write": "os.write(os.open(path, os.O_WRONLY), b'NEW')",
    "truncate": "os.write(os.open(path, os.O_WRONLY | os.O_TRUNC), b'NEW')",
    "stream": "open(path, 'r+').write('NEW')",
    "stdio": (
        "ctypes.CDLL(None).fopen.restype = ctypes.c_void_p;"
        "f = ctypes.CDLL(None).fopen; f.restype = ctypes.c_void_p;"
        "s = ctypes.c_void_p(f(path.encode(), b'r+'));"
        "ctypes.CDLL(None).fputs(b'NEW', s); ctypes.CDLL(None).fclose(s)"
    ),
    "truncate(2)": "os.truncate(path, 0)",
}


def check_alias(board: Board, spelling: str, way: str, **options: Any) -> None:
    """Writing by another name of a redirected descriptor reaches the origin alone."""
    path = board.root / "two.bin"
    size = path.stat().st_size
    replica = Path(board.ask("where two.bin"))
    before = replica.read_bytes()

    shown = python(
        board,
        "fd = os.open('two.bin', os.O_RDONLY)\n"
        "assert 'dataset' not in os.readlink('/proc/self/fd/%d' % fd)\n"
        f"path = {SPELLINGS[spelling]}\n{OPENS[way]}\n"
        "os.chdir(D); print(read('two.bin'))",
        **options,
    )

    assert shown.strip() == ("" if way == "truncate(2)" else "NEW")
    sizes = {"truncate": 3, "truncate(2)": 0}
    assert path.stat().st_size == sizes.get(way, size)
    assert replica.read_bytes() == before, "the Replica was changed in place"


@pytest.mark.parametrize("way", OPENS)
@pytest.mark.parametrize("spelling", SPELLINGS)
def test_replica_opened_for_writing_by_any_name_is_the_origins_file(
    linked: Board, spelling: str, way: str
) -> None:
    check_alias(linked, spelling, way)


@pytest.mark.root
@pytest.mark.parametrize("way", ["write", "stream", "stdio"])
@pytest.mark.parametrize("spelling", ["slashes", "cwd", "link"])
def test_write_that_the_mode_of_a_replica_forbids_reaches_the_origin(
    board: Board, spelling: str, way: str
) -> None:
    """The mode 0400 of the Replica refuses users other than root."""
    if not os.access(SYSTEM_PYTHON, os.X_OK):
        pytest.skip(f"other users cannot run Python here: no {SYSTEM_PYTHON}")
    for folder in (board.folder, *board.folder.parents):
        if not folder.stat().st_mode & 0o001:
            folder.chmod(0o711)
    board.folder.chmod(0o777)
    board.run_dir.mkdir(mode=0o700)
    for part in (board.run_dir, board.tier, board.root, *board.root.rglob("*")):
        os.chown(part, NOBODY, -1, follow_symlinks=False)
    for name in ("mkboard", "library"):  # where other users can reach them
        copy = board.folder / name
        shutil.copy(getattr(board, name), copy)
        setattr(board, name, copy)
    become = ["--reuid", str(NOBODY), "--regid", str(NOBODY), "--clear-groups"]
    board.start(under=("setpriv", *become))
    board.ask("publish two.bin")

    rights = {"user": NOBODY, "group": NOBODY, "extra_groups": []}
    check_alias(board, spelling, way, interpreter=SYSTEM_PYTHON, **rights)


def test_freopen_without_a_path_opens_the_origins_file(linked: Board) -> None:
    replica = Path(linked.ask("where two.bin"))
    before = replica.read_bytes()

    shown = python(
        linked,
        "c = ctypes.CDLL(None); c.fopen.restype = c.freopen.restype = ctypes.c_void_p\n"
        "f = ctypes.c_void_p(c.fopen(b'two.bin', b'r'))\n"
        "f = ctypes.c_void_p(c.freopen(None, b'r+', f))\n"
        "assert f.value; c.fputs(b'NEW', f); c.fclose(f); print(read('two.bin'))",
    )

    assert shown == "NEW\n"
    assert replica.read_bytes() == before


LOST = {
    "open": "os.open(path, os.O_WRONLY | os.O_TRUNC)",
    "create": "os.open(path, os.O_WRONLY | os.O_CREAT)",
    "truncate": "os.truncate(path, 0)",
    "chmod": "os.chmod(path, 0o600)",
    "fchmod": "os.fchmod(fd, 0o600)",
    "futimens": "os.utime(fd, (1, 1))",
    "fchown": "os.fchown(fd, 1, 1)",
    "fsetxattr": "os.setxattr(fd, 'user.x', b'1')",
}


@pytest.mark.parametrize("way", LOST)
@pytest.mark.parametrize("loss", ["os.rename('other.bin', n)", "os.unlink(n)"])
def test_change_by_a_descriptor_whose_file_lost_its_name_touches_nothing_else(
    linked: Board, loss: str, way: str
) -> None:
    other = (linked.root / "other.bin").stat()

    shown = python(
        linked,
        "n = 'two.bin'; fd = os.open(n, os.O_RDONLY); path = f'/proc/self/fd/{fd}'\n"
        f"{loss}\n"
        f"try: {LOST[way]}\n"
        "except OSError as error: print(error.errno)\n"
        "print(os.path.exists(n) and read(n))",
    )

    assert shown.split() == ["116", "oth" if "rename" in loss else "False"]
    if "rename" in loss:
        now = (linked.root / "two.bin").stat()
        assert (now.st_mode, now.st_uid, now.st_size) == (
            *(other.st_mode, other.st_uid, other.st_size),
        )


@pytest.mark.parametrize("name", ["two.bin", "latest", "/proc/self/cwd/two.bin"])
def test_file_action_of_posix_spawn_marks_what_it_opens(
    linked: Board, name: str
) -> None:
    shown = python(
        linked,
        "assert read('two.bin') == 'two'\n"
        f"actions = [(os.POSIX_SPAWN_OPEN, 1, {name!r}, os.O_WRONLY | os.O_TRUNC, 0)]\n"
        "p = os.posix_spawn('/bin/echo', ['echo', 'NEW'], {}, file_actions=actions)\n"
        "os.waitpid(p, 0); print(read('two.bin'))",
    )

    assert shown == "NEW\n"


@pytest.mark.parametrize("way", ["path", "descriptor", "late"])
def test_file_action_after_a_change_of_directory_marks_what_it_opens(
    linked: Board, compiled: Compile, way: str
) -> None:
    program = compiled("spawn_actions.c")

    assert linked.run(program, way, linked.root) == "two NEW\n"


def test_file_action_that_is_copied_marks_what_it_opens(
    linked: Board, compiled: Compile
) -> None:
    program = compiled("spawn_actions.c")

    assert linked.run(program, "copied", linked.root) == "two \n"


HANDLE = (
    "class H(ctypes.Structure):\n"
    "    _fields_ = [('n', ctypes.c_uint), ('t', ctypes.c_int),\n"
    "                ('b', ctypes.c_char * 128)]\n"
    "h, m, c = H(128), ctypes.c_int(), ctypes.CDLL(None, use_errno=True)\n"
    "place = ctypes.byref(h), ctypes.byref(m)\n"
)


@pytest.mark.root
def test_descriptor_by_handle_marks_what_it_can_write(linked: Board) -> None:
    python(
        linked,
        HANDLE + "assert c.name_to_handle_at(-100, b'two.bin', *place, 0) == 0\n"
        "fd = c.open_by_handle_at(os.open('.', 0), ctypes.byref(h), os.O_RDWR)\n"
        "assert fd >= 0, ctypes.get_errno()",
    )

    assert linked.ask("written two.bin") == "1"


@pytest.mark.root
def test_handle_of_a_redirected_descriptor_shows_writes(
    linked: Board,
) -> None:
    shown = python(
        linked,
        HANDLE + "fd = os.open('two.bin', os.O_RDONLY)\n"
        "assert c.name_to_handle_at(fd, b'', *place, 0x1000) == 0\n"
        "with open('two.bin', 'r+') as f: f.write('NEW')\n"
        "fd = c.open_by_handle_at(fd, ctypes.byref(h), os.O_RDONLY)\n"
        "assert fd >= 0, ctypes.get_errno()\n"
        "print(os.read(fd, 3).decode())",
    )

    assert shown == "NEW\n"


def test_descriptor_taken_from_another_process_marks_what_it_can_write(
    linked: Board,
) -> None:
    with open(linked.root / "two.bin", "r+b") as file:
        python(
            linked,
            "c = ctypes.CDLL(None, use_errno=True)\n"
            f"p = os.pidfd_open({os.getpid()})\n"
            f"fd = c.pidfd_getfd(p, {file.fileno()}, 0)\n"
            "assert fd >= 0, ctypes.get_errno()",
        )

    assert linked.ask("written two.bin") == "1"


def test_shared_memory_object_that_is_a_file_of_a_dataset_is_marked(
    board: Board,
) -> None:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        held = Board(Path(folder), board.mkboard, board.library)
        held.root.mkdir()
        held.tier.mkdir(mode=0o700)
        (held.root / "two.bin").write_bytes(b"two")
        name = f"monarch-test-{os.getpid()}"
        os.link(held.root / "two.bin", f"/dev/shm/{name}")
        try:
            held.start()
            call = f"ctypes.CDLL(None).shm_open(b'/{name}', os.O_RDWR, 0)"
            python(held, f"assert {call} >= 0")
            assert held.ask("written two.bin") == "1"
        finally:
            os.unlink(f"/dev/shm/{name}")
            held.end()


def test_openat2_for_writing_marks_what_it_opens(linked: Board) -> None:
    if not hasattr(ctypes.CDLL(None), "openat2"):
        pytest.skip("libc has no openat2")
    python(
        linked,
        "how = (ctypes.c_uint64 * 3)(os.O_WRONLY)\n"
        "fd = ctypes.CDLL(None).openat2(-100, b'latest', how, 24); assert fd >= 0",
    )

    assert linked.ask("written two.bin") == "1"
