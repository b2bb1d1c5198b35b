"""Missing names are denied while the Catalog describes their directory correctly."""

import os
from pathlib import Path

import pytest

from support.shim_fixtures import Board, python, python_around

SECOND = 1.3
"""How long it takes until a directory is asked for again, with some room."""
ASK = (
    "def ask(call, *words):\n"
    "    try: call(*words)\n"
    "    except OSError as error: return error.errno\n"
    "    return 0\n"
)
LIBC = (
    "LIBC, OLD = ctypes.CDLL(None, use_errno=True), 1 if sys.maxsize else 0\n"
    "room = ctypes.create_string_buffer(512)\n"
    "def c(name, *words):\n"
    "    try: call = getattr(LIBC, name)\n"
    "    except AttributeError: return 2\n"
    "    if 'fopen' in name: call.restype = ctypes.c_void_p\n"
    "    ctypes.set_errno(0)\n"
    "    return ctypes.get_errno() if call(*words) in (-1, None) else 0\n"
)
PATH = "D.encode() + b'/a/missing'"
CALLS = [
    *(f"c('{name}', {PATH}, room)" for name in ("stat", "stat64", "lstat", "lstat64")),
    *(
        f"c('__{n}', OLD, {PATH}, room)"
        for n in ("xstat", "xstat64", "lxstat", "lxstat64")
    ),
    *(f"c('{name}', -100, {PATH}, room, 0)" for name in ("fstatat", "fstatat64")),
    *(f"c('__{n}', OLD, -100, {PATH}, room, 0)" for n in ("fxstatat", "fxstatat64")),
    f"c('statx', -100, {PATH}, 0, 0x7ff, room)",
    *(f"c('{name}', {PATH}, 4)" for name in ("access", "eaccess", "euidaccess")),
    f"c('faccessat', -100, {PATH}, 4, 0)",
    *(f"c('{n}', {PATH}, 0)" for n in ("open", "open64", "__open", "__open_2")),
    f"c('__open64_2', {PATH}, 0)",
    *(f"c('{n}', -100, {PATH}, 0)" for n in ("openat", "openat64", "__openat_2")),
    *(f"c('{n}', {PATH}, b'r')" for n in ("fopen", "fopen64", "_IO_fopen")),
]


@pytest.fixture
def listed(board: Board) -> Board:
    """The dataset is catalogued; a FIFO has no Entry."""
    (board.root / "fifo").unlink()
    (board.root / "a" / "b" / "1").touch()
    board.start("-l")
    return board


def denied(board: Board) -> int:
    """The number of calls that the Catalog has answered in this way."""
    return board.counters()["absent_answered"]


@pytest.mark.parametrize("call", CALLS)
def test_a_missing_name_is_denied(listed: Board, call: str) -> None:
    assert python(listed, f"{LIBC}print({call})") == "2\n"
    assert denied(listed) == 1


NAMES = {
    "missing": 2,
    "a/missing": 2,
    "a/missing/": 2,
    "a/missing/below/it": 2,
    "folder/missing": 2,
    "a/link.bin.x": 2,
    "./a/../missing": 2,
}
NOT_SURE = {
    ".snapshot": 2,
    "a/.hidden": 2,
    "a/LINK~1.BIN": 2,
    "a/with space": 2,
    "a/col:on": 2,
    "a/dot.": 2,
    "a/\u00e4": 2,
    "one.bin/x": 20,
    "a/link.bin/x": 20,
    f"a/{'x' * 200}": 2,
    f"a/{'x' * 300}": 36,
    "away/x": 20,
    "a/b/../../../x": 2,
}


@pytest.mark.parametrize("name", NAMES)
def test_any_spelling_of_a_missing_name_is_denied(listed: Board, name: str) -> None:
    shown = python(
        listed, f"{ASK}print(ask(os.stat, {name!r}), ask(os.lstat, {name!r}))"
    )

    assert shown == f"{NAMES[name]} {NAMES[name]}\n"
    assert denied(listed) == 2


@pytest.mark.parametrize("name", NOT_SURE)
def test_names_that_servers_may_treat_specially_are_looked_up_at_the_origin(
    listed: Board, name: str
) -> None:
    """And those that give another error than that they are not there."""
    assert (
        python(listed, f"{ASK}print(ask(os.stat, {name!r}))") == f"{NOT_SURE[name]}\n"
    )
    assert denied(listed) == 0


def test_names_relative_to_a_directory_are_denied(listed: Board) -> None:
    script = (
        f"{ASK}fd = os.open('a', os.O_RDONLY)\n"
        "print(ask(lambda: os.stat('missing', dir_fd=fd)))\n"
        "print(ask(lambda: os.stat('link.bin', dir_fd=fd)))\n"
    )

    assert python(listed, script) == "2\n0\n"
    assert denied(listed) == 1


