"""`monarch index`: scans datasets and saves index files, which later jobs load."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from monarch.cli.terminal import ScanProgress, print_line
from monarch.errors import UsageError, shown
from monarch.units import format_duration, format_size

if TYPE_CHECKING:
    from monarch.config import Config
    from monarch.config.schema import Catalog, Dataset
    from monarch.origins.index_file import RootIndex
    from monarch.origins.named import Named


@click.command("index")
@click.argument("paths", nargs=-1, metavar="[PATH]...")
@click.option(
    "-o", "--output", metavar="FILE", help="Write the index of the PATH to FILE."
)
@click.option(
    "-c", "--config", metavar="FILE", help="Read datasets and patterns from FILE."
)
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", hidden=True)
@click.option(
    "--check", metavar="FILE", help="Only check whether FILE matches its dataset."
)
@click.option(
    "--list", "listing", is_flag=True, help="List the indexes that scans have saved."
)
@click.option("--forget", is_flag=True, help="Remove the saved indexes of each PATH.")
@click.option("--all", "everything", is_flag=True, help="With --forget: of all paths.")
@click.option("--json", "as_json", is_flag=True, help="With --list: print JSON.")
@click.pass_context
def index(ctx: click.Context, /, paths: tuple[str, ...], **options: Any) -> None:
    """Scan the dataset PATH, or every configured dataset, and save its index.

    A job loads the index file instead of scanning if its configuration names the file
    (datasets[].index), or with `monarch run --index FILE`. With --check the exit status
    is 1 if a job would not use the file.

    Every scan, of jobs too, leaves its index in monarch-staging/indexes in
    XDG_STATE_HOME or ~/.local/state; later jobs load it while no directory of the
    dataset has changed (catalog.reuse).
    """
    if options["listing"] or options["forget"]:
        _manage(paths, options)
        return
    _refuse(options, "everything", "as_json")
    config = _load(options["config"], options["settings"])
    if options["check"]:
        ctx.exit(_check(Path(options["check"]), paths, config))
    datasets = _chosen(paths, config)
    if options["output"] and len(datasets) > 1:
        raise UsageError("--output needs exactly one dataset; give its PATH")
    for dataset in datasets:
        _save(dataset, options["output"], config.catalog)


def _manage(paths: tuple[str, ...], options: dict[str, Any]) -> None:
    """List or remove saved indexes."""
    from monarch.cli.saved_indexes import forget, print_saved

    _refuse(options, "output", "config", "settings", "check")
    if options["forget"]:
        _refuse(options, "listing", "as_json")
        forget(paths, options["everything"])
        return
    _refuse(options, "everything")
    if paths:
        raise UsageError("--list takes no PATH")
    print_saved(options["as_json"])


def _refuse(options: dict[str, Any], *names: str) -> None:
    """Refuse options that cannot be combined with the others."""
    texts = {"listing": "list", "everything": "all", "as_json": "json"}
    for name in names:
        if options[name]:
            text = texts.get(name, name).replace("settings", "set")
            raise UsageError(f"--{text} cannot be used here; see monarch index --help")


def _load(file: str | None, settings: Sequence[str]) -> Config:
    from monarch.config import RunOptions, current_directory, load

    options = RunOptions(config=file, settings=tuple(settings))
    return load(options, os.environ, current_directory()).config


def _chosen(paths: Sequence[str], config: Config) -> list[Dataset]:
    """Return the configured datasets, or those of the paths."""
    if not paths and not config.datasets:
        raise UsageError("no dataset; give its PATH, or a configuration with datasets")
    configured = {os.path.realpath(d.path): d for d in config.datasets}
    if not paths:
        return list(config.datasets)
    return [
        configured.get(os.path.realpath(path)) or _plain_dataset(path) for path in paths
    ]


def _plain_dataset(path: str) -> Dataset:
    """Return a dataset with default patterns."""
    from pydantic import ValidationError

    from monarch.config.schema import Dataset

    try:
        return Dataset(path=os.path.abspath(path))
    except ValidationError as error:
        raise UsageError(f"dataset {path!r}: {error.errors()[0]['msg']}") from error


def _named(dataset: Dataset) -> Named:
    """Return the directory to scan for a dataset."""
    from monarch.origins.named import name_roots

    [named] = name_roots([dataset], ())
    return named


def _save(dataset: Dataset, output: str | None, catalog: Catalog) -> None:
    from monarch.config.request import index_directory
    from monarch.origins.dataset import scan_index
    from monarch.origins.index_file import save_index
    from monarch.origins.progress import Advance
    from monarch.origins.root import open_root
    from monarch.origins.saved_indexes import SavedIndexes

    named = _named(dataset)
    root = open_root(named.path)
    file = Path(output or dataset.index or f"{Path(dataset.path).name}.monarch-index")
    began = time.monotonic()
    progress = ScanProgress(dataset.path)
    try:
        made = scan_index(
            root,
            named.patterns,
            threads=catalog.scan_threads,
            progress=lambda names: progress(Advance(names)),
        )
    finally:
        progress.close()
    try:
        length = save_index(file, made)
    except OSError as error:
        raise UsageError(f"cannot write {file}: {error.strerror}") from error
    if catalog.reuse:
        SavedIndexes(index_directory(os.environ)).save(made)
    seconds = format_duration(time.monotonic() - began)
    print_line(
        f"{_summary(made)}, {seconds} -> {file} ({format_size(length)})", err=False
    )


def _summary(made: RootIndex) -> str:
    from monarch.origins.index_text import links_text, reasons_text
    from monarch.report.format import many

    block = made.block
    counts = (
        f"{shown(made.root)}: {many(block.file_count, 'files')}, "
        f"{many(block.directories_inside, 'directories')}, "
        f"{format_size(int(block.sizes().sum()))}"
    )
    others = {r: n for r, n in made.unmanaged.items() if not r.is_link}
    links, reasons = links_text([made]), reasons_text(others)
    counts += f"; {links}" if links else ""
    return f"{counts}; not staged: {reasons}" if reasons else counts


def _check(file: Path, paths: Sequence[str], config: Config) -> int:
    """Print whether a job would use an index file; return the exit code."""
    from monarch.origins.index_file import check_fresh, read_index
    from monarch.origins.relocation import IndexUnusableError
    from monarch.origins.root import open_root

    if len(paths) > 1:
        raise UsageError("--check needs at most one PATH")
    try:
        saved = read_index(file)
        place = paths[0] if paths else os.fsdecode(saved.root)
        dataset = _chosen([place], config)[0]
        threads = config.catalog.scan_threads
        named = _named(dataset)
        check_fresh(saved, open_root(named.path), named.patterns, threads=threads)
    except IndexUnusableError as reason:
        print_line(f"{file}: not usable: {reason}", err=False)
        return 1
    print_line(f"{_summary(saved)}; {file} is up to date", err=False)
    return 0
