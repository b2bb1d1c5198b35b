"""Programs that list a whole dataset, each in its own way, and their requests."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

WALK = """
import os, sys
size = 0
for folder, below, names in os.walk(sys.argv[1]):
    for name in names: size += os.stat(os.path.join(folder, name)).st_size
print(size)
"""
IMAGES = """
import os, sys
classes = sorted(entry.name for entry in os.scandir(sys.argv[1]) if entry.is_dir())
for number, name in enumerate(classes):
    for folder, _, files in sorted(os.walk(os.path.join(sys.argv[1], name))):
        for file in sorted(files):
            if file.endswith('.jpg'): print(os.path.join(folder, file), number)
"""
PROGRAMS = {
    "os.walk + stat": [sys.executable, "-c", WALK],
    "ImageFolder": [sys.executable, "-c", IMAGES],
    "find": ["find"],
    "find -size": ["find", "-size", "+0"],
    "ls -lR": ["ls", "-lR"],
    "du": ["du", "-a"],
}
LONG_AGO_NS = 1_000_000_000_000_000_000


def make_tree(root: Path, folders: int, files: int) -> None:
    """Makes folders of files that have not changed for long."""
    for number in range(folders):
        folder = root / f"class{number:03d}"
        folder.mkdir(parents=True)
        for file in range(files):
            path = folder / f"image{file:05d}.jpg"
            path.write_bytes(b"x" * (file % 7))
            os.utime(path, ns=(LONG_AGO_NS, LONG_AGO_NS))
        os.utime(folder, ns=(LONG_AGO_NS, LONG_AGO_NS))
    os.utime(root, ns=(LONG_AGO_NS, LONG_AGO_NS))


def command(name: str, root: str) -> list[str]:
    """The command line that lists a root."""
    words = PROGRAMS[name]
    return ["find", root, *words[1:]] if words[0] == "find" else [*words, root]


NAMES_ONLY = ("ImageFolder", "find")
"""Those that ask for nothing but names and their types."""


def run_all(root: str, out: str, *chosen: str) -> None:
    """Runs each program by itself; writes its time, its output and its requests."""
    control = os.open(f"{root}/.control", os.O_WRONLY)
    counts = os.open(f"{root}/.counts", os.O_RDONLY)
    results = {}
    for name in chosen or PROGRAMS:
        os.write(control, b"reset=1\n")
        before = time.monotonic()
        done = subprocess.run(command(name, root), capture_output=True, check=True)
        spent_s = time.monotonic() - before
        lines = os.pread(counts, 4096, 0).decode().splitlines()
        asked = {word: int(value) for word, value in map(str.split, lines)}
        results[name] = {"s": spent_s, "out": done.stdout.decode(), "asked": asked}
    Path(out).write_text(json.dumps(results))


if __name__ == "__main__":
    run_all(*sys.argv[1:])
