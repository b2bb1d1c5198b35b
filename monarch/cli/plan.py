"""`monarch plan`: predicts which node would store which part of a dataset."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from monarch.cli.options import MODES
from monarch.cli.plan_options import simulation_options
from monarch.cli.terminal import ScanProgress, print_line
from monarch.errors import UsageError

if TYPE_CHECKING:
    from monarch.catalog.inventory import MappedRoot
    from monarch.cli.plan_sharing import PlannedSharing
    from monarch.cli.plan_simulation import TierRoom
    from monarch.config import Config
    from monarch.origins.dataset import Indexed
    from monarch.origins.index_file import RootIndex
    from monarch.placement import Node, Placement
    from monarch.placement.units import Bytes

EPILOG = """\b
Examples:
  monarch plan --data /pfs/imagenet --nodes 4 --tier ram:40GiB --epochs 90
  monarch plan --index imagenet.monarch-index --nodes 64 --capacity 200GB
  monarch plan -c job.yaml --hosts big,small --capacity 400GiB,100GiB
  monarch plan --files 1281167 --size 140GB --simulate --origin-rate 2GB/s

Nothing is started and nothing is copied. With --index the dataset itself is not read.
Capacities in % and auto are those of this machine, assuming that all nodes are alike.
"""
NODES_MAX = 65536
EPOCHS_MAX = 1_000_000
FILES_MAX = 100_000_000


@click.command("plan", epilog=EPILOG)
@click.option(
    "-c", "--config", metavar="FILE", help="Read datasets and tiers from FILE."
)
@click.option(
    "--set", "settings", multiple=True, metavar="KEY=VALUE", help="Set one value."
)
@click.option(
    "--data",
    multiple=True,
    metavar="PATH",
    help="Plan for the files below PATH. May be given more than once.",
)
@click.option(
    "--index",
    "indexes",
    multiple=True,
    metavar="FILE",
    help="Plan for the files in the index file FILE. May be given more than once.",
)
@click.option(
    "--files",
    type=click.IntRange(1, FILES_MAX),
    metavar="N",
    help="Plan for N files of one size, which --size tells, instead of a dataset.",
)
@click.option("--size", metavar="SIZE", help="What these files have together.")
@click.option(
    "--nodes",
    type=click.IntRange(1, NODES_MAX),
    metavar="N",
    help="Number of nodes, instead of the configured hosts.",
)
@click.option("--hosts", metavar="LIST", help="Names of the nodes, such as n[0-3],big.")
@click.option(
    "--tier",
    "tiers",
    multiple=True,
    metavar="KIND:CAPACITY[:PATH]",
    help="A tier of each node, such as ram:8GiB, as in `monarch run`.",
)
@click.option(
    "--capacity",
    metavar="SIZE[,SIZE]...",
    help="Total capacity of a node's tiers, instead of tiers: one size for all nodes, "
    "or one for each.",
)
@click.option(
    "--mode",
    type=click.Choice(MODES),
    help="partition: one copy in the job; replicate: a copy on every node; auto: as "
    "many copies as fit. Default: peers.mode of the configuration.",
)
@click.option(
    "--epochs",
    type=click.IntRange(1, EPOCHS_MAX),
    metavar="E",
    default=1,
    show_default=True,
    help="Number of times that the job reads the dataset.",
)
@simulation_options
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def plan(as_json: bool, epochs: int, **options: Any) -> None:
    """Predict what each node would store, and how much is read from the origin."""
    from monarch.cli.plan_text import describe, plan_parts
    from monarch.cli.terminal import print_parts
    from monarch.placement.forecast import forecast

    config = _load(options)
    names = _names(options["nodes"], config)
    mode = options["mode"] or _mode(config)
    tiers = _tiers(options["capacity"], config)
    dataset = _dataset(options, config)
    sharing = _sharing(options, config, dataset) if len(names) == 1 else None
    if sharing is not None:
        tiers = sharing.rooms(tiers)
    pool = _pool_parts(tiers, config, len(names))
    tiers = [
        replace(tier, capacity_bytes=tier.capacity_bytes - part)
        for tier, part in zip(tiers, pool, strict=True)
    ]
    nodes = _cluster(names, options["capacity"], options["tiers"], tiers)
    copies = None if options["mode"] else config.peers.copies
    placement = _place(nodes, dataset, mode, copies)
    found = forecast(placement, dataset.sizes)
    description = describe(dataset.names, found, mode, placement.copies, epochs)
    if options["capacity"] is None:
        left = found.left_bytes > 0
        description["notes"] = _notes(config, sum(pool), left=left)
    if sharing is not None:
        sharing.describe(description)
    if dataset.links:
        description.setdefault("notes", []).append(f"names: {dataset.links}")
    parts = plan_parts(description)
    if options["simulate"]:
        from monarch.cli.plan_simulation import simulation, simulation_parts

        copies = config.fill.at_once if config.fill.enabled else 0
        simulated = simulation(options, found, tiers, epochs, copies)
        description["simulation"] = simulated
        parts += simulation_parts(simulated)
    if as_json:
        click.echo(json.dumps(description, indent=2))
    else:
        print_parts(parts)


def _notes(config: Config, pool: int, *, left: bool) -> list[str]:
    """Return notes on the configured Tiers that the numbers of a plan do not show.

    Args:
        pool: bytes that the Pool takes of the ram Tiers of a node.
        left: not all files fit.
    """
    from monarch.codec import PLAIN
    from monarch.tiers.tier import LRU_ADVICE
    from monarch.units import format_size

    used = config.used_tiers
    packed = [tier.name for tier in used if tier.codec != PLAIN or tier.codecs]
    evicts = [tier.name for tier in used if tier.eviction == "lru"]
    found = []
    if pool:
        size = format_size(pool)
        found.append(f"the pool takes {size} of the ram tiers of a node")
    if packed:
        found.append(
            f"tier {', '.join(packed)} is packed and may hold more than this plan "
            "says; see `monarch codecs`"
        )
    if evicts and left:
        found.append(f"tier {', '.join(evicts)}: {LRU_ADVICE}")
    return found


def _names(count: int | None, config: Config) -> Sequence[str]:
    """Return the names of the nodes."""
    from monarch.hostlist import read_hosts

    if count is None and config.hosts:
        return read_hosts(config.hosts).nodes
    return [f"node{number}" for number in range(count or 1)]


def _mode(config: Config) -> str:
    """Return the configured mode; UsageError if it is off."""
    if config.peers.mode == "off":
        raise UsageError("peers.mode is off, so every node works alone; use --mode")
    return config.peers.mode


def _load(options: dict[str, Any]) -> Config:
    from monarch.config import RunOptions, current_directory, load

    if options["data"] and options["indexes"]:
        raise UsageError("use --index or --data, not both")
    if (options["files"] is None) != (options["size"] is None):
        raise UsageError("use --files and --size together")
    if options["files"] and (options["data"] or options["indexes"]):
        raise UsageError("use --files, --data or --index, not several of them")
    if options["hosts"] is not None and options["nodes"] is not None:
        raise UsageError("use --nodes or --hosts, not both")
    asked = RunOptions(
        config=options["config"],
        settings=options["settings"],
        data=options["data"],
        tiers=options["tiers"],
        hosts=options["hosts"],
    )
    return load(asked, os.environ, current_directory()).config


# -- the cluster --------------------------------------------------------------------


def _cluster(
    names: Sequence[str],
    capacity: str | None,
    tiers: Sequence[str],
    rooms_of: Sequence[TierRoom],
) -> list[Node]:
    """Return the nodes with their capacities."""
    from monarch.placement import Node
    from monarch.report.format import many

    if capacity is None:
        rooms = [sum(tier.capacity_bytes for tier in rooms_of)]
    elif tiers:
        raise UsageError("use --capacity or --tier, not both")
    else:
        rooms = [_size("--capacity", text) for text in capacity.split(",")]
    if len(rooms) == 1:
        rooms *= len(names)
    if len(rooms) != len(names):
        raise UsageError(
            f"--capacity: {many(len(rooms), 'sizes')} for {many(len(names), 'nodes')}; "
            "use one for all nodes or one for each"
        )
    return [Node(name, room) for name, room in zip(names, rooms, strict=True)]


def _size(option: str, text: str) -> int:
    from monarch.units import UnitError, parse_size

    try:
        return parse_size(text)
    except UnitError as error:
        raise UsageError(f"{option}: {error}") from error


def _tiers(capacity: str | None, config: Config) -> list[TierRoom]:
    """Return the Tiers of a node: one, if the capacity of a node is given."""
    from monarch.cli.plan_simulation import TierRoom

    if capacity is not None:
        return [TierRoom("tiers", config.tiers[0].kind, 0)]
    return [
        TierRoom(tier.name, tier.kind, room)
        for tier, room in zip(config.used_tiers, _tier_bytes(config), strict=True)
    ]


def _pool_parts(tiers: Sequence[TierRoom], config: Config, nodes: int) -> list[int]:
    """Return the part of each Tier for the Pool, if Files pass through it in a job."""
    from monarch.codec import PLAIN
    from monarch.tiers import divide, pool_bytes

    packs = any(tier.codec != PLAIN for tier in config.used_tiers)
    rooms = [tier.capacity_bytes if tier.kind == "ram" else 0 for tier in tiers]
    if not any(rooms) or not (packs or nodes > 1):
        return [0] * len(rooms)
    return divide(pool_bytes(config.peers.transit, rooms), rooms)


def _tier_bytes(config: Config) -> list[int]:
    """Return the capacity of each Tier; shares are of this machine."""
    from monarch.tiers import TierSettings, open_tier
    from monarch.units import SizeKind

    rooms = []
    for number, tier in enumerate(config.used_tiers):
        if tier.capacity.kind is SizeKind.BYTES:
            rooms.append(tier.capacity.of(0))
            continue
        here = open_tier(TierSettings.of(number, tier), "plan")
        try:
            here.resolve()
        except UsageError as error:
            raise UsageError(
                f"{error}, or give the capacity of a node with --capacity"
            ) from None
        rooms.append(here.capacity_bytes)
    return rooms


def _sharing(
    options: dict[str, Any], config: Config, dataset: PlannedDataset
) -> PlannedSharing | None:
    """Return the dataset's Files in running jobs of this node; None: no Files."""
    from monarch.cli.plan_sharing import planned_sharing

    if options["capacity"] is not None or config.share != "on" or not dataset.roots:
        return None
    return planned_sharing(config, dataset.roots, dataset.sizes, dataset.large_above)


