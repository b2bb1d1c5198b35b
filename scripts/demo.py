"""The demonstration: one reading program, plain and under Monarch, on a slow origin."""

import argparse
import os
import random
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from monarch.units import format_count, format_rate, format_size

SCRIPTS = Path(__file__).parent
sys.path.append(str(SCRIPTS.parent / "tests"))

from support import countfs  # noqa: E402 - the path to it is known only now

EPOCHS = 3
MEAN_BYTES = 110_000
CLASSES = 10
# A parallel file system on a busy day, as one node of many sees it.
SLOW = {"bw": 40 << 20, "open_us": 2000, "stat_us": 300}


def say(text: str) -> None:
    """Print a line of the demonstration itself, apart from what programs print."""
    print(f"\n== {text}", flush=True)


def generate(root: Path, files: int) -> int:
    """Write files that are sized like a folder of photographs; return their bytes."""
    rng = random.Random(1)
    total = 0
    for number in range(files):
        path = root / f"class-{number % CLASSES}" / f"image-{number:06}.jpg"
        path.parent.mkdir(exist_ok=True)
        length = int(rng.lognormvariate(0, 0.5) * MEAN_BYTES * 0.88)
        path.write_bytes(rng.randbytes(length))
        total += length
    return total


@contextmanager
def slow_origin(
    source: Path, work: Path
) -> Iterator[tuple[Path, countfs.CountFs | None]]:
    """A slowed view of a directory where this machine allows one, else itself."""
    reason = countfs.missing() or (None if os.geteuid() == 0 else "needs root")
    if reason:
        say(f"Origin: a plain directory, as a slow one {reason}; expect no speed-up")
        yield source, None
        return
    root = work / "origin"
    root.mkdir()
    with countfs.mounted(countfs.build(), source, root, **SLOW) as view:
        rate, ms = format_rate(SLOW["bw"]), SLOW["open_us"] / 1000
        say(f"Origin: a FUSE mount limited to {rate} and {ms:g} ms per open")
        yield root, view


def run(view: countfs.CountFs | None, command: list[str]) -> None:
    """Run a command and say what the origin served meanwhile."""
    if view:
        view.reset()
    subprocess.run(command, check=True)
    if view:
        counts = view.counts()
        size = format_size(counts.read_bytes)
        print(f"the origin served {format_count(counts.opens)} opens, {size}")


def main() -> None:
    """Generate, read plain, read under Monarch."""
    parser = argparse.ArgumentParser(prog="scripts/demo", description=__doc__)
    parser.add_argument("files", nargs="?", type=int, default=600)
    files = parser.parse_args().files
    monarch = Path(sysconfig.get_path("scripts")) / "monarch"
    with tempfile.TemporaryDirectory(prefix="monarch-demo-") as folder:
        work = Path(folder)
        source = work / "dataset"
        source.mkdir()
        total = generate(source, files)
        say(f"Dataset: {files} files, {format_size(total)}, seeded")
        with slow_origin(source, work) as (root, view):
            program = [sys.executable, str(SCRIPTS / "demo_reader.py")]
            program += [str(root), str(EPOCHS)]
            say(f"Plain: {EPOCHS} epochs")
            run(view, program)
            options = ["--data", str(root), "--tier", "ram:1GiB"]
            say(f"Under Monarch: {EPOCHS} epochs")
            run(view, [str(monarch), "run", *options, "--", *program])


if __name__ == "__main__":
    main()
