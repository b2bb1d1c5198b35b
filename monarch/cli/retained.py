"""The copies of jobs on this node: `monarch list`, `stage --check`, `--evict`."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from monarch.cli.options import shared_options
from monarch.cli.terminal import StepProgress, print_line, print_lines, print_parts
from monarch.errors import printable
from monarch.report.format import Part, listed, many, percent
from monarch.units import format_count, format_duration, format_rate, format_size

if TYPE_CHECKING:
    from monarch.catalog.inventory import Inventory
    from monarch.config import Config, RunOptions
    from monarch.stager.verification import Verified
    from monarch.tiers.retained import Manifest, Retained

PATHS_MAX: Final = 4
LINES_MAX: Final = 10

EPILOG = """\b
Examples:
  monarch list
  monarch list -c job.yaml --json
  monarch list /local

Looked into are the tiers of the configuration, the run root, and each PLACE, the path
of a tier. The state tells whether a job can use a copy: `monarch stage --check` reads
the files and compares them. Running jobs have taken what they use: their copies are
listed as "in use". Files that jobs share count in each of them, as shared.
"""


# -- monarch list -------------------------------------------------------------------


@click.command("list", epilog=EPILOG)
@shared_options("config", "settings", "tiers")
@click.option("--json", "as_json", is_flag=True, help="Print a line of JSON per copy.")
@click.argument(
    "places", nargs=-1, metavar="[PLACE]...", type=click.Path(path_type=Path)
)
def list_retained(as_json: bool, places: tuple[Path, ...], **given: Any) -> None:
    """List the copies of datasets on this node: retained for later jobs, or in use."""
    from monarch.config import RunOptions, load, run_directory
    from monarch.errors import UsageError

    for place in places:
        if not place.is_dir():
            raise UsageError(f"{place}: no such directory")
    config = load(RunOptions(**given), os.environ, run_directory()).config
    rows = [_row(one, time.time()) for one in _retained(config, places)]
    rows += _live_rows(time.time())
    if as_json:
        for row in rows:
            click.echo(json.dumps(row))
    elif rows:
        print_parts(_list_parts(rows))
    else:
        click.echo("nothing is retained on this node")


def _retained(config: Config, places: Sequence[Path]) -> Iterator[Retained]:
    """Yield the retained copies in the Tiers and in other places."""
    from monarch.cluster import run_roots
    from monarch.native import homes
    from monarch.tiers.retained import retained_in

    found = {*run_roots(os.environ), *homes()}
    for path in (*places, *(Path(tier.path) for tier in config.tiers)):
        found.update(homes(path))
    for home in sorted(found):
        yield from retained_in(home)


def _row(one: Retained, now_s: float) -> dict[str, Any]:
    from monarch.tiers.links import Held

    manifest = one.manifest
    origins = manifest.origins if manifest is not None else None
    expires_s = manifest.expires_s if manifest is not None else now_s
    return {
        "job": None,
        "datasets": list(origins.roots) if origins else [],
        "tier": origins.tier if origins else None,
        "path": os.fspath(one.directory),
        "files": manifest.files if manifest is not None else 0,
        "bytes": one.size_bytes,
        "shared_bytes": Held.below(one.directory).shared_bytes,
        "stored_bytes": manifest.stored_bytes if manifest is not None else 0,
        "age_s": max(0.0, now_s - one.since_s),
        "expires_s": None if expires_s == float("inf") else expires_s - now_s,
        "missing": one.missing,
        "state": _state(one, expires_s, now_s),
    }


def _live_rows(now_s: float) -> Iterator[dict[str, Any]]:
    """Yield the copies that running jobs of this node use."""
    from monarch.cli.status import running_agents
    from monarch.tiers.links import Held
    from monarch.tiers.live_jobs import live_jobs

    for job in live_jobs(running_agents(None)):
        for tier in job.tiers:
            held = Held.below(tier.path)
            yield {
                "job": job.name,
                "datasets": [os.fsdecode(root.path) for root in job.roots],
                "tier": tier.path.name,
                "path": os.fspath(tier.path),
                "files": held.files,
                "bytes": held.size_bytes,
                "shared_bytes": held.shared_bytes,
                "stored_bytes": held.size_bytes,
                "age_s": max(0.0, now_s - job.began_s),
                "expires_s": None,
                "missing": 0,
                "state": "in use",
            }


def _state(one: Retained, expires_s: float, now_s: float) -> str:
    if one.manifest is None:
        return "damaged"
    if expires_s <= now_s:
        return "expired"
    return "incomplete" if one.missing else "retained"


def _list_parts(rows: Sequence[Mapping[str, Any]]) -> list[Part]:
    parts: list[Part] = []
    for row in rows:
        names = ", ".join(row["datasets"]) or "a dataset of an older version of Monarch"
        tier = f"tier {row['tier']}" if row["tier"] else "a tier"
        parts += [
            names,
            f"  {tier}: {many(row['files'], 'files')}, {_size(row)}, "
            f"{format_duration(row['age_s'])} old, {_left(row)}",
            f"  {row['path']}",
        ]
    return parts


def _size(row: Mapping[str, Any]) -> str:
    size, stored = row["bytes"], row["stored_bytes"]
    text = f" packed in {format_size(stored)}" if stored != size else ""
    if shared := row["shared_bytes"]:
        text += f" ({format_size(shared)} shared with other jobs)"
    return format_size(size) + text


def _left(row: Mapping[str, Any]) -> str:
    """Return the state, and how long it lasts."""
    if row["state"] == "incomplete":
        return f"{many(row['missing'], 'files')} missing"
    if row["job"] is not None:
        return f"in use by {row['job']}"
    if row["state"] != "retained":
        return str(row["state"])
    if row["expires_s"] is None:
        return "kept until it is evicted"
    return f"{format_duration(row['expires_s'])} left"


# -- the copies of the datasets of a configuration ------------------------------------


def _load(options: RunOptions) -> Config:
    from monarch.config import load, require_datasets, run_directory

    config = load(options, os.environ, run_directory()).config
    require_datasets(config)
    return config


def _of_tiers(config: Config, roots: Sequence[bytes]) -> list[Retained]:
    """Return the retained copies of datasets in the Tiers of a configuration."""
    from monarch.native import homes
    from monarch.tiers.retained import RETAINED, Retained, namespace_digest

    found, digest = [], namespace_digest(roots)
    places = [home for tier in config.tiers for home in homes(Path(tier.path))]
    for home in dict.fromkeys(places):
        path = home / f"{RETAINED}{digest}"
        if path.is_dir():
            found.append(Retained.at(path))
    return found


def _users(datasets: Sequence[str]) -> list[str]:
    """Return the jobs of this node whose agents have taken copies of datasets."""
    from monarch.agent.control import ask
    from monarch.cli.status import running_agents
    from monarch.errors import MonarchError

    wanted, jobs = {os.path.realpath(path) for path in datasets}, []
    for run in running_agents(None):
        try:
            answer = ask(run, {"op": "live"})
        except MonarchError:
            continue
        if wanted & {os.path.realpath(path) for path in answer.get("datasets", ())}:
            jobs.append(str(answer["job"]))
    return jobs


def _ignore(_lines: Sequence[str]) -> None:
    """Print nothing."""


def _names(config: Config) -> str:
    return ", ".join(dataset.path for dataset in config.datasets)


# -- monarch stage --evict ------------------------------------------------------------


def evict(options: RunOptions) -> int:
    """Remove the retained copies of the datasets; return the exit code."""
    from monarch.tiers.directory_lock import remove_tree

    config = _load(options)
    roots = [os.path.realpath(os.fsencode(one.path)) for one in config.datasets]
    code, found = 0, _of_tiers(config, roots)
    say = _ignore if options.quiet else print_lines
    for one in found:
        files = one.manifest.files if one.manifest is not None else 0
        amount = f"{many(files, 'files')}, {format_size(one.size_bytes)}"
        if remove_tree(one.directory):
            say([f"evicted {_names(config)} ({amount}) from {one.directory}"])
        else:
            print_line(f"monarch: {one.directory} cannot be removed")
            code = 1
    users = _users([dataset.path for dataset in config.datasets])
    if users:
        jobs = listed(users, PATHS_MAX)
        print_line(f"monarch: in use by {jobs}, which keeps its copies")
        return 1
    if not found:
        say([f"nothing of {_names(config)} is retained in these tiers"])
    return code


# -- monarch stage --check ------------------------------------------------------------


def check(options: RunOptions) -> int:
    """Compare the retained copies with the datasets; return the exit code."""
    import numpy as np

    from monarch.catalog.inventory import Inventory, catalog_digest
    from monarch.cli.plan import scanned_roots
    from monarch.native import CONSTANTS, replica_name
    from monarch.stager.packed_verification import Expected
    from monarch.stager.verification import verify

    config = _load(options)
    roots = scanned_roots(config, fresh=True)
    inventory = Inventory(roots, CONSTANTS["EXTENT_BYTES"])
    names = [
        replica_name(root.block.memory, root.path, entry)
        for root in roots
        for entry in root.block.first_entry.tolist()
    ]
    retained = _of_tiers(config, [root.path for root in roots])
    first = np.ascontiguousarray(inventory.extent_first, np.uint64)
    progress, began_s = _CheckProgress(_names(config)), time.monotonic()
    try:
        found = verify(Expected(names, inventory.sizes, first), retained, progress)
    finally:
        progress.close()
    manifests = [one.manifest for one in retained if one.manifest is not None]
    share = _share(manifests, catalog_digest(roots))
    seconds = time.monotonic() - began_s
    size = int(inventory.sizes[found.right].sum())
    amount = f"{format_count(len(found.right))} of {many(len(names), 'files')}"
    text = f"{_names(config)}: {amount} are staged and verified"
    text += f" ({format_size(size)} compared in {format_duration(seconds)})"
    lines = _faults(found, inventory, share)
    if lines and (users := _users([one.path for one in config.datasets])):
        lines.append(
            f"  in use by {listed(users, PATHS_MAX)}: see `monarch status` for the rest"
        )
    if not options.quiet:
        print_parts([printable(text), *map(printable, lines or share.lines)])
    return 1 if lines else 0


class _Share:
    """The share that this node is to keep, as far as the copies show.

    Attributes:
        files: how many Files; None: all.
        lines: the text on it.
    """

    def __init__(self) -> None:
        self.files: int | None = None
        self.lines: list[str] = []
        self.left_files = 0


def _share(manifests: Sequence[Manifest], catalog: int) -> _Share:
    """Return the share of this node if several nodes staged up-to-date copies."""
    share = _Share()
    for manifest in manifests:
        origins = manifest.origins
        if origins is None or origins.nodes < 2 or origins.catalog != catalog:
            continue
        share.files, share.left_files = origins.kept_files, origins.left_files
        share.lines = [
            f"  the share of this node of {many(origins.nodes, 'nodes')} that staged "
            f"them together: {many(origins.kept_files, 'files')}"
        ]
    return share


def _faults(found: Verified, inventory: Inventory, share: _Share) -> list[str]:
    """Return lines on missing and wrong files; nothing if all is well."""
    lines = []
    for file, fault in list(found.wrong.items())[:LINES_MAX]:
        lines.append(f"  wrong: {_path(inventory, file)}: {fault}")
    if len(found.wrong) > LINES_MAX:
        lines.append(f"  wrong: {many(len(found.wrong) - LINES_MAX, 'more files')}")
    held = len(found.right) + len(found.wrong)
    lacking = len(found.missing) if share.files is None else share.files - held
    if lacking > 0:
        text = f"  not staged: {many(lacking, 'files')}"
        if share.files is None:
            size = int(inventory.sizes[found.missing].sum())
            names = [_path(inventory, file) for file in found.missing[:LINES_MAX]]
            names += ["..."] * (len(found.missing) - len(names))
            text += f", {format_size(size)}: {listed(names, PATHS_MAX)}"
        lines.append(text)
    if share.left_files:
        lines.append(
            f"  complete on no node, without space: {many(share.left_files, 'files')}"
        )
    if lines and found.foreign:
        lines.append(
            f"  {many(found.foreign, 'copies')} of files that have changed since, or "
            "no longer exist"
        )
    return lines


def _path(inventory: Inventory, file: int) -> str:
    return os.fsdecode(inventory.path(file))


class _CheckProgress(StepProgress):
    """Shows how much has been compared."""

    def __init__(self, name: str) -> None:
        super().__init__(f"checking {name}")

    def __call__(self, done: int, total: int) -> None:
        """Show the compared bytes, out of all bytes."""
        rate = done / max(self.seconds, 1e-3)
        state = f"{percent(done / total if total else 1.0)} of {format_size(total)}"
        left = format_duration((total - done) / rate) if rate else "?"
        self.show(f"{state}, {format_rate(rate)}, {left} left", done, total)
