"""What one agent is to do: configuration, datasets and Tiers, all checked."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from monarch.config import Config, RunOptions, load, require_datasets, run_directory
from monarch.model import Patterns
from monarch.origins.index import Dataset
from monarch.report import check_report_file, fill_template
from monarch.tiers import RamTier, Tier, TierSettings, open_tier, open_transit
from monarch.tiers.checks import check_places


@dataclass(frozen=True, slots=True)
class Setup:
    """A run as it was asked for, found possible on this machine.

    Attributes:
        transit: the pool for Files that other nodes keep; None where there are none.
    """

    config: Config
    command: tuple[str, ...]
    datasets: tuple[Dataset, ...]
    tiers: tuple[Tier, ...]
    quiet: bool
    umask: int
    transit: Tier | None = None


def make_setup(
    options: RunOptions,
    command: list[str],
    job_node: str,
    environ: Mapping[str, str],
) -> Setup:
    """Load the configuration and hold it against the machine.

    Raises:
        UsageError: with a line for each thing that cannot be meant.
    """
    config = load(options, environ, run_directory()).config
    require_datasets(config)
    tiers = tuple(open_tier(s, job_node) for s in _tier_settings(config))
    roots = {
        f"datasets[{number}].path": Path(dataset.path)
        for number, dataset in enumerate(config.datasets)
    }
    check_places(roots, tiers)
    for tier in tiers:
        tier.resolve()
    if config.report.file is not None:
        check_report_file(fill_template(config.report.file, job_node, job_node))
    # What we make is private whatever the user's mask; the report is the user's.
    umask = os.umask(0o077)
    return Setup(config, tuple(command), _datasets(config), tiers, options.quiet, umask)


def with_transit(setup: Setup, run: Path) -> Setup:
    """Add the pool of a node that has peers; it takes of the memory for RAM Tiers."""
    transit = open_transit(run, setup.config.peers.transit)
    transit.resolve()
    for tier in setup.tiers:
        if isinstance(tier, RamTier):
            tier.count_out(transit.capacity_bytes)
            break
    return replace(setup, transit=transit)


def _tier_settings(config: Config) -> list[TierSettings]:
    return [
        TierSettings(
            key=f"tiers[{number}]",
            name=tier.name,
            kind=tier.kind,
            path=Path(tier.path),
            capacity=tier.capacity,
            headroom=tier.headroom,
        )
        for number, tier in enumerate(config.tiers)
    ]


def _datasets(config: Config) -> tuple[Dataset, ...]:
    return tuple(
        Dataset(
            path=dataset.path,
            patterns=Patterns(dataset.include, dataset.exclude, dataset.never),
            aliases=dataset.aliases,
            saved=Path(dataset.index) if dataset.index else None,
        )
        for dataset in config.datasets
    )