# -- the dataset --------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PlannedDataset:
    """The dataset to place: the sizes of Files, and the first Extent of each."""

    names: Sequence[str]
    sizes: Bytes
    extent_first: Bytes
    large_above: int
    digest: int
    links: str = ""
    roots: Sequence[MappedRoot] = ()


def _dataset(options: dict[str, Any], config: Config) -> PlannedDataset:
    """Return the Files of datasets or indexes, or those of --files and --size."""
    import numpy as np

    from monarch.catalog.inventory import Inventory, catalog_digest, extents_of
    from monarch.catalog.presence import large_above
    from monarch.catalog.segment import OpenPolicy, plan_catalog
    from monarch.native import CONSTANTS, ColdMode
    from monarch.origins.index_text import links_text

    cold = config.cold_open
    above_bytes = large_above(ColdMode[cold.mode.upper()], cold.wait_max)
    extent_bytes = CONSTANTS["EXTENT_BYTES"]
    if options["files"] is not None:
        each = _size("--size", options["size"]) // options["files"]
        sizes = np.full(options["files"], each, np.uint64)
        firsts = extents_of(sizes, extent_bytes)
        return PlannedDataset(["given sizes"], sizes, firsts, above_bytes, 0)
    indexes, roots = _indexed_roots(options["indexes"])
    if not roots:
        scanned = scanned_datasets(config)
        indexes = [one.index for one in scanned]
        roots = [one.mapped() for one in scanned]
    # This raises the errors of a job, such as for nested datasets.
    plan_catalog(roots, [], OpenPolicy(0, 0, 0))
    inventory = Inventory(roots, extent_bytes)
    names = [os.fsdecode(root.path) for root in roots]
    sizes, firsts = inventory.sizes, inventory.extent_first
    digest, links = catalog_digest(roots), links_text(indexes)
    return PlannedDataset(
        names, sizes, firsts, above_bytes, digest, links, tuple(roots)
    )


