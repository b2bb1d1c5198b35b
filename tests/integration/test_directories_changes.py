"""A listing shows changes of the job at once and others after a second."""

import sys
import time
from pathlib import Path

import pytest

from support.directories import answered, fill_folders, plain
from support.shim_fixtures import Board, python, python_around

SECOND = 1.3
"""How long it takes until a directory is asked for again, with some room."""


@pytest.fixture
def listed(board: Board) -> Board:
    """The dataset is catalogued, and its directories may be listed."""
    fill_folders(board)
    board.start("-l")
    return board


CHANGES = {
    "create": "open('many/new', 'w').close()",
    "mkdir": "os.mkdir('many/new')",
    "symlink": "os.symlink('f001', 'many/new')",
    "link": "os.link('one.bin', 'many/new')",
    "unlink": "os.unlink('many/f001')",
    "rmdir": "os.rmdir('many/f050.d/in'); os.rmdir('many/f050.d')",
    "rename": "os.rename('many/f001', 'many/new')",
    "leave": "os.rename('many/f001', 'none/new')",
    "arrive": "os.rename('one.bin', 'many/new')",
    "exchange": "libc.renameat2(-100, b'many/f001', -100, b'one.bin', 2)",
    "mkfifo": "os.mkfifo('many/new')",
    "mkstemp": "libc.mkstemp(text(b'many/XXXXXX'))",
    "mkstemps": "libc.mkstemps(text(b'many/XXXXXX-'), 1)",
    "mkostemp": "libc.mkostemp(text(b'many/XXXXXX'), 0)",
    "mkostemps": "libc.mkostemps(text(b'many/XXXXXX-'), 1, 0)",
    "mkstemp64": "libc.mkstemp64(text(b'many/XXXXXX'))",
    "mkstemps64": "libc.mkstemps64(text(b'many/XXXXXX'), 0)",
    "mkostemp64": "libc.mkostemp64(text(b'many/XXXXXX'), 0)",
    "mkostemps64": "libc.mkostemps64(text(b'none/XXXXXX'), 0, 0)",
    "mkdtemp": "libc.mkdtemp(text(b'many/XXXXXX'))",
    "bind": "socket.socket(socket.AF_UNIX).bind('many/new')",
    "by alias": "open('folder/../../many/new', 'w').close()",
    "by descriptor": "os.mkdir('new', dir_fd=os.open('many', os.O_RDONLY))",
    "by proc": "open(f'/proc/self/fd/{os.open(\"many\", 0)}/new', 'w').close()",
}


NAMES = (
    "def names(at): return sorted((e.name, e.inode()) for e in os.scandir(at))\n"
    "def show(): return [names(folder) for folder in ('many', 'none')]\n"
)
MAKE = (
    "import os, ctypes, socket\n"
    "libc, text = ctypes.CDLL(None), ctypes.create_string_buffer\n"
)


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("who", ["itself", "another"])
def test_a_change_shows_at_once(listed: Board, change: str, who: str) -> None:
    """In the process that makes it, and in others of the job."""
    make = MAKE + CHANGES[change]
    made = {
        "itself": f"exec({make!r})\n",
        "another": "import subprocess\n"
        f"subprocess.run([sys.executable, '-c', {make!r}], check=True)\n",
    }
    script = f"{NAMES}before = show()\n{made[who]}print(before != show(), show())\n"

    shown = python(listed, script)

    assert answered(listed) >= 2
    assert shown == "True " + plain(listed, f"{NAMES}print(show())\n")


def test_an_unseen_change_shows_after_a_second(listed: Board) -> None:
    """As one that another node makes."""
    script = (
        "import time\nassert len(os.listdir('many')) == 306\n"
        "print('listed', flush=True); sys.stdin.readline()\n"
        f"time.sleep({SECOND}); print('new' in os.listdir('many'))\n"
    )
    shown = python_around(listed, script, (listed.root / "many" / "new").touch)

    assert shown == "True\n"


def test_a_directory_is_looked_up_once_a_second(listed: Board, tmp_path: Path) -> None:
    """By all processes together."""
    trace = tmp_path / "trace"
    script = f"import os\nfor _ in range(50): os.listdir({str(listed.root / 'many')!r})"
    words = ["strace", "-f", "-e", "trace=statx", "-o", str(trace), sys.executable]

    started = time.monotonic()
    listed.run("sh", "-c", '"$@" && "$@"', "sh", *words, "-S", "-c", script)
    took = time.monotonic() - started

    forced = trace.read_text().count("AT_STATX_FORCE_SYNC")
    assert answered(listed) >= 100
    assert forced <= 1 + took
