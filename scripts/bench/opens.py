"""Hot-path budgets: open, read and stat of ready files, against the same calls plain.

The tree lies on tmpfs, so that both sides read the same medium; 20,000 of its files
(mean path 60 bytes) are opened and staged. Both sides run in one job, in turn: the
Shim's side as the job's children, the plain side with the Shim switched off.
"""

from __future__ import annotations

import os
import random
import statistics
import subprocess
import sys
from pathlib import Path

from table import Row

ROUNDS = 5
TURNS = 5
COLD_FILES = 20_000
HOT_FILES = 200
READ_FILES = 1_000
READ_BYTES = 100_000


def make_tree(root: Path, names: int) -> None:
    """Create the files: small ones by the million, some of READ_BYTES."""
    body = random.Random(1).randbytes(READ_BYTES)
    for i in range(names):
        folder = root / f"train-images-set-{i % 1000:04d}"
        if i < 1000:
            folder.mkdir(parents=True)
        descriptor = os.open(folder / f"sample_{i:010d}.jpg", os.O_CREAT | os.O_WRONLY)
        if i % (names // READ_FILES) == 0:
            os.write(descriptor, body)
        os.close(descriptor)


def link_tree(store: Path, root: Path) -> None:
    """Create a link of the same name to each file of a tree beside it."""
    for folder in store.iterdir():
        (root / folder.name).mkdir(parents=True)
        for name in os.listdir(folder):
            target = f"../../{store.name}/{folder.name}/{name}"
            os.symlink(target, root / folder.name / name)


def listed(root: Path, names: int, count: int) -> list[str]:
    """Name `count` files spread over the whole catalog."""
    step = names // count
    return [
        str(root / f"train-images-set-{i % 1000:04d}" / f"sample_{i:010d}.jpg")
        for i in range(0, step * count, step)
    ]


def timed(program: str, paths: Path, kind: str, plain: bool) -> float:
    """Run the C program once and return the median nanoseconds per call."""
    environ = dict(os.environ)
    if plain:
        environ.pop("LD_PRELOAD", None)
        environ["MONARCH_STAGING_DISABLE"] = "1"
    done = subprocess.run(
        [program, str(paths), kind, str(ROUNDS)],
        env=environ,
        check=True,
        capture_output=True,
        text=True,
    )
    return statistics.median(map(float, done.stdout.split()))


def pair(program: str, paths: Path, kind: str) -> tuple[float, float, float]:
    """Time both sides in turn: (Shim, plain, median of the ratios)."""
    timed(program, paths, kind, plain=False)
    turns = [
        (timed(program, paths, kind, False), timed(program, paths, kind, True))
        for _ in range(TURNS)
    ]
    shim = statistics.median(s for s, _ in turns)
    plain = statistics.median(p for _, p in turns)
    return shim, plain, statistics.median(s / p for s, p in turns)


def inside(work: Path, names: int) -> None:
    """Run in the job: time everything and print one line per row."""
    program = str(work / "opens")
    root = work / "data"
    lists = {
        "hot": listed(root, names, HOT_FILES),
        "cold": listed(root, names, COLD_FILES),
        "read": listed(root, names, READ_FILES),
        "inside": listed(root, names, HOT_FILES),
    }
    outside = work / "outside"
    outside.mkdir()
    lists["outside"] = [str(outside / f"file{i:04d}") for i in range(HOT_FILES)]
    for name in lists["outside"]:
        Path(name).touch()
    os.chdir(root)
    lists["relative"] = [os.path.relpath(p, root) for p in lists["hot"]]
    for name, paths in lists.items():
        (work / f"{name}.list").write_text("\n".join(paths) + "\n")
    for name, kind in [
        ("read", "read"),
        ("hot", "open"),
        ("cold", "open"),
        ("outside", "open"),
        ("relative", "open"),
        ("cold", "stat"),
        ("hot", "stat"),
        ("outside", "write"),
        ("outside", "truncate"),
        ("inside", "write"),  # marks its files: after all that reads them
        ("inside", "truncate"),
    ]:
        shim, plain, ratio = pair(program, work / f"{name}.list", kind)
        print(f"row {name} {kind} {shim} {plain} {ratio}", flush=True)


BUDGETS = {
    ("read", "read"): ("open+read+close, ready 100 KB file", 1.05),
    ("hot", "open"): ("open+close, ready file, hot", 1.15),
    ("cold", "open"): ("open+close, ready file, cold probe", 1.25),
    ("outside", "open"): ("open+close outside the Namespace", 1.05),
    ("relative", "open"): ("open+close, ready file, relative path (told only)", 9.0),
    ("cold", "stat"): ("stat of a catalogued file, cold probe", 0.3),
    ("hot", "stat"): ("stat of a catalogued file, hot", 0.3),
}
WRITES = {
    ("outside", "write"): "open+close for writing outside the Namespace, us more",
    ("outside", "truncate"): "the same with O_TRUNC, us more",
    ("inside", "write"): "open+close for writing, catalogued file, us more",
    ("inside", "truncate"): "the same with O_TRUNC, catalogued, us more",
}
"""What a write open may cost on a local origin: a microsecond, not a ratio."""
WRITE_US_MAX = 1.0


def measure(monarch: str, work: Path, names: int, *, linked: bool = False) -> list[Row]:
    """Build the tree, run the job and return the rows.

    Args:
        linked: each name of the dataset is a link to a file outside of it.
    """
    source = Path(__file__).with_name("opens.c")
    build = ["cc", "-O2", "-D_GNU_SOURCE", "-o", str(work / "opens"), str(source)]
    subprocess.run(build, check=True)
    make_tree(work / ("store" if linked else "data"), names)
    if linked:
        link_tree(work / "store", work / "data")
    done = subprocess.run(
        [
            monarch, "run", "-q", "--data", str(work / "data"), "--tier", "ram:4GiB",
            "--set", "fill.enabled=false", "--set", "catalog.wait_max=10min", "--",
            sys.executable, __file__,
            str(work), str(names),
        ],
        check=True, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    rows = []
    for line in done.stdout.splitlines():
        _, name, kind, shim, plain, ratio = line.split()
        measured = (
            f"{float(shim) / 1000:.2f} us",
            f"{float(plain) / 1000:.2f} us plain",
        )
        if (name, kind) in WRITES:
            more = (float(shim) - float(plain)) / 1000
            rows.append(Row(WRITES[name, kind], *measured, more, WRITE_US_MAX))
            continue
        what, budget = BUDGETS[name, kind]
        rows.append(Row(what, *measured, float(ratio), budget))
    return rows


if __name__ == "__main__":
    inside(Path(sys.argv[1]), int(sys.argv[2]))
