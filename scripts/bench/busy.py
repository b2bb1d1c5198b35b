"""An interpreter that keeps a thread of Python busy beside whatever it runs.

The launcher starts the agent with it where MONARCH_STAGING_PYTHON names it: what must
not need Python is then measured while the interpreter's lock is hardly ever free.
"""

from __future__ import annotations

import os
import runpy
import shlex
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

VARIABLE = "MONARCH_STAGING_PYTHON"


def environment(folder: Path) -> dict[str, str]:
    """Return the variables with which agents are busy, making the interpreter."""
    interpreter = folder / "busy-python"
    words = shlex.join([sys.executable, str(Path(__file__).resolve())])
    interpreter.write_text(f'#!/bin/sh\nexec {words} "$@"\n')
    interpreter.chmod(0o755)
    return {**os.environ, VARIABLE: str(interpreter)}


@contextmanager
def neighbour() -> Iterator[None]:
    """Keep a process of Python busy beside programs that have no Python in them."""
    with subprocess.Popen([sys.executable, __file__]) as process:
        try:
            yield
        finally:
            process.kill()


def count_for_ever() -> None:
    """Hold the interpreter's lock as long as it is given."""
    while True:
        sum(range(1000))


def main() -> None:
    """Run `-m MODULE WORDS...` beside a busy thread; without a module, only that."""
    words = sys.argv[1:]
    if "-m" not in words:
        count_for_ever()
    place = words.index("-m") + 1
    sys.argv = words[place:]
    sys.path.pop(0)  # this folder: the interpreter's -P would leave it out
    threading.Thread(target=count_for_ever, daemon=True).start()
    runpy.run_module(words[place], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
