"""Names that lead elsewhere than they seem to."""

import os
import subprocess
from pathlib import Path

import pytest

from support.shim_fixtures import Board, begin, python

ALIASES = {
    "slashes": "f'//proc/self/fd/{fd}'",
    "dot": "f'/./proc/self/fd/{fd}'",
    "link": "(os.symlink(f'/proc/self/fd/{fd}', '../to-fd'), '../to-fd')[1]",
    "cwd": "(os.chdir('/proc/self/fd'), str(fd))[1]",
    "tier": "os.readlink(f'/proc/self/fd/{fd}')",
}
READS = {
    "open": "os.read(os.open(path, os.O_RDONLY), 3).decode()",
    "openat": (
        "os.read(os.open(os.path.basename(path), os.O_RDONLY,"
        " dir_fd=os.open(os.path.dirname(path) or '.', os.O_RDONLY)), 3).decode()"
    ),
    "fopen": (
        "(c.fgets(room, 4, ctypes.c_void_p(c.fopen(path.encode(), b'r'))),"
        " room.value.decode())[1]"
    ),
}


@pytest.mark.parametrize("way", READS)
@pytest.mark.parametrize("alias", ALIASES)
def test_any_name_of_a_descriptor_shows_later_writes(
    linked: Board, alias: str, way: str
) -> None:
    shown = python(
        linked,
        "c = ctypes.CDLL(None); c.fopen.restype = ctypes.c_void_p\n"
        "room = ctypes.create_string_buffer(4)\n"
        f"fd = os.open('two.bin', os.O_RDONLY); path = {ALIASES[alias]}\n"
        f"before = {READS[way]}\n"
        "with open(D + '/two.bin', 'r+') as f: f.write('NEW')\n"
        f"print(before, {READS[way]}, os.pread(fd, 3, 0).decode())",
    )

    assert shown == "two NEW two\n"


COPIES = [
    "cp /dev/stdin ../copy < two.bin",
    "exec 3<two.bin; cp /dev/fd/3 ../copy",
    "install /dev/stdin ../copy < two.bin",
    "exec 3<two.bin; test /proc/self/fd/3 -ef two.bin && cp two.bin ../copy",
]


@pytest.mark.parametrize("command", COPIES)
def test_name_of_a_descriptor_has_the_files_identity(
    linked: Board, command: str
) -> None:
    linked.run("sh", "-c", command, cwd=linked.root)

    copy = linked.folder / "copy"
    assert copy.read_bytes() == (linked.root / "two.bin").read_bytes()


def test_name_of_a_descriptor_whose_file_was_renamed_and_written_is_stale(
    linked: Board,
) -> None:
    shown = python(
        linked,
        "fd, kept = (os.open(n, os.O_RDONLY) for n in ('two.bin', 'other.bin'))\n"
        "os.unlink('other.bin'); print(read(f'/dev/fd/{kept}'))\n"
        "os.rename('two.bin', 'moved'); print(read(f'/dev/fd/{fd}'))\n"
        "with open('moved', 'r+') as f: f.write('NEW')\n"
        "try: read(f'/dev/fd/{fd}')\n"
        "except OSError as error: print(error.errno)",
    )

    assert shown == "oth\ntwo\n116\n"


def test_file_is_found_by_any_name_that_it_has_left(board: Board) -> None:
    (board.root / "a" / "first").write_bytes(b"old")
    os.link(board.root / "a" / "first", board.root / "z-last")
    begin(board, "z-last")

    shown = python(
        board,
        "fd = os.open('z-last', os.O_RDONLY); os.unlink('a/first')\n"
        "with open('z-last', 'r+') as f: f.write('NEW')\n"
        "print(read(f'/proc/self/fd/{fd}')); os.fchmod(fd, 0o600)\n"
        "print(oct(os.stat('z-last').st_mode), oct(os.fstat(fd).st_mode))",
    )

    assert shown == "NEW\n0o100600 0o100600\n"


FLAGS = ["O_APPEND", "O_CREAT", "O_DSYNC", "O_DIRECT"]


@pytest.mark.parametrize("flag", FLAGS)
def test_descriptor_reopened_in_an_unusual_way_shows_writes(
    linked: Board, flag: str
) -> None:
    shown = python(
        linked,
        "fd = os.open('two.bin', os.O_RDONLY)\n"
        "with open('two.bin', 'r+') as f: f.write('NEW')\n"
        f"try: new = os.open(f'/proc/self/fd/{{fd}}', os.O_RDONLY | os.{flag})\n"
        "except OSError as error: print(error.errno); sys.exit()\n"
        "import mmap; room = mmap.mmap(-1, 4096)\n"
        "os.preadv(new, [room], 0); print(room[:3].decode())",
    )

    if flag == "O_DIRECT" and shown == "22\n":
        pytest.skip("this file system knows no O_DIRECT")
    assert shown == "NEW\n"


