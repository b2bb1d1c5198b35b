"""Prints the table of budgets, each a ratio measured side by side in one run."""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import catalog
import clairvoyance
import codec_choice
import directories
import epochs
import formats
import hints
import large
import launch
import loader_criteria
import loader_jobs
import loaders
import metadata
import nodes
import opens
import origins
import packed
import packed_tier
import peers
import scaling
import simulation
import staging
import start
import store_peers
from table import Row, print_rows

import stores

Measure = Callable[[str, Path, argparse.Namespace], list[Row]]
PARTS: dict[str, Measure] = {
    "opens": lambda monarch, work, size: opens.measure(monarch, work, size.names),
    "links": lambda monarch, work, size: opens.measure(
        monarch, work, size.names, linked=True
    ),
    "launch": lambda monarch, work, _: launch.measure(monarch, work),
    "start": lambda monarch, work, size: start.measure(monarch, work, size.names),
    "metadata": lambda monarch, work, _: metadata.measure(monarch, work),
    "directories": lambda monarch, work, size: directories.measure(
        monarch, work, quick=size.quick
    ),
    "staging": lambda monarch, work, _: staging.measure(monarch, work),
    "epochs": lambda monarch, work, _: epochs.measure(monarch, work),
    "origins": lambda monarch, work, size: origins.measure(
        monarch, work, quick=size.quick
    ),
    "hints": lambda monarch, work, _: hints.measure(monarch, work),
    "clairvoyance": lambda monarch, work, _: clairvoyance.measure(monarch, work),
    "large": lambda monarch, work, size: large.measure(monarch, work, quick=size.quick),
    "formats": lambda monarch, work, size: formats.measure(
        monarch, work, quick=size.quick
    ),
    "packed": lambda monarch, work, _: packed.measure(monarch, work),
    "packed-tier": lambda monarch, work, _: packed_tier.measure(monarch, work),
    "codec-choice": lambda monarch, work, size: codec_choice.measure(
        monarch, work, quick=size.quick
    ),
    "peers": lambda monarch, work, _: peers.measure(monarch, work),
    "nodes": lambda monarch, work, _: nodes.measure(monarch, work),
    "scaling": lambda monarch, work, _: scaling.measure(monarch, work),
    "simulation": lambda monarch, work, _: simulation.measure(monarch, work),
    "catalog": lambda _, work, size: catalog.measure(work, size.names),
    "loader-criteria": lambda _, work, __: loader_criteria.measure(work),
    "stores": lambda monarch, work, size: stores.measure(
        monarch, work, quick=size.quick
    ),
    "store-peers": lambda _, work, size: store_peers.measure(work, quick=size.quick),
    "loader-jobs": lambda monarch, work, _: loader_jobs.measure(monarch, work),
    "loaders": lambda _, work, size: loaders.measure(work, quick=size.quick),
}
ON_REQUEST = ("loaders", "store-peers")
"""Parts that install what they compare Monarch with."""


def measure(part: str, monarch: str, work: Path, size: argparse.Namespace) -> list[Row]:
    """Measure one part of the table in a directory of its own."""
    folder = work / part
    folder.mkdir()
    return PARTS[part](monarch, folder, size)


def main() -> int:
    """Measure the chosen parts and print one table."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("parts", nargs="*", metavar="PART")
    options.add_argument(
        "--names", type=int, default=1_000_000, help="files of the catalog"
    )
    options.add_argument(
        "--quick",
        action="store_true",
        help="fewer files of slow origins, smaller large ones",
    )
    chosen = options.parse_args()
    unknown = set(chosen.parts) - set(PARTS)
    if unknown:
        options.error(
            f"no such part: {', '.join(sorted(unknown))}; one of {', '.join(PARTS)}"
        )
    parts = chosen.parts or [part for part in PARTS if part not in ON_REQUEST]
    monarch = str(Path(sys.executable).with_name("monarch"))
    work = Path(tempfile.mkdtemp(prefix="monarch-bench-", dir="/dev/shm"))
    rows = []
    try:
        for part in parts:
            print(f"measuring {part} ...", file=sys.stderr, flush=True)
            rows += measure(part, monarch, work, chosen)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    print_rows(rows)
    return 0 if all(row.kept for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
