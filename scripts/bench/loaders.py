"""Loaders side by side: the same Records from a slow origin, and from memory.

    loaders.py [--quick] [--runs N] [--memory MB] [READER ...]

The origin is the tests' counting file system with 100 MB/s for all, 2 ms an open and
1 ms a read; what it keeps in the page cache goes before each epoch. Each loader is a
process, in a Python of its own that is made when it is needed first. It reads two
epochs as fast as it can, a third one with work at each batch that is long enough to
hide all reading behind it, and one that is left in its middle and resumed by another
process. Then all lies in memory, and two epochs are read again. An epoch with a Record
too few or too many, or with wrong bytes, is a failure. The first epoch opens the
dataset: Monarch makes its index then, where other loaders have converted theirs before;
one more epoch finds the index of an earlier program.

With `--memory`, processes and the page cache of what they read have so much together,
beside what was imported.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from loader_formats import DIGESTS
from loader_site import (
    Child,
    Failed,
    child,
    make_data,
    memory_group,
    memory_of,
    python_of,
)
from loader_table import KINDS, MB, OURS, Figures, Told, goals, print_table
from table import Row, print_rows

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

from support import countfs

RECORDS, QUICK = 20_000, 10
BATCH = 64
RUNS = 3
BYTES_PER_S = 100 * MB
SLOW = {"bw": BYTES_PER_S, "open_us": 2000, "read_us": 1000, "keep_ms": 1000}
DROPS, KEEPS = 1, 2
"""What countfs.c does with the page cache when a file is opened."""
STEP_S = 0.010
"""Of work at each batch: 3.1 s an epoch, of 2.5 s of reading at least."""


@dataclass(frozen=True, slots=True)
class Site:
    """The datasets, in memory and at the slow origin.

    Args:
        work: a directory in memory.
        caches: one that is not.
    """

    work: Path
    caches: Path
    origin: countfs.CountFs
    count: int

    def plan(self, name: str, steps_s: Sequence[float], **more: Any) -> dict[str, Any]:
        """What a process is to read."""
        data = self.origin.source if more.get("is_local") else self.origin.root
        return {"reader": name, "data": str(data), "steps_s": list(steps_s), **more}

    def forget(self, name: str) -> None:
        """Drop what the kernel has of the files of a loader, and zero the counts."""
        self.origin.set(cached=DROPS)
        for path in (self.origin.root / KINDS[name].data).iterdir():
            path.open("rb").close()
        self.origin.set(cached=KEEPS)
        self.origin.reset()

    @contextmanager
    def folder(self) -> Iterator[Path]:
        """A folder for one process or two."""
        with tempfile.TemporaryDirectory(dir=self.caches, prefix="run-") as base:
            yield Path(base)

    def checked(self, found: Mapping[str, Any], count: int) -> None:
        """Look whether an epoch had what it must.

        Raises:
            Failed: it had not.
        """
        right = found["records"] == found["distinct"] == count
        if not right or found["wrong"]:
            raise Failed(
                f"{found['records']} records, {found['distinct']} of them distinct, "
                f"{found['wrong']} wrong; {count} expected"
            )


@contextmanager
def site(work: Path, names: Sequence[str], count: int) -> Iterator[Site]:
    """The datasets of some loaders, until the block ends."""
    source, root = work / "source", work / "origin"
    source.mkdir()
    root.mkdir()
    make_data(sys.executable, "digests", source, count)
    for name in names:
        kind = KINDS[name]
        venv = kind.venv if kind.is_converted else ""
        make_data(python_of(venv), kind.data, source / kind.data, count)
    with (
        tempfile.TemporaryDirectory(prefix="monarch-bench-", dir="/var/tmp") as caches,
        countfs.mounted(countfs.build(), source, root, **SLOW) as origin,
    ):
        yield Site(work, Path(caches), origin, count)


# -- what is measured ------------------------------------------------------------------


def slow(place: Site, name: str, group: Path | None = None) -> Figures:
    """Three epochs from the origin; two of them where memory is limited."""
    steps, figures = [0.0, 0.0] if group else [0.0, 0.0, STEP_S], Figures()
    with place.folder() as folder:
        plan = place.plan(name, steps, cache=str(folder / "cache"))
        with child(python_of(KINDS[name].venv), plan, folder, group) as reader:
            for epoch, step_s in enumerate(steps, 1):
                figures |= epoch_of(place, name, reader, epoch, step_s)
    return figures


def epoch_of(
    place: Site, name: str, reader: Child, epoch: int, step_s: float
) -> Figures:
    """One epoch from the origin."""
    place.forget(name)
    figures = Figures()
    found = worked(reader, figures) if step_s else reader.go()
    counts = place.origin.counts()
    place.checked(found, place.count)
    if not step_s:
        figures[f"e{epoch}"] = found["seconds"]
        figures[f"reads{epoch}"] = counts.reads
        figures[f"bytes{epoch}"] = counts.read_bytes
    if epoch == 1:
        figures["first"] = found["first_s"]
        figures["requests"] = found["stats"].get("requests", -1)
        figures["payload"] = found["stats"].get("request_bytes", -1)
    return figures


def indexed(place: Site, name: str) -> Figures:
    """The first epoch of a program that finds the index of an earlier one."""
    if name not in OURS:
        return {}
    figures = Figures()
    with place.folder() as folder:
        plan = place.plan(name, [0.0], cache=str(folder / "cache"))
        for _ in range(2):
            place.forget(name)
            with child(python_of(""), plan, folder) as reader:
                found = reader.go()
            place.checked(found, place.count)
        counts = place.origin.counts()
        figures["indexed"], figures["indexed_first"] = (
            found["seconds"],
            found["first_s"],
        )
        figures["reads_indexed"] = counts.reads
        figures["bytes_indexed"] = counts.read_bytes
    return figures


def worked(reader: Child, figures: Figures) -> dict[str, Any]:
    """An epoch with work, of which the waits and the memory matter."""
    with memory_of(reader.pid) as memory:
        found = reader.go()
    figures["exposed"] = found["waited_s"]
    figures["exposed_p99"] = found["wait_p99_s"]
    figures["worked"] = found["seconds"]
    figures["pss"], figures["private"] = memory.pss, memory.private
    return found


def local(place: Site, name: str) -> Figures:
    """Two epochs from memory."""
    figures = Figures()
    with place.folder() as folder:
        cache = str(folder / "cache")
        plan = place.plan(name, [0.0, 0.0], cache=cache, is_local=True)
        with child(python_of(KINDS[name].venv), plan, folder) as reader:
            for epoch in (1, 2):
                found = reader.go()
                place.checked(found, place.count)
                figures[f"local{epoch}"] = found["seconds"]
                figures[f"local_first{epoch}"] = found["first_s"]
    return figures


def resumed(place: Site, name: str) -> Figures:
    """An epoch in two processes; its second half begins when all is imported."""
    parts, python = [], python_of(KINDS[name].venv)
    with place.folder() as folder:
        half = -(-place.count // BATCH) // 2
        told = {"cache": str(folder / "cache"), "state": str(folder / "progress")}
        for part in ({"stop": half}, {"resumes": True}):
            place.forget(name)
            plan = place.plan(name, [0.0], **told, **part)
            with child(python, plan, folder) as reader:
                parts += [reader.go()] if reader.can_resume else []
    if not parts:
        return {}
    numbers = parts[0]["numbers"] + parts[1]["numbers"]
    whole = {"records": len(numbers), "distinct": len(set(numbers))}
    place.checked(whole | {"wrong": sum(one["wrong"] for one in parts)}, place.count)
    return {"resume": parts[1]["first_s"]}


def measure_all(
    place: Site, names: Sequence[str], runs: int, memory: int | None
) -> dict[str, Told]:
    """Measure all loaders in turn, as often as is wanted."""
    told = {name: Told() for name in names}
    for run, name in product(range(runs), names):
        print(f"run {run + 1}: {name} ...", file=sys.stderr, flush=True)
        figures = Figures()
        told[name].runs.append(figures)
        for what, part in parts_of(memory).items():
            try:
                figures |= part(place, name)
            except Failed as error:
                told[name].failures.append(f"{what}: {error}")
    return told


def parts_of(memory: int | None) -> dict[str, Callable[[Site, str], Figures]]:
    """What is measured of a loader, with a limit of memory or without."""
    if memory is None:
        return {
            "from the origin": slow,
            "with its index": indexed,
            "from memory": local,
            "resumed": resumed,
        }

    def limited(place: Site, name: str) -> Figures:
        with memory_group(memory) as group:
            return slow(place, name, group)

    return {f"in {memory // MB} MB": limited}


def hindrance(name: str) -> str | None:
    """Why a loader cannot be measured here, or None."""
    needs = KINDS[name].needs
    if needs and find_spec(needs) is None:
        return f"needs {needs}"
    try:
        python_of(KINDS[name].venv)
    except Failed as error:
        return f"its packages cannot be installed: {error}"
    return None


def measure(
    work: Path,
    *,
    quick: bool,
    names: Sequence[str] = tuple(KINDS),
    runs: int = RUNS,
    memory: int | None = None,
) -> list[Row]:
    """Measure some loaders; print a table of all, and return what Monarch is judged by.

    Args:
        quick: with a tenth of the Records.
        memory: bytes that each loader may have, or None.
    """
    if reason := countfs.missing():
        print(f"loaders are skipped: {reason}", file=sys.stderr, flush=True)
        return []
    chosen = []
    for name in names:
        if reason := hindrance(name):
            print(f"{name} is skipped: {reason}", file=sys.stderr, flush=True)
        else:
            chosen.append(name)
    with site(work, chosen, RECORDS // (QUICK if quick else 1)) as place:
        told = measure_all(place, chosen, runs, memory)
        size = int(np.load(place.origin.source / DIGESTS)["size"].sum())
    print_table(told, place.count, size)
    return list(goals(told, BYTES_PER_S, size)) if memory is None else []


def main() -> int:
    """Measure alone, without the other parts of the table."""
    options = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    options.add_argument("names", nargs="*", metavar="READER")
    options.add_argument("--quick", action="store_true", help="a tenth of the records")
    options.add_argument("--runs", type=int, default=RUNS)
    options.add_argument("--memory", type=int, metavar="MB", help="of each loader")
    chosen = options.parse_args()
    if unknown := set(chosen.names) - set(KINDS):
        options.error(f"no such reader: {', '.join(sorted(unknown))}")
    memory = chosen.memory * MB if chosen.memory else None
    with tempfile.TemporaryDirectory(prefix="monarch-bench-", dir="/dev/shm") as base:
        rows = measure(
            Path(base),
            quick=chosen.quick,
            names=chosen.names or list(KINDS),
            runs=chosen.runs,
            memory=memory,
        )
    if rows:
        print_rows(rows)
    return 0 if all(row.kept for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
