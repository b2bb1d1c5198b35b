"""Metadata budgets: the requests of a scan and an epoch to the origin.

The origin is the tests' counting file system. The same program lists a dataset and
opens each file directly and under Monarch, each on a mount of its own whose client has
seen nothing, and keeps names and metadata for a second: what the program has listed is
looked up anew before it is opened, as in any large dataset.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from table import Row

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

from support import countfs

FOLDERS, FILES = 40, 100
FILE_BYTES = 20_000
KEPT_MS = 1000
LONG_AGO_NS = 1_000_000_000_000_000_000


def make_tree(root: Path) -> None:
    """Create folders of files that have not changed for long."""
    for folder in range(FOLDERS):
        (root / f"class{folder:02d}").mkdir(parents=True)
        for number in range(FILES):
            path = root / f"class{folder:02d}" / f"image{number:05d}.jpg"
            path.write_bytes(b"x" * FILE_BYTES)
            os.utime(path, ns=(LONG_AGO_NS, LONG_AGO_NS))


def list_and_open(root: str) -> None:
    """List a dataset, and open and read each file when the client has forgotten it."""
    paths = [
        os.path.join(folder, name)
        for folder, _, names in os.walk(root)
        for name in names
    ]
    time.sleep(1.5 * KEPT_MS / 1000)
    for path in paths:
        with open(path, "rb", buffering=0) as file:
            file.read()


def requests(work: Path, command: list[str], *, plus: bool) -> int:
    """Run the program under a command on a fresh mount and return its requests."""
    mount = work / "origin"
    mount.mkdir(exist_ok=True)
    settings = {"keep_ms": KEPT_MS, "plus": int(plus), "aged": 1}
    built = countfs.build()
    with countfs.mounted(built, work / "source", mount, **settings) as origin:
        command = [word.format(root=mount) for word in command]
        subprocess.run([*command, sys.executable, __file__, str(mount)], check=True)
        counts = origin.counts()
    return counts.stats + counts.opens + counts.listings


def measure(monarch: str, work: Path) -> list[Row]:
    """Count the requests with READDIRPLUS and without."""
    make_tree(work / "source")
    run = [monarch, "run", "-q", "--data", "{root}", "--tier", "ram:256MiB"]
    run += ["--set", "catalog.reuse=false", "--"]
    rows = []
    for plus, budget in ((True, 1.1), (False, 1.6)):
        ours = requests(work, run, plus=plus)
        direct = requests(work, [], plus=plus)
        way = "with READDIRPLUS" if plus else "one lstat a name"
        what = f"requests of scan + epoch 1, {FOLDERS * FILES:,} files, {way}"
        against = f"{direct:,} direct, listing and opening all"
        rows.append(Row(what, f"{ours:,}", against, ours / direct, budget))
    return rows


if __name__ == "__main__":
    list_and_open(sys.argv[1])
