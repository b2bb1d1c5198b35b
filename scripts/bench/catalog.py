"""Catalog budgets with synthetic Entries: bytes a file, and load rate of a saved index.

Paths below the root are 60 bytes long, 1,000 to a directory; there is no real tree.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import numpy as np
from table import Row

from monarch.catalog.build import build_block
from monarch.catalog.inventory import MappedRoot
from monarch.catalog.patterns import Patterns
from monarch.catalog.segment import OpenPolicy, plan_catalog
from monarch.catalog.survey import ATTR, ROW, Listing, Survey
from monarch.origins.index_file import RootIndex, read_index, save_index

ROOT = b"/pfs/imagenet"
PATH_BYTES = 60
PER_DIRECTORY = 1000
DIRECTORY, FILE = 0, 1
Result = TypeVar("Result")


def rows(first: int, count: int, attr: int) -> np.ndarray:
    """Metadata of `count` names whose inodes begin at `first`."""
    made = np.zeros(count, ROW)
    made["ino"] = np.arange(first, first + count)
    made["size"] = 110_000
    made["mtime_ns"] = made["ctime_ns"] = made["atime_ns"] = 1_700_000_000_000_000_000
    made["blocks"] = 216
    made["attr"] = attr
    return made


def synthetic(files: int) -> Survey:
    """A root of `files` files in directories of a thousand."""
    directories = [
        b"train/n%08d" % number for number in range(-(-files // PER_DIRECTORY))
    ]
    listings = [
        Listing.of(b"", [b"train"], rows(2, 1, DIRECTORY)),
        Listing.of(b"train", directories, rows(3, len(directories), DIRECTORY)),
    ]
    ino = 3 + len(directories)
    for number, directory in enumerate(directories):
        count = min(PER_DIRECTORY, files - number * PER_DIRECTORY)
        prefix = directory + b"/"
        width = PATH_BYTES - len(prefix) - len(b".jpeg")
        names = [b"%s%0*d.jpeg" % (prefix, width, ino + i) for i in range(count)]
        listings.append(Listing.of(directory, names, rows(ino, count, FILE)))
        ino += count
    shared = [(0o40755, 0, 0, 2, 42, 4096, 1), (0o100644, 0, 0, 1, 42, 4096, 1)]
    attrs = np.array(shared, ATTR)
    return Survey(ROOT, rows(1, 1, DIRECTORY), tuple(listings), attrs, {}, 0, 0, 0)


def timed(what: Callable[..., Result], *arguments: object) -> tuple[Result, float]:
    """The result of a call and the seconds it took."""
    began = time.perf_counter()
    return what(*arguments), time.perf_counter() - began


def measure(folder: Path, files: int) -> list[Row]:
    """Build, save and load an index of `files` files and return the rows."""
    block, build_s = timed(build_block, synthetic(files))
    file = folder / "bench.index"
    save_index(file, RootIndex(block, ROOT, Patterns()))
    del block
    loaded, load_s = timed(read_index, file)
    file.unlink()
    root = MappedRoot(ROOT, (), loaded.block)
    plan = plan_catalog([root], [], OpenPolicy(0, 0, 0))
    per_file = (plan.length + plan.flags_length + plan.inodes_length) / files
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1 << 20)
    built = f"built at {files / build_s:,.0f}/s, peak {peak:.1f} GiB"
    size = Row(
        f"bytes per file, {files:,} files", f"{per_file:.1f}", built, per_file, 176
    )
    rate = files / load_s
    load = Row("files/s from a saved index", f"{rate:,.0f}", "-", rate, 200_000, True)
    return [size, load]