def _indexed_roots(
    files: Sequence[str],
) -> tuple[list[RootIndex], list[MappedRoot]]:
    """Return index files and their roots, without a check for freshness."""
    from monarch.catalog.inventory import MappedRoot
    from monarch.origins.index_file import read_index
    from monarch.origins.relocation import IndexUnusableError

    indexes, roots = [], []
    for file in files:
        try:
            saved = read_index(Path(file))
        except IndexUnusableError as error:
            raise UsageError(f"--index: {file}: {error}") from error
        indexes.append(saved)
        roots.append(MappedRoot(saved.root, (saved.root,), saved.block))
    return indexes, roots


def scanned_datasets(config: Config, *, fresh: bool = False) -> list[Indexed]:
    """Return the configured datasets with their indexes, scanned if needed.

    Args:
        fresh: look up each file, as a job does that adopts retained copies.
    """
    from monarch.config import require_datasets
    from monarch.config.request import index_directory
    from monarch.origins.dataset import Dataset, prepare_index, share_indexed
    from monarch.origins.named import name_roots
    from monarch.origins.saved_indexes import SavedIndexes

    require_datasets(config)
    reuse = config.catalog.reuse and not fresh
    saved = SavedIndexes(index_directory(os.environ)) if reuse else None
    made = []
    for named in name_roots(config.datasets, ()):
        dataset = Dataset.of(replace(named, index=None) if fresh else named, saved)
        progress = ScanProgress(dataset.path)
        try:
            indexed = prepare_index(
                dataset,
                threads=config.catalog.scan_threads,
                warn=lambda text: print_line(f"monarch: {text}"),
                progress=progress,
            )
        finally:
            progress.close()
        indexed.save()
        made.append(indexed)
    return share_indexed(made)


def scanned_roots(config: Config, *, fresh: bool = False) -> list[MappedRoot]:
    """Return the roots of the configured datasets; see scanned_datasets()."""
    return [one.mapped() for one in scanned_datasets(config, fresh=fresh)]


def _place(
    nodes: Sequence[Node], dataset: PlannedDataset, mode: str, copies: int | None
) -> Placement:
    """Place the Files as the agents of a job would."""
    from monarch.catalog.presence import large_files
    from monarch.placement import Copies, Mode, Placement, Units
    from monarch.stager.capacity import footprints

    large = large_files(dataset.sizes, dataset.large_above)
    units = Units.of(dataset.extent_first, large)
    rooms = footprints(dataset.sizes)
    wanted = Copies(Mode(mode), copies)
    return Placement(nodes, rooms, dataset.digest, wanted, units)
