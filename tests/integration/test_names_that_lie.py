"""Names that lead elsewhere than they seem to, and children that seem to be outside."""

from pathlib import Path

import pytest

from support.board_python import begin, python
from support.shim_fixtures import Board, Compile


@pytest.fixture
def linked(board: Board) -> Board:
    """two.bin and other.bin, staged."""
    (board.root / "other.bin").write_bytes(b"other")
    return begin(board, "two.bin", "other.bin")


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
def test_any_name_of_a_descriptor_shows_what_was_written_since(
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
def test_rename_above_a_root_is_seen_by_who_has_changed_its_view(board: Board) -> None:
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


def test_environment_beside_a_shell_that_libc_starts_is_the_programs(
    linked: Board, compiled: Compile
) -> None:
    program = compiled("getenv_beside.c")

    assert linked.run(program) == "new gone\n"


CHILDREN = {
    "many variables": "{f'V{i}': '1' for i in range(9000)}",
    "long list": "{'LD_PRELOAD': ':' * 2100}",
    "another run": "{'MONARCH_STAGING_RUN': '/nonexistent'}",
}


@pytest.mark.parametrize("environment", CHILDREN)
@pytest.mark.parametrize("way", ["spawn", "exec", "vfork"])
def test_child_is_seen_however_its_environment_is_bent(
    linked: Board, environment: str, way: str
) -> None:
    words = "['/bin/sh', '-c', 'printf NEW > two.bin']"
    ways = {
        "spawn": f"os.waitpid(os.posix_spawn('/bin/sh', {words}, e), 0)",
        "exec": f"os.waitpid(os.fork() or os.execve('/bin/sh', {words}, e), 0)",
        "vfork": f"import subprocess; subprocess.run({words}, env=e)",
    }

    shown = python(
        linked,
        f"e = {CHILDREN[environment]}\n{ways[way]}\nprint(read('two.bin'))",
        stderr=None,
    )

    assert shown == "NEW\n"


def test_child_that_has_room_for_no_more_variables_is_not_served_beside(
    linked: Board,
) -> None:
    """The kernel gives arguments and environment a quarter of the stack's limit."""
    shown = python(
        linked,
        "import resource\n"
        "resource.setrlimit(resource.RLIMIT_STACK, (1 << 19, 1 << 19))\n"
        "def run(n, script):\n"
        "    child = os.fork()\n"
        "    if child == 0:\n"
        "        words = ['/bin/sh', '-c', script, 'x' * 60000, 'y' * n]\n"
        "        try: os.execve('/bin/sh', words, {'LD_PRELOAD': LIST})\n"
        "        except OSError: os._exit(99)\n"
        "    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])\n"
        "LIST = os.environ['LD_PRELOAD']\n"
        "low, high = 1, 131000\n"
        "while low < high:\n"
        "    half = (low + high + 1) // 2\n"
        "    low, high = (low, half - 1) if run(half, '') == 99 else (half, high)\n"
        "LIST = ''\n"
        "print(run(low - 4, 'printf NEW > two.bin'), read('two.bin'))",
    )

    assert shown == "0 NEW\n"


def test_file_that_an_action_of_posix_spawn_creates_shows_in_its_directory(
    linked: Board,
) -> None:
    shown = python(
        linked,
        "before = os.stat('a').st_mtime_ns\n"
        "flags = os.O_WRONLY | os.O_CREAT\n"
        "actions = [(os.POSIX_SPAWN_OPEN, 1, 'a/new', flags, 0o600)]\n"
        "p = os.posix_spawn('/bin/true', ['true'], os.environ, file_actions=actions)\n"
        "os.waitpid(p, 0); print(os.stat('a').st_mtime_ns > before)",
    )

    assert shown == "True\n"


def test_thread_with_the_least_stack_has_what_it_has_without(
    board: Board, compiled: Compile
) -> None:
    begin(board, "two.bin")

    assert board.run(compiled("least_stack.c")) == "ok\n"
