"""What one agent is to do: configuration, datasets and Tiers, all checked."""

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from monarch.background import begin
from monarch.catalog.unmanaged import Patterns
from monarch.config import Config, RunOptions, load, require_datasets, run_directory
from monarch.errors import MonarchError
from monarch.origins.index import Dataset
from monarch.report import check_report_file, fill_template
from monarch.tiers import (
    RamTier,
    Tier,
    TierSettings,
    check_places,
    open_pool,
    open_tier,
)
from monarch.tiers.probe import FAULTS, fault_of

CHECK_S = 5.0
"""A place may take as long to answer, even where programs wait for no catalog."""


@dataclass(frozen=True, slots=True)
class Setup:
    """A run as it was asked for, found possible on this machine.

    Attributes:
        transit: the pool for Files that other nodes keep; None where there are none.
        warnings: what the user should know although the job goes on.
    """

    config: Config
    command: tuple[str, ...]
    datasets: tuple[Dataset, ...]
    tiers: tuple[Tier, ...]
    quiet: bool
    umask: int
    transit: Tier | None = None
    warnings: tuple[str, ...] = ()


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
    faults = _faults(config, tiers)
    warnings = tuple(
        f"tier {tier.name} is not used: {faults[tier.settings.path]}"
        for tier in tiers
        if tier.settings.path in faults
    )
    tiers = tuple(tier for tier in tiers if tier.settings.path not in faults)
    roots = {key: root for key, root in _roots(config).items() if root not in faults}
    if not (tiers and roots):
        raise MonarchError(f"no {'dataset' if tiers else 'tier'} answers")
    check_places(roots, tiers)
    for tier in tiers:
        tier.resolve()
    if config.report.file is not None:
        check_report_file(fill_template(config.report.file, job_node, job_node))
    # What we make is private whatever the user's mask; the report is the user's.
    umask = os.umask(0o077)
    return Setup(
        config,
        tuple(command),
        _datasets(config),
        tiers,
        options.quiet,
        umask,
        warnings=warnings,
    )


def _roots(config: Config) -> dict[str, Path]:
    """Return the datasets by their configuration keys."""
    return {
        f"datasets[{number}].path": Path(dataset.path)
        for number, dataset in enumerate(config.datasets)
    }


def _faults(config: Config, tiers: Sequence[Tier]) -> dict[Path, str]:
    """Return the places that hang or fail, with the reason: the others are used."""
    limit_s = max(config.catalog.wait_max, CHECK_S)
    places = {*_roots(config).values(), *(tier.settings.path for tier in tiers)}
    looks = {path: begin(partial(_look_at, path)) for path in sorted(places)}
    deadline_s = time.monotonic() + limit_s
    faults: dict[Path, str] = {}
    for path, look in looks.items():
        try:
            why = look(max(0.0, deadline_s - time.monotonic()))
        except TimeoutError:
            why = f"no answer in {limit_s:g} s"
        if why:
            faults[path] = why
    return faults


def _look_at(path: Path) -> str:
    return fault_of(lambda: (os.stat(path), os.statvfs(path)), FAULTS)


def with_transit(setup: Setup, run: Path) -> Setup:
    """Add the pool of a node that has peers; it takes of the memory for RAM Tiers."""
    transit = open_pool(run, setup.config.peers.transit)
    transit.resolve()
    for tier in setup.tiers:
        if isinstance(tier, RamTier):
            tier.subtract(transit.capacity_bytes)
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
