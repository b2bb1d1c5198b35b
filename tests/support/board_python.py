"""Python programs under the Shim, at the root of a dataset that a Board serves."""

import subprocess
import sys
from typing import Any

import pytest

from support.shim_fixtures import Board

READ = "def read(p):\n    with open(p) as f: return f.read(3)\n"


def python(
    board: Board, script: str, interpreter: str = sys.executable, **options: Any
) -> str:
    """What a Python program under the Shim prints."""
    head = f"import os, ctypes, sys\nD = {str(board.root)!r}\nos.chdir(D)\n{READ}"
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    done = subprocess.run(
        [interpreter, "-c", head + script],
        env=board.environ(PYTHONDONTWRITEBYTECODE="1"),
        text=True,
        timeout=60,
        **{**pipes, **options},
    )
    assert done.returncode == 0, done.stderr
    return str(done.stdout)


def begin(board: Board, *names: str) -> Board:
    """The dataset is catalogued, and these Files are staged."""
    board.start()
    for name in names:
        board.ask(f"publish {name}")
    return board


@pytest.fixture
def linked(board: Board) -> Board:
    """two.bin and other.bin, staged."""
    (board.root / "other.bin").write_bytes(b"other")
    return begin(board, "two.bin", "other.bin")
