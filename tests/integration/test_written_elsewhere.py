"""Unusual writers: libc's shells, names of Replicas, flags, handles."""

import subprocess
import sys
from pathlib import Path

import pytest

from support.shim_fixtures import Board, Compile, begin, python


@pytest.mark.parametrize("loss", ["os.environ.clear()", "os.unsetenv('LD_PRELOAD')"])
@pytest.mark.parametrize("way", ["system", "popen", "wordexp"])
def test_shell_that_libc_starts_marks_whatever_the_environment(
    linked: Board, loss: str, way: str
) -> None:
    calls = {
        "system": "c.system(b'printf NEW > two.bin')",
        "popen": "c.pclose(ctypes.c_void_p(c.popen(b'printf NEW > two.bin', b'w')))",
        "wordexp": "c.wordexp(b'$(printf NEW > two.bin)', (ctypes.c_char * 64)(), 0)",
    }

    shown = python(
        linked,
        f"c = ctypes.CDLL(None); c.popen.restype = ctypes.c_void_p; {loss}\n"
        f"before = dict(os.environ); {calls[way]}; assert dict(os.environ) == before\n"
        "print(read('two.bin'))",
    )

    assert shown == "NEW\n"


def test_flags_of_a_redirected_descriptor_are_those_of_the_file(linked: Board) -> None:
    append, get, put = 0x20, 0x80086601, 0x40086602  # ioctl_fs_setflags in linux/fs.h
    script = (
        "import fcntl\nfd = os.open('two.bin', os.O_RDONLY)\n"
        f"flags = int.from_bytes(fcntl.ioctl(fd, {get}, bytes(8)), 'little')\n"
        f"fcntl.ioctl(fd, {put}, (flags ^ {append}).to_bytes(8, 'little'))\n"
        f"print(int.from_bytes(fcntl.ioctl(fd, {get}, bytes(8)), 'little') & {append})"
    )
    plain = subprocess.run(
        [sys.executable, "-c", f"import os; os.chdir({str(linked.root)!r})\n{script}"],
        capture_output=True,
        text=True,
    )
    if plain.returncode:
        pytest.skip("this file system has no flags")
    assert plain.stdout == f"{append}\n"

    assert python(linked, script) == "0\n"
    assert linked.ask("written two.bin") == "1"


@pytest.mark.root
def test_handle_of_a_replica_opens_the_origins_file(linked: Board) -> None:
    replica = Path(linked.ask("where two.bin"))
    python(
        linked,
        "class H(ctypes.Structure):\n"
        "    _fields_ = [('n', ctypes.c_uint), ('t', ctypes.c_int),\n"
        "                ('b', ctypes.c_char * 128)]\n"
        "h, m, c = H(128), ctypes.c_int(), ctypes.CDLL(None, use_errno=True)\n"
        "place = ctypes.byref(h), ctypes.byref(m)\n"
        "fd = os.open('two.bin', os.O_RDONLY)\n"
        "assert c.name_to_handle_at(fd, b'', *place, 0x1000) == 0\n"
        "fd = c.open_by_handle_at(fd, ctypes.byref(h), os.O_RDWR | os.O_TRUNC)\n"
        "assert fd >= 0, ctypes.get_errno()\n"
        "os.write(fd, b'NEW')",
    )

    assert (linked.root / "two.bin").read_bytes() == b"NEW"
    assert replica.stat().st_size > 3


def test_process_with_little_address_space_marks_what_it_writes(board: Board) -> None:
    board.start("-p", "20000")
    linked = board
    shell = "ulimit -v 20000; exec sh -c 'printf NEW > two.bin'"
    linked_size = sum(part.stat().st_size for part in linked.run_dir.iterdir())
    assert linked_size > 20_000_000 / 8, "the segments must be large for this"

    python(linked, f"os.system({shell!r})")

    assert linked.ask("written two.bin") == "1"