@pytest.mark.parametrize("path", ["None", "f'/proc/self/fd/{fd}'.encode()"])
def test_stream_reopened_for_reading_shows_writes(linked: Board, path: str) -> None:
    shown = python(
        linked,
        "c = ctypes.CDLL(None); c.fopen.restype = c.freopen.restype = ctypes.c_void_p\n"
        "f = ctypes.c_void_p(c.fopen(b'two.bin', b'r')); fd = c.fileno(f)\n"
        "with open('two.bin', 'r+') as w: w.write('NEW')\n"
        f"f = ctypes.c_void_p(c.freopen({path}, b'r', f))\n"
        "room = ctypes.create_string_buffer(4); c.fgets(room, 4, f)\n"
        "print(room.value.decode())",
    )

    assert shown == "NEW\n"


@pytest.mark.parametrize("mode", ["r,+", "rb+", "r+,ccs=UTF-8"])
def test_stream_opened_for_update_reaches_the_origin(linked: Board, mode: str) -> None:
    replica = Path(linked.ask("where two.bin"))
    before = replica.read_bytes()

    python(
        linked,
        "c = ctypes.CDLL(None); c.fopen.restype = ctypes.c_void_p\n"
        f"f = ctypes.c_void_p(c.fopen(b'two.bin', {mode.encode()!r}))\n"
        + ("c.fputws('NEW', f)" if "ccs" in mode else "c.fputs(b'NEW', f)")
        + "; c.fclose(f)",
    )

    assert (linked.root / "two.bin").read_bytes()[:3] == b"NEW"
    assert replica.read_bytes() == before


@pytest.mark.root
@pytest.mark.parametrize("name", ["two.bin", "a"])
@pytest.mark.parametrize("how", ["O_RDONLY", "O_PATH"])
def test_change_by_a_descriptor_that_follows_no_links_is_seen(
    linked: Board, name: str, how: str
) -> None:
    shown = python(
        linked,
        f"before = os.stat({name!r}).st_uid; fd = os.open({name!r}, os.{how})\n"
        "assert ctypes.CDLL(None).fchownat(fd, b'', 1234, -1, 0x1100) == 0\n"
        f"print(before, os.fstat(fd).st_uid, os.stat({name!r}).st_uid)",
    )

    assert shown.split()[1:] == ["1234", "1234"]
    assert (linked.root / name).stat().st_uid == 1234


def test_copy_to_a_new_file_with_the_inode_of_the_old_one_is_whole(
    linked: Board,
) -> None:
    shown = python(
        linked,
        "fd = os.open('two.bin', os.O_RDONLY); old = os.fstat(fd)\n"
        "for n in range(200):\n"
        "    os.unlink('two.bin')\n"
        "    out = os.open('two.bin', os.O_RDWR | os.O_CREAT, 0o600)\n"
        "    if os.fstat(out).st_ino == old.st_ino: break\n"
        "    os.close(out)\n"
        "else: print('no'); sys.exit()\n"
        "print(os.copy_file_range(fd, out, 1 << 20) == old.st_size,\n"
        "      os.fstat(fd).st_mode == old.st_mode)",
    )

    if shown == "no\n":
        pytest.skip("this file system gives no inode again")
    assert shown == "True True\n"


@pytest.mark.root
def test_rename_above_a_root_is_seen_by_a_process_with_another_view(
    board: Board,
) -> None:
    begin(board, "two.bin")

    python(
        board,
        f"os.chroot({str(board.folder.parent)!r}); os.chdir('/')\n"
        f"os.rename({board.folder.name!r}, 'moved'); os.rename('moved', "
        f"{board.folder.name!r})",
    )

    assert board.ask("root") == "1"


LINK_CALLS = {
    "rmtree": "import shutil; shutil.rmtree(D + '/../way', ignore_errors=True)",
    "islink": "assert os.path.islink(D + '/../way')",
    "realpath": "assert os.path.realpath(D + '/../way') == os.path.realpath(D)",
    "copy": "assert os.system('cp -a ../way ../copy && test -L ../copy') == 0",
    "replace": "assert os.system('ln -sfn / ../way') == 0",
}


@pytest.mark.parametrize("call", LINK_CALLS)
def test_link_that_spells_a_root_is_a_link(board: Board, call: str) -> None:
    (board.folder / "way").symlink_to(board.root)
    board.start("-a", str(board.folder / "way"))

    python(board, LINK_CALLS[call])

    assert (board.root / "two.bin").exists()


