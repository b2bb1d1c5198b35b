"""Prints the table of budgets, each a ratio measured side by side in one run."""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import catalog
import epochs
import launch
import metadata
import nodes
import opens
import peers
import staging
import start
from table import Row, print_rows

Measure = Callable[[str, Path, int], list[Row]]
PARTS: dict[str, Measure] = {
    "opens": opens.measure,
    "launch": lambda monarch, work, _: launch.measure(monarch, work),
    "start": start.measure,
    "metadata": lambda monarch, work, _: metadata.measure(monarch, work),
    "staging": lambda monarch, work, _: staging.measure(monarch, work),
    "epochs": lambda monarch, work, _: epochs.measure(monarch, work),
    "peers": lambda monarch, work, _: peers.measure(monarch, work),
    "nodes": lambda monarch, work, _: nodes.measure(monarch, work),
    "catalog": lambda _, work, names: catalog.measure(work, names),
}


def measure(part: str, monarch: str, work: Path, names: int) -> list[Row]:
    """Measure one part of the table in a directory of its own."""
    folder = work / part
    folder.mkdir()
    return PARTS[part](monarch, folder, names)


def main() -> int:
    """Measure the chosen parts and print one table."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("parts", nargs="*", default=list(PARTS), metavar="PART")
    options.add_argument(
        "--names", type=int, default=1_000_000, help="files of the catalog"
    )
    chosen = options.parse_args()
    unknown = set(chosen.parts) - set(PARTS)
    if unknown:
        options.error(
            f"no such part: {', '.join(sorted(unknown))}; one of {', '.join(PARTS)}"
        )
    monarch = str(Path(sys.executable).with_name("monarch"))
    work = Path(tempfile.mkdtemp(prefix="monarch-bench-", dir="/dev/shm"))
    rows = []
    try:
        for part in chosen.parts:
            print(f"measuring {part} ...", file=sys.stderr, flush=True)
            rows += measure(part, monarch, work, chosen.names)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    print_rows(rows)
    return 0 if all(row.kept for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
