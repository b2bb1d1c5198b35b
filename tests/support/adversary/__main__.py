"""Plays seeds again: python -m support.adversary [-s] [--late] FIRST [LAST].

-s makes failures small; with --late datasets are indexed while sequences are played.
"""

import os
import sys
import tempfile
import time
from pathlib import Path

from support.adversary.campaign import campaign
from support.adversary.scene import Scene
from support.adversary.tree import clear, clear_abroad


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
        if "--late" in words:
            scene.begin_late()
        failed = 0
        for failure in campaign(scene, range(first, last + 1), small="-s" in words):
            print(failure, flush=True)
            failed += 1
    finally:
        clear(folder)
        clear_abroad(folder)
    spent = time.monotonic() - before
    count = last - first + 1
    print(scene.told())
    print(f"{count} sequences, {failed} failed, {spent:.1f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