@pytest.mark.parametrize("name", ["fd", "f'/proc/self/fd/{fd}'"])
def test_change_by_a_descriptor_marks_its_own_file_alone(
    linked: Board, name: str
) -> None:
    python(linked, f"fd = os.open('two.bin', os.O_RDONLY); os.chmod({name}, 0o600)")

    names = sorted(str(p.relative_to(linked.root)) for p in linked.root.rglob("*.bin"))
    assert [n for n in names if linked.ask(f"written {n}") == "1"] == ["two.bin"]


@pytest.mark.root
def test_name_of_a_descriptor_shows_writes_to_a_process_with_other_rights(
    linked: Board,
) -> None:
    shown = python(
        linked,
        "fd = os.open('two.bin', os.O_RDONLY); os.setgid(1)\n"
        "with open('two.bin', 'r+') as f: f.write('NEW')\n"
        "print(read(f'/dev/fd/{fd}'))",
    )

    assert shown == "NEW\n"


@pytest.mark.parametrize("file", ["two.bin", "a/b/three.bin"])
def test_removed_file_is_read_by_its_descriptors_name_beside_a_new_one(
    linked: Board, file: str
) -> None:
    linked.ask(f"publish {file}")

    linked.run(
        *("sh", "-c", '{ rm "$0"; cat /dev/stdin > "$0"; } < "$0"', file),
        cwd=linked.root,
    )

    assert (linked.root / file).read_bytes().startswith(file.encode()[:3])


TRIES = {
    "into": ["mv", "two.bin", "a"],
    "out of": ["mv", "two.bin", ".."],
    "beside": ["mv", "../loose", "a"],
    "unlink": ["unlink", "a"],
    "over": ["mv", "-T", "a", "two.bin"],
    "not over": ["mv", "-n", "two.bin", "other.bin"],
}


@pytest.mark.parametrize("way", TRIES)
def test_failed_change_of_a_directory_name_leaves_the_root_served(
    linked: Board, way: str
) -> None:
    (linked.folder / "loose").write_bytes(b"loose")

    subprocess.run(
        TRIES[way], cwd=linked.root, env=linked.environ(), capture_output=True
    )

    assert linked.ask("root") == "0"
    assert linked.ask("written other.bin") == "0"


def test_name_of_a_descriptor_has_the_size_that_it_opens(linked: Board) -> None:
    shown = linked.run(
        "bash",
        "-c",
        "exec 3<two.bin; : > two.bin; test -s /dev/fd/3; echo $?;"
        "printf NEW > two.bin; stat -Lc %s /dev/fd/3; cat /dev/fd/3",
        cwd=linked.root,
    )

    assert shown == "1\n3\nNEW"


def test_removed_file_is_another_one_than_a_new_file_beside_it(linked: Board) -> None:
    shown = python(
        linked,
        "fd = os.open('two.bin', os.O_RDONLY); ino = os.stat('two.bin').st_ino\n"
        "os.unlink('two.bin')\n"
        "for n in range(200):\n"
        "    new = os.open(f'new{n}', os.O_WRONLY | os.O_CREAT)\n"
        "    if os.fstat(new).st_ino == ino: break\n"
        "else: print('no'); sys.exit()\n"
        "print(os.path.sameopenfile(fd, new), os.fstat(fd).st_nlink)",
    )

    if shown == "no\n":
        pytest.skip("this file system gives no inode again")
    assert shown == "False 0\n"


GOES = {
    "unlink": "os.unlink('two.bin')",
    "rename": "os.rename('other.bin', 'two.bin')",
    "moved": "os.rename('two.bin', 'moved'); os.unlink('moved')",
}
COMES = {
    "mknod": "os.mknod(new, 0o100600)",
    "mkfifo": "os.mkfifo(new)",
    "symlink": "os.symlink('x', new)",
    "mkdir": "os.mkdir(new)",
    "raw": "ctypes.CDLL('libc.so.6').mkstemp(ctypes.create_string_buffer(b'n-XXXXXX'))",
}


@pytest.mark.parametrize("goes", GOES)
@pytest.mark.parametrize("comes", COMES)
def test_removed_file_shares_its_inode_with_nothing_that_no_open_created(
    linked: Board, goes: str, comes: str
) -> None:
    shown = python(
        linked,
        "fd = os.open('two.bin', os.O_RDONLY)\n"
        f"{GOES[goes]}; before = set(os.listdir('.'))\n"
        "for n in range(20):\n"
        f"    new = f'new{{n}}'; {COMES[comes]}\n"
        "made = [os.lstat(n) for n in set(os.listdir('.')) - before]\n"
        "print(any(os.path.samestat(os.fstat(fd), one) for one in made),\n"
        "      os.fstat(fd).st_nlink, os.pread(fd, 3, 0).decode())",
    )

    assert shown == "False 0 two\n"  # also where no new file got the number


