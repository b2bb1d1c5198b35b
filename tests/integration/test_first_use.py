"""What people meet in their first runs: each cause is named, with its remedy."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from monarch.catalog.patterns import Patterns
from monarch.origins import walk
from monarch.origins.dataset import scan
from monarch.origins.root import open_root
from support.dataset import Dataset

SLOW_NAMES = 150

READ = "import sys\nfor path in sys.argv[2:]: open(path, sys.argv[1]).read()"


@dataclass(frozen=True, slots=True)
class Told:
    """What a run has told: the words as one line, and the report."""

    status: int
    text: str
    report: dict[str, Any]


@pytest.fixture
def run(monarch_command: Path, run_root: Path, tmp_path: Path) -> Callable[..., Told]:
    """A function that runs a program under Monarch with options."""
    file = tmp_path / "report.json"

    def begin(options: list[str | Path], *program: str | Path) -> Told:
        done = subprocess.run(
            [monarch_command, "run", "--report", file, *options, "--", *program],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        report = json.loads(file.read_text()) if file.exists() else {}
        return Told(done.returncode, " ".join(done.stderr.split()), report)

    return begin


def read_all(paths: list[Path], mode: str = "rb") -> list[str | Path]:
    """A program that opens these files in a mode and reads them."""
    return [sys.executable, "-c", READ, mode, *paths]


def below(root: Path, dataset: Dataset) -> list[Path]:
    """The files of a dataset by another name of its root."""
    return [root / path.relative_to(dataset.root) for path in dataset.paths]


# -- a dataset by another name ------------------------------------------------------


@contextmanager
def bound(source: Path, target: Path) -> Iterator[None]:
    target.mkdir()
    subprocess.run(["mount", "--bind", source, target], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", target], check=True)


def advice(alias: Path, dataset: Dataset) -> str:
    return f"add {alias} to `aliases` of the dataset {dataset.root}: its files were"


def test_dataset_read_by_a_symbolic_link_names_the_alias_to_add(
    run, dataset, tmp_path
) -> None:
    link = tmp_path / "link"
    link.symlink_to(dataset.root)

    told = run(["--data", dataset.root], *read_all(below(link, dataset)))

    assert advice(link, dataset) in told.text
    (row,) = told.report["elsewhere"]
    assert (row["dataset"], row["alias"]) == (str(dataset.root), str(link))
    assert row["example"].startswith(f"{link}/")


def test_the_alias_that_was_named_serves_the_dataset(run, dataset, tmp_path) -> None:
    link = tmp_path / "link"
    link.symlink_to(dataset.root)
    aliases = ["--set", f"datasets.0.aliases=[{link}]"]

    told = run(
        ["--data", dataset.root, *aliases],
        *read_all(below(link, dataset)),
    )

    assert told.report["elsewhere"] == []
    assert told.report["hits"]["opens"] == len(dataset.paths)


@pytest.mark.root
def test_dataset_read_by_a_bind_mount_names_the_alias_to_add(
    run, dataset, tmp_path
) -> None:
    mounted = tmp_path / "mounted"
    with bound(dataset.root, mounted):
        names = [path.relative_to(dataset.root) for path in dataset.paths]
        told = run(
            ["--data", dataset.root],
            *("sh", "-c", 'cd "$0"; cat "$@" >/dev/null', mounted, *names),
        )

    assert advice(mounted, dataset) in told.text


def test_file_of_a_dataset_by_a_link_of_its_own_names_no_alias(
    run, dataset, tmp_path
) -> None:
    other = tmp_path / "other"
    os.symlink(dataset.paths[0], other)

    told = run(["--data", dataset.root], *read_all([other]))

    assert f"{other} is a file of {dataset.root}; add the directory" in told.text


# -- the scan ------------------------------------------------------------------------


def test_scan_progress_moves_within_one_slow_directory(
    mount_counted, tmp_path, monkeypatch
) -> None:
    """As it does for people: they see the count four times a second."""
    source = tmp_path / "flat"
    source.mkdir()
    for number in range(SLOW_NAMES):
        (source / str(number)).touch()
    view = mount_counted(source, stat_us=20_000)
    monkeypatch.setattr(walk, "PROGRESS_SECONDS", 0.1)
    seen: list[int] = []

    scan(open_root(str(view.root)), Patterns(), threads=2, progress=seen.append)

    moving = seen[seen.index(next(filter(None, seen))) :]
    stood = sum(one == other for one, other in pairwise(moving))
    assert seen[-1] == SLOW_NAMES
    assert len(moving) > 10
    assert stood <= len(moving) // 4
