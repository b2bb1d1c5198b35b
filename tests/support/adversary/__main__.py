"""Plays seeds again: python -m support.adversary FIRST [LAST]."""

import os
import shutil
import sys
import tempfile
import time
from pathlib import Path

from support.adversary.campaign import campaign
from support.adversary.scene import Scene


def main(words: list[str]) -> int:
    """Prints each failure; 1 if there was one."""
    numbers = [int(word) for word in words if word.isdigit()]
    first, last = numbers[0], numbers[-1]
    command = Path(sys.executable).with_name("monarch")
    folder = Path(tempfile.mkdtemp(prefix="adversary-"))
    os.environ["MONARCH_STAGING_RUN_DIR"] = str(folder / "run")
    (folder / "run").mkdir(mode=0o700)
    before = time.monotonic()
    try:
        scene = Scene.make(command, folder)
        failures = campaign(scene, range(first, last + 1), small="-s" in words)
        for failure in failures:
            print(failure, flush=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    spent = time.monotonic() - before
    count = last - first + 1
    print(scene.told())
    print(f"{count} sequences, {len(failures)} failed, {spent:.1f} s")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