@pytest.mark.parametrize("way", ["unlink", "rename", "old name", "exchange", "link"])
def test_name_through_a_retargeted_link_is_marked(
    board: Board, compiled: Compile, way: str
) -> None:
    (board.root / "other").mkdir()
    (board.root / "other" / "three.bin").write_bytes(b"other")
    (board.folder / "way").symlink_to("dataset/a/b")
    (board.folder / "new").write_bytes(b"new")
    library = compiled("lead_elsewhere.c", "-shared", "-fPIC", name="lead.so")
    begin(board, "other/three.bin", "a/b/three.bin")
    both = f"{board.run_dir / 'shim.so'}:{library}"

    # Python calls unlink() and rename(); these use the functions that coreutils calls.
    calls = {
        "unlink": "c.unlinkat(-100, b'../way/three.bin', 0)",
        "rename": "c.renameat2(-100, b'../new', -100, b'../way/three.bin', 0)",
        "old name": "c.renameat2(-100, b'../way/three.bin', -100, b'../gone', 0)",
        "exchange": "c.renameat2(-100, b'../way/three.bin', -100, b'../new', 2)",
        "link": "c.linkat(-100, b'../way/three.bin', -100, b'../linked', 0)",
    }
    script = "c = ctypes.CDLL(None); "
    subprocess.run(
        [sys.executable, "-c", f"import ctypes, os\n{script}{calls[way]}"],
        cwd=board.root,
        env=board.environ(LD_PRELOAD=both),
        check=True,
    )

    assert board.ask("written other/three.bin") == "1"


REUSES = {
    "open": "os.write(os.open(f'/proc/self/fd/{fd}', os.O_WRONLY | os.O_TRUNC), b'x')",
    "truncate": "os.truncate(f'/proc/self/fd/{fd}', 0)",
    "fchmod": "os.fchmod(fd, 0o600)",
}


@pytest.mark.parametrize("way", REUSES)
def test_new_file_with_the_inode_of_an_old_one_is_not_mistaken_for_it(
    linked: Board, way: str
) -> None:
    shown = python(
        linked,
        "fd = os.open('two.bin', os.O_RDONLY); ino = os.stat('two.bin').st_ino\n"
        "for n in range(200):\n"
        "    os.unlink('two.bin')\n"
        "    with open('two.bin', 'w') as f: f.write('fresh')\n"
        "    if os.stat('two.bin').st_ino == ino: break\n"
        "else: print('no'); sys.exit()\n"
        f"try: {REUSES[way]}\n"
        "except OSError as error: print(error.errno)\n"
        "print(read('two.bin'), oct(os.stat('two.bin').st_mode & 0o177))",
    )

    if shown == "no\n":
        pytest.skip("this file system gives no inode again")
    assert shown == "116\nfre 0o44\n"


@pytest.mark.parametrize(
    "environment",
    [
        "{str(n): '' for n in range(5000)}",
        "{'MONARCH_STAGING_RUN': ''}",
        "{'MONARCH_STAGING_DISABLE': '0'}",
    ],
)
def test_child_marks_what_it_writes_whatever_its_environment(
    linked: Board, environment: str
) -> None:
    shown = python(
        linked,
        "words = ['sh', '-c', 'printf NEW > two.bin']\n"
        f"child = os.posix_spawn('/bin/sh', words, {environment})\n"
        "os.waitpid(child, 0)\n"
        "print(read('two.bin'))",
    )

    assert shown == "NEW\n"


@pytest.mark.parametrize("name", ["/proc/self/fd/{0}", "/dev/fd/{0}"])
def test_name_of_a_descriptor_shows_later_writes(linked: Board, name: str) -> None:
    shown = python(
        linked,
        "fd = os.open('two.bin', os.O_RDONLY)\n"
        f"name = {name!r}.format(fd); assert read(name) == 'two'\n"
        "with open('two.bin', 'r+') as f: f.write('NEW')\n"
        "print(read(name), os.pread(fd, 3, 0).decode())",
    )

    assert shown == "NEW two\n"


def test_stream_opened_anew_by_a_link_shows_in_the_times_of_a_directory(
    linked: Board,
) -> None:
    (linked.folder / "to-new").symlink_to(linked.root / "a" / "new")

    shown = python(
        linked,
        "before = os.stat('a').st_mtime_ns\n"
        "c = ctypes.CDLL(None); c.fopen.restype = c.freopen.restype = ctypes.c_void_p\n"
        "f = ctypes.c_void_p(c.fopen(b'other.bin', b'r'))\n"
        "assert c.freopen(b'../to-new', b'w', f)\n"
        "print(os.stat('a').st_mtime_ns > before)",
    )

    assert shown == "True\n"


def test_process_with_one_descriptor_to_spare_marks_what_it_writes(
    linked: Board, compiled: Compile
) -> None:
    program = compiled("write_one.c")

    linked.run("sh", "-c", f"ulimit -n 4; exec {program} {linked.root}/two.bin")

    assert linked.ask("written two.bin") == "1"
