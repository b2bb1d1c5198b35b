"""`monarch index`: scans datasets once, so that later jobs load instead of scanning."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from monarch.catalog.patterns import Patterns
from monarch.catalog.survey import Unmanaged
from monarch.errors import UsageError, shown
from monarch.units import format_count, format_duration, format_size

if TYPE_CHECKING:
    from monarch.config import Config
    from monarch.config.schema import Dataset
    from monarch.origins.index_file import RootIndex

QUIET_SECONDS = 1.0
"""How long a scan may take before it says how far it is."""
LINE_SECONDS = 10.0
"""How often it says so where the line cannot be written over."""


class ScanProgress:
    """Says on stderr how far a scan is, once it takes longer than a second."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._began = self._said = time.monotonic()
        self._terminal = sys.stderr.isatty()
        self._spoke = False

    def __call__(self, entries: int) -> None:
        """Take the number of names seen so far."""
        now = time.monotonic()
        interval = LINE_SECONDS if self._spoke and not self._terminal else QUIET_SECONDS
        if now - self._said < interval:
            return
        self._said = now
        rate = entries / (now - self._began)
        text = f"{self._what}: {format_count(entries)} names, {rate:,.0f}/s"
        start, end = ("\r\033[K", "") if self._terminal else ("", "\n")
        click.echo(f"{start}monarch: scanning {text}{end}", err=True, nl=False)
        self._spoke = True

    def close(self) -> None:
        """Clear the line that was written over and over."""
        if self._spoke and self._terminal:
            click.echo("\r\033[K", err=True, nl=False)


@click.command("index")
@click.argument("paths", nargs=-1, metavar="[PATH]...")
@click.option(
    "-o", "--output", metavar="FILE", help="Write the index of one PATH to FILE."
)
@click.option(
    "-c", "--config", metavar="FILE", help="Read datasets and patterns from FILE."
)
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", hidden=True)
@click.option(
    "--check", metavar="FILE", help="Only say whether FILE still describes its dataset."
)
@click.pass_context
def index(ctx: click.Context, /, paths: tuple[str, ...], **options: Any) -> None:
    """Save the index of the dataset PATH, or of every dataset of the configuration.

    A job whose configuration names the file (datasets[].index) or that is started with
    `monarch run --index FILE` loads it instead of scanning. With --check the exit code
    is 1 if a job would refuse it.
    """
    config = _load(options["config"], options["settings"])
    if options["check"]:
        ctx.exit(_check(Path(options["check"]), paths, config))
    datasets = _chosen(paths, config)
    if options["output"] and len(datasets) > 1:
        raise UsageError("--output: takes the index of one dataset; name its path")
    for dataset in datasets:
        _save(dataset, options["output"], config.catalog.scan_threads)


def _load(file: str | None, settings: Sequence[str]) -> Config:
    from monarch.config import RunOptions, current_directory, load

    options = RunOptions(config=file, settings=tuple(settings))
    return load(options, os.environ, current_directory()).config


def _chosen(paths: Sequence[str], config: Config) -> list[Dataset]:
    """Return the datasets of the configuration, or those that the paths name."""
    if not paths and not config.datasets:
        raise UsageError("no dataset: give its PATH, or a configuration that has one")
    configured = {os.path.realpath(d.path): d for d in config.datasets}
    if not paths:
        return list(config.datasets)
    return [
        configured.get(os.path.realpath(path)) or _plain_dataset(path) for path in paths
    ]


def _plain_dataset(path: str) -> Dataset:
    """Return a dataset that no configuration says anything about."""
    from pydantic import ValidationError

    from monarch.config.schema import Dataset

    try:
        return Dataset(path=os.path.abspath(path))
    except ValidationError as error:
        raise UsageError(f"dataset {path!r}: {error.errors()[0]['msg']}") from error


def _patterns(dataset: Dataset) -> Patterns:
    return Patterns(dataset.include, dataset.exclude, dataset.never)


def _save(dataset: Dataset, output: str | None, threads: int) -> None:
    from monarch.origins.dataset import scan_index
    from monarch.origins.index_file import save_index
    from monarch.origins.root import open_root

    root = open_root(dataset.path)
    file = Path(output or dataset.index or f"{Path(dataset.path).name}.monarch-index")
    began = time.monotonic()
    progress = ScanProgress(dataset.path)
    try:
        made = scan_index(root, _patterns(dataset), threads=threads, progress=progress)
    finally:
        progress.close()
    try:
        length = save_index(file, made)
    except OSError as error:
        raise UsageError(f"cannot write {file}: {error.strerror}") from error
    seconds = format_duration(time.monotonic() - began)
    click.echo(f"{_summary(made)}, {seconds} -> {file} ({format_size(length)})")


def _summary(made: RootIndex) -> str:
    block = made.block
    counts = (
        f"{shown(made.root)}: {format_count(block.file_count)} files, "
        f"{format_count(block.directory_count)} directories, "
        f"{format_size(int(block.sizes().sum()))}"
    )
    return counts + _left_out(made.unmanaged)


def _left_out(unmanaged: Mapping[Unmanaged, int]) -> str:
    reasons = [
        f"{format_count(count)} {reason.text}"
        for reason, count in sorted(unmanaged.items())
        if count
    ]
    return f"; left to the origin: {', '.join(reasons)}" if reasons else ""


def _check(file: Path, paths: Sequence[str], config: Config) -> int:
    """Say whether a job would use a saved index; return the exit code."""
    from monarch.origins.index_file import IndexUnusableError, check_fresh, read_index
    from monarch.origins.root import open_root

    if len(paths) > 1:
        raise UsageError("--check: takes the index of one dataset")
    try:
        saved = read_index(file)
        place = paths[0] if paths else os.fsdecode(saved.root)
        dataset = _chosen([place], config)[0]
        threads = config.catalog.scan_threads
        check_fresh(saved, open_root(place), _patterns(dataset), threads=threads)
    except IndexUnusableError as reason:
        click.echo(f"{file}: not usable: {reason}")
        return 1
    click.echo(f"{_summary(saved)}; {file} is up to date")
    return 0