STAYS = {
    "linked": "os.link('two.bin', 'more'); os.unlink('two.bin')",
    "itself": "os.rename('two.bin', 'two.bin')",
    "exchanged": "ctypes.CDLL(None).renameat2(-100, b'two.bin', -100, b'other.bin', 2)",
    "moved": "os.rename('two.bin', 'more')",
    "failed": "os.path.exists('a') and os.system('unlink a 2>/dev/null')",
}


@pytest.mark.parametrize("stays", STAYS)
def test_file_that_has_a_name_keeps_its_inode_number(linked: Board, stays: str) -> None:
    shown = python(
        linked,
        "fd = os.open('two.bin', os.O_RDONLY); old = os.fstat(fd)\n"
        f"{STAYS[stays]}\n"
        "print(os.path.samestat(os.fstat(fd), old))",
    )

    assert shown == "True\n"


def test_file_that_loses_two_names_at_one_moment_shares_its_inode_with_no_new_one(
    board: Board,
) -> None:
    for n in range(60):
        (board.root / f"a{n}").write_text("old")
        os.link(board.root / f"a{n}", board.root / f"b{n}")
    begin(board, *(f"a{n}" for n in range(60)))

    shown = python(
        board,
        "import mmap; shared = mmap.mmap(-1, 1); again = same = 0\n"
        "for n in range(60):\n"
        "    fd = os.open(f'a{n}', os.O_RDONLY); ino = os.fstat(fd).st_ino\n"
        "    shared[0] = 0; child = os.fork()\n"
        "    if child == 0:\n"
        "        shared[0] = 1\n"
        "        os.unlink(f'b{n}'); os._exit(0)\n"
        "    while not shared[0]: pass\n"
        "    os.unlink(f'a{n}'); os.waitpid(child, 0)\n"
        "    os.mknod(f'new{n}'); again += os.lstat(f'new{n}').st_ino == ino\n"
        "    same += os.path.samestat(os.fstat(fd), os.lstat(f'new{n}'))\n"
        "print(again > 0, same)",
    )

    if shown.startswith("False"):
        pytest.skip("this file system gives no inode again")
    assert shown == "True 0\n"


LONG_NAMES = {
    "mkdir": "os.mkdir(long('new'))",
    "rmdir": "os.rmdir(long('b'))",
    "link": "os.link('two.bin', long('new'))",
    "rename": "os.rename('two.bin', long('new'))",
    "mknod": "os.mknod(long('new'))",
    "symlink": "os.symlink('x', long('new'))",
}


@pytest.mark.parametrize("call", LONG_NAMES)
def test_change_by_a_very_long_spelling_shows_in_its_directory(
    board: Board, call: str
) -> None:
    (board.root / "a" / "b").rename(board.root / "c")
    (board.root / "a" / "b").mkdir()
    os.utime(board.root / "a", (1, 1))
    begin(board, "two.bin")

    shown = python(
        board,
        "long = lambda name: 'a' + '/.' * 600 + '/' + name\n"
        f"before = os.stat('a').st_mtime; {LONG_NAMES[call]}\n"
        "print(before, os.stat('a').st_mtime > 1)",
    )

    assert shown == "1.0 True\n"


def test_link_with_two_names_shows_the_removal_of_the_other(board: Board) -> None:
    os.symlink("two.bin", board.root / "a" / "way")
    os.link(board.root / "a" / "way", board.root / "way", follow_symlinks=False)
    begin(board, "two.bin")

    shown = python(
        board,
        "before = os.lstat('way').st_nlink; os.unlink('a/way')\n"
        "print(before, os.lstat('way').st_nlink)",
    )

    assert shown == "2 1\n"


def test_write_that_was_refused_does_not_keep_the_file_from_being_read(
    board: Board,
) -> None:
    board.start()
    board.ask("publish-all")

    shown = python(
        board,
        "fd = os.open('two.bin', os.O_RDONLY); os.rename('two.bin', '../elsewhere')\n"
        "try: open(f'/dev/fd/{fd}', 'a')\n"
        "except OSError as error: print(error.strerror)\n"
        "print(open(f'/dev/fd/{fd}').read(3))",
    )

    assert shown == "Stale file handle\ntwo\n"
