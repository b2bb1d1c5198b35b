"""The demonstration: one reading program, plain and under Monarch, on a slow origin.

MONARCH_DEMO names a directory in which the dataset is generated, on a slow file system.
"""

import argparse
import os
import random
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from monarch.units import format_count, format_rate, format_size

SCRIPTS = Path(__file__).parent
sys.path.append(str(SCRIPTS.parent / "tests"))

from support import countfs  # noqa: E402 - the path to it is known only now

EPOCHS = 3
OWN_ORIGIN = "MONARCH_DEMO"
MEAN_BYTES = 110_000
CLASSES = 10
# A parallel file system on a busy day, as one node of many sees it.
SLOW = {"bw": 40 << 20, "open_us": 2000, "stat_us": 300}


View = countfs.CountFs | None


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
def origin_of(source: Path, work: Path) -> Iterator[tuple[Path, View]]:
    """A slowed view of a directory where this machine allows one, else itself."""
    if OWN_ORIGIN in os.environ:
        say(f"Origin: {source}")
        yield source, None
        return
    with ExitStack() as stack:
        try:
            root, view = stack.enter_context(slowed(source, work / "origin"))
        except (OSError, subprocess.SubprocessError) as reason:
            say(
                f"Origin: a plain directory, for none can be slowed here ({reason});\n"
                "   expect no speed-up. On a slow file system of yours:\n"
                f"   {OWN_ORIGIN}=DIRECTORY scripts/demo"
            )
            root, view = source, None
        yield root, view


@contextmanager
def slowed(source: Path, root: Path) -> Iterator[tuple[Path, View]]:
    """A slowed view of a directory, for which no root is needed."""
    if lacking := countfs.missing():
        raise OSError(lacking)
    root.mkdir()
    with countfs.mounted(countfs.build(), source, root, **SLOW) as view:
        rate, ms = format_rate(SLOW["bw"]), SLOW["open_us"] / 1000
        say(f"Origin: a FUSE mount limited to {rate} and {ms:g} ms per open")
        yield root, view


def forget(root: Path) -> None:
    """Have the page cache drop a dataset, as if it were larger than memory."""
    for path in root.rglob("*.jpg"):
        fd = os.open(path, os.O_RDONLY)
        try:
            os.fsync(fd)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(fd)


def read(source: Path, view: View, command: list[str]) -> float:
    """Run a reader, and say what the origin served; return its seconds.

    The page cache drops the dataset before each epoch.
    """
    if view:
        view.reset()
    forget(source)
    start_s = time.monotonic()
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as reader:
        assert reader.stdin
        assert reader.stdout
        for _ in range(EPOCHS):
            reader.stdin.write("\n")
            reader.stdin.flush()
            line = reader.stdout.readline()
            if not line:
                break
            print(line, end="", flush=True)
            forget(source)
    if reader.returncode:
        sys.exit(reader.returncode)
    elapsed_s = time.monotonic() - start_s
    if view:
        counts = view.counts()
        size = format_size(counts.read_bytes)
        print(f"the origin served {format_count(counts.opens)} opens, {size}")
    return elapsed_s


def main() -> None:
    """Generate, read plain, read under Monarch."""
    parser = argparse.ArgumentParser(prog="scripts/demo", description=__doc__)
    parser.add_argument("files", nargs="?", type=int, default=600)
    files = parser.parse_args().files
    monarch = Path(sysconfig.get_path("scripts")) / "monarch"
    given = os.environ.get(OWN_ORIGIN)
    if given is not None and not os.path.isdir(given):
        parser.error(f"{OWN_ORIGIN}={given}: there is no such directory")
    with (
        tempfile.TemporaryDirectory(prefix="monarch-demo-") as folder,
        tempfile.TemporaryDirectory(prefix="monarch-demo-", dir=given) as source,
    ):
        dataset = Path(source)
        total = generate(dataset, files)
        say(f"Dataset: {files} files, {format_size(total)}, seeded")
        with origin_of(dataset, Path(folder)) as (root, view):
            program = [sys.executable, str(SCRIPTS / "demo_reader.py"), str(root)]
            say(f"Plain: {EPOCHS} epochs")
            plain_s = read(dataset, view, program)
            staging = [str(monarch), "run", "--data", str(root), "--tier", "ram:1GiB"]
            say(f"Under Monarch: {EPOCHS} epochs")
            staged_s = read(dataset, view, [*staging, "--", *program])
    say(f"plain {plain_s:.1f} s → Monarch {staged_s:.1f} s, with its start and end")


if __name__ == "__main__":
    main()
