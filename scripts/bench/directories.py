"""Directory budgets: programs that list a dataset of many directories.

The origin is the counting file system of the tests, with 1 ms an operation like a busy
metadata server, without extended attributes; its client keeps metadata for a minute.
Each program runs directly and under Monarch, each time on a mount that nobody has used:
the scan is what the start of a job costs, and counts as such.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from table import Row

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

from support import countfs, listing_programs

FOLDERS, FILES = 200, 100
OPERATION_US, KEPT_MS = 1000, 60_000
FASTER = 0.1
FASTER_NAMES = 0.5
"""Directly a directory costs some requests, and under Monarch still one."""


def run_program(work: Path, name: str, command: list[str]) -> dict[str, Any]:
    """Run one program under a command, on a fresh mount."""
    mount, out = work / "origin", work / "results.json"
    mount.mkdir(exist_ok=True)
    settings = {"keep_ms": KEPT_MS, "aged": 1, "no_xattrs": 1, "op_us": OPERATION_US}
    with countfs.mounted(countfs.build(), work / "source", mount, **settings):
        command = [word.format(root=mount) for word in command]
        lister = [sys.executable, listing_programs.__file__, str(mount), str(out)]
        subprocess.run([*command, *lister, name], check=True)
    found: dict[str, Any] = json.loads(out.read_text())[name]
    return found


def measure(monarch: str, work: Path, *, quick: bool) -> list[Row]:
    """Measure the time and the requests of each program."""
    folders = FOLDERS // 10 if quick else FOLDERS
    listing_programs.make_tree(work / "source", folders, FILES)
    run = [monarch, "run", "-q", "--data", "{root}", "--tier", "ram:256MiB"]
    run += ["--set", "catalog.reuse=false", "--set", "fill.enabled=false", "--"]
    rows = []
    for name in listing_programs.PROGRAMS:
        ours, direct = run_program(work, name, run), run_program(work, name, [])
        if ours["out"] != direct["out"]:
            raise RuntimeError(f"{name} gives another output under Monarch")
        budget = FASTER_NAMES if name in listing_programs.NAMES_ONLY else FASTER
        what = f"{name}, {folders * FILES:,} files in {folders} directories"
        against = f"{direct['s']:.2f} s direct, 1 ms an operation"
        ratio = ours["s"] / direct["s"]
        rows.append(Row(what, f"{ours['s']:.3f} s", against, ratio, budget))
        asked = sum(ours["asked"].values())
        against = f"{folders + 1} directories"
        rows.append(
            Row(f"requests of {name}", f"{asked}", against, asked / (folders + 1), 1.01)
        )
    return rows