COMES = {
    "open": "open('a/new', 'w').close()",
    "mkdir": "os.mkdir('a/new')",
    "rename": "os.rename('one.bin', 'a/new')",
    "link": "os.link('one.bin', 'a/new')",
    "symlink": "os.symlink('link.bin', 'a/new')",
    "by link": "os.symlink('a', 'away2'); open('away2/new', 'w').close()",
    "by descriptor": "os.mkdir('new', dir_fd=os.open('a', os.O_RDONLY))",
    "by proc": "open(f'/proc/self/fd/{os.open(\"a\", 0)}/new', 'w').close()",
    "by shell": "os.system('echo > a/new')",
}


@pytest.mark.parametrize("comes", COMES)
def test_a_new_name_appears_at_once(listed: Board, comes: str) -> None:
    script = (
        f"{ASK}import subprocess\n"
        "def new(): return ask(os.stat, D + '/a/new'), ask(open, D + '/a/new')\n"
        f"before = new()\n{COMES[comes]}\n"
        "code = 'import os, sys; sys.exit(not os.path.exists(\"a/new\"))'\n"
        "other = subprocess.run([sys.executable, '-c', code]).returncode\n"
        "print(before, new()[0], other)\n"
    )

    assert python(listed, script) == "(2, 2) 0 0\n"
    assert denied(listed) == 2


def test_an_unseen_new_name_appears_after_a_second(listed: Board) -> None:
    """As one that another node makes for those that poll for it."""
    script = (
        "import time\nassert not os.path.exists('a/new')\n"
        "print('asked', flush=True); sys.stdin.readline()\n"
        "started = time.monotonic()\n"
        "while not os.path.exists('a/new'): time.sleep(0.01)\n"
        "print(time.monotonic() - started)\n"
    )
    waited = python_around(listed, script, (listed.root / "a" / "new").touch)

    assert float(waited) <= SECOND
    assert denied(listed) >= 1


def test_a_time_that_is_set_back_hides_no_name(listed: Board) -> None:
    """The time of the last change tells."""
    folder = listed.root / "a"
    before = folder.stat()
    (folder / "new").touch()
    os.utime(folder, ns=(before.st_atime_ns, before.st_mtime_ns))

    shown = python(
        listed, "print(os.path.exists('a/new'), os.listdir('a').count('new'))"
    )

    assert shown == "True 1\n"


UNSURE = {
    "not settled": ((), "pass"),
    "with unknown names": (("-l", "-x", "a"), "pass"),
    "passed through": (("-l",), "os.chmod('a/b', 0o700)"),
    "unstable, after a change": (("-l", "-u"), "open('new', 'w').close()"),
    "with no letters in its names": (("-l",), "pass"),
}


@pytest.mark.parametrize("why", UNSURE)
def test_a_directory_that_may_differ_is_looked_up_at_the_origin(
    board: Board, why: str
) -> None:
    folder = "digits" if "letters" in why else "a"
    (board.root / "digits").mkdir()
    (board.root / "digits" / "12").touch()
    options, before = UNSURE[why]
    board.start(*options)

    shown = python(board, f"{before}\nprint(os.path.exists('{folder}/missing'))\n")

    assert shown == "False\n"
    assert denied(board) == 0


def test_names_are_denied_where_inodes_may_change(board: Board) -> None:
    board.start("-l", "-u")

    assert python(board, "print(os.path.exists('a/missing'))") == "False\n"
    assert denied(board) == 1


def test_an_open_that_creates_is_never_denied(listed: Board) -> None:
    shown = python(
        listed,
        "os.close(os.open(D + '/a/new', os.O_RDONLY | os.O_CREAT))\n"
        "os.close(os.open(D + '/a', os.O_RDONLY | os.O_DIRECTORY))\n"
        "open(D + '/a/more', 'a').close(); print(sorted(os.listdir('a')))\n",
    )

    assert shown == "['b', 'link.bin', 'more', 'new', 'same.bin']\n"
    assert denied(listed) == 0


def test_errors_of_other_calls_stay(listed: Board) -> None:
    """A mode that is not valid is told before the name."""
    script = f"{LIBC}print(c('fopen', {PATH}, b'z'), c('open', {PATH}, 1))"

    assert python(listed, script) == "22 2\n"
    assert denied(listed) == 0


def test_a_name_below_a_replaced_directory_is_looked_up_at_the_origin(
    listed: Board, tmp_path: Path
) -> None:
    """The directory of that path is another one by now."""
    os.rename(listed.root / "a", tmp_path / "a")
    (listed.root / "a").mkdir()
    (listed.root / "a" / "new").touch()

    assert python(listed, "print(os.path.exists('a/new'))") == "True\n"
