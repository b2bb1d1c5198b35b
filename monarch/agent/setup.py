"""The setup of one agent: configuration, datasets and Tiers, all checked."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from monarch import report as reports
from monarch.background import begin
from monarch.catalog.patterns import Patterns, Selection
from monarch.codec import PLAIN
from monarch.config.request import Request, index_directory
from monarch.errors import MonarchError, UsageError
from monarch.origins.dataset import Dataset
from monarch.origins.named import Named, literal_head, name_roots
from monarch.origins.saved_indexes import SavedIndexes
from monarch.tiers import (
    Tier,
    TierSettings,
    check_places,
    doubts_about,
    give_to_pool,
    make_pool,
    open_tier,
)
from monarch.tiers.probe import FAULTS, fault_of

if TYPE_CHECKING:
    from monarch.config import Config

CHECK_S = 5.0
"""The minimum time for a path to answer, even if `catalog.wait_max` is shorter."""


@dataclass(frozen=True, slots=True)
class Setup:
    """A run as it was configured, checked on this machine.

    Attributes:
        config_text: the configuration as canonical JSON.
        pool: the Pool for Files that pass through this node.
        whole: selects the Files whose opens wait for the whole File, if it is large.
        pool_at_once: whether Files pass through the Pool from the start: those of other
            nodes, or of packed Tiers.
        warnings: for the user, about parts that cannot be used.
        doubts: warnings about Tiers in doubtful places, the same on all nodes.
    """

    config: Config
    config_text: str
    command: tuple[str, ...]
    datasets: tuple[Dataset, ...]
    tiers: tuple[Tier, ...]
    quiet: bool
    umask: int
    whole: Selection
    pool: Tier | None = None
    pool_at_once: bool = False
    warnings: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()


def make_setup(request: Request, job_node: str, environ: Mapping[str, str]) -> Setup:
    """Check a configuration on this machine.

    Raises:
        UsageError: with one line for each value that is not valid here.
    """
    config = request.config
    whole = _whole_names(config)
    tiers = tuple(
        open_tier(TierSettings.of(number, tier), job_node)
        for number, tier in enumerate(config.used_tiers)
    )
    faults = _faults(config, tiers)
    warnings = tuple(
        f"tier {tier.name} is not used: {faults[tier.settings.path]}"
        for tier in tiers
        if tier.settings.path in faults
    )
    tiers = tuple(tier for tier in tiers if tier.settings.path not in faults)
    named = name_roots(config.datasets, [str(path) for path in faults])
    roots = {
        f"datasets[{one.keys[0]}].path": Path(one.path)
        for one in named
        if Path(one.path) not in faults
    }
    if not (tiers and roots):
        raise MonarchError(f"no {'dataset' if tiers else 'tier'} is reachable")
    check_places(roots, tiers)
    doubts = doubts_about([tier.settings for tier in tiers], roots.values())
    if unused := config.tiers[len(config.used_tiers) :]:
        names = ", ".join(tier.name for tier in unused)
        doubts.append(f"not used because of placement: first_level_only: {names}")
    for tier in tiers:
        tier.resolve()
    if config.report.file is not None:
        reports.check_report_file(
            reports.fill_template(config.report.file, job_node, job_node),
            config.report.file,
        )
    _check_metrics(config)
    # All files of the agent are private; the report has the mode that the user expects.
    umask = os.umask(0o077)
    return Setup(
        config,
        request.text,
        request.command,
        _datasets(named, config, environ),
        tiers,
        request.quiet,
        umask,
        whole,
        warnings=warnings,
        doubts=tuple(doubts),
    )


def _whole_names(config: Config) -> Selection:
    """Return the names of Files whose opens wait until they are staged whole."""
    try:
        return Selection(Patterns(include=config.cold_open.whole))
    except UsageError as error:
        raise UsageError(f"cold_open.whole: {error}") from error


def _faults(config: Config, tiers: Sequence[Tier]) -> dict[Path, str]:
    """Return the paths that hang or fail, with the reason; the others are used."""
    limit_s = max(config.catalog.wait_max, CHECK_S)
    paths = {Path(literal_head(dataset.path)) for dataset in config.datasets}
    paths |= {tier.settings.path for tier in tiers}
    probes = {path: begin(partial(_probe, path)) for path in sorted(paths)}
    deadline_s = time.monotonic() + limit_s
    faults: dict[Path, str] = {}
    for path, probe in probes.items():
        try:
            reason = probe(max(0.0, deadline_s - time.monotonic()))
        except TimeoutError:
            reason = f"no answer in {limit_s:g} s"
        if reason:
            faults[path] = reason
    return faults


def _probe(path: Path) -> str:
    return fault_of(lambda: (os.stat(path), os.statvfs(path)), FAULTS)


def with_pool(setup: Setup, run: Path, *, pool_at_once: bool) -> Setup:
    """Add the Pool, which is a part of the ram Tiers.

    If Files pass through it from the start, its bytes are subtracted from these Tiers
    at once, else only when a program sends hints.
    """
    pool_at_once |= any(tier.settings.codec != PLAIN for tier in setup.tiers)
    pool = make_pool(run, setup.config.peers.transit, setup.tiers)
    if pool_at_once:
        give_to_pool(pool.capacity_bytes, setup.tiers)
    return replace(setup, pool=pool, pool_at_once=pool_at_once)


def without_pool(setup: Setup) -> Setup:
    """Return the capacity of the Pool to the ram Tiers, as no File passes through it.

    It is subtracted again if a program sends hints.
    """
    for tier in setup.tiers:
        tier.take_from_pool()
    return replace(setup, pool_at_once=False)


def _datasets(
    named: Sequence[Named], config: Config, environ: Mapping[str, str]
) -> tuple[Dataset, ...]:
    # Retained Replicas are matched by the attributes of files: these are looked up.
    reuse = config.catalog.reuse and config.retain == "job"
    saved = SavedIndexes(index_directory(environ)) if reuse else None
    return tuple(Dataset.of(one, saved) for one in named)


def _check_metrics(config: Config) -> None:
    """Refuse metrics that cannot be exported."""
    wanted = config.metrics
    if wanted.port is None and wanted.textfile is None:
        return
    if find_spec("prometheus_client") is None:
        raise UsageError(
            "metrics need the package prometheus-client: "
            "pip install 'monarch-staging[metrics]'"
        )
    if wanted.textfile is None:
        return
    path = Path(wanted.textfile)
    if path.suffix != ".prom":
        raise UsageError(f"metrics.textfile: {path} must end in .prom")
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise UsageError(f"metrics.textfile: {path.parent} is not a writable directory")
