"""The end of an agent: its report, and Tiers removed or retained for later jobs."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import os
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from monarch import report as reports
from monarch.agent.control import Notifier
from monarch.agent.lifetime import AgentParts, Lifetime
from monarch.agent.namespace import Namespace
from monarch.agent.rechecking import unconfirmed
from monarch.agent.retained_packs import adopt_packs, packs_of
from monarch.agent.setup import Setup
from monarch.agent.staging import Staging
from monarch.agent.stats import AgentStats
from monarch.background import in_thread, within
from monarch.metrics import AgentCounters
from monarch.stager import ExtentDigests, Stager, describe, footprint, match
from monarch.tiers import Tier
from monarch.tiers.retained import (
    Manifest,
    Origins,
    claim,
    namespace_digest,
    retain_directory,
)

DRAIN_S: Final = 1.0
EXIT_STATUS_S: Final = 0.5
"""A launcher that waits for its program reports its exit status at once."""
ENGINE_TIMEOUT_MS: Final = 2000
REMOVE_S: Final = 2.0

log = logging.getLogger("monarch.agent")


@dataclass(frozen=True, slots=True)
class Ended:
    """The results of an agent that has ended.

    Attributes:
        report: the report that this node has written, if any.
        retained: False if retaining the Tiers has failed.
    """

    report: reports.Report | None = None
    retained: bool = True


class Shutdown:
    """Ends an agent: its copies, the report, the Tiers.

    Args:
        run: the run directory.
        stats: returns the figures of the agent as they are now.
    """

    def __init__(
        self,
        parts: AgentParts,
        lifetime: Lifetime,
        run: Path,
        stats: Callable[[], AgentStats],
    ) -> None:
        self._parts = parts
        self._lifetime = lifetime
        self._run = run
        self._stats = stats

    def __repr__(self) -> str:
        return f"<Shutdown of {self._run.name}>"

    async def end(self, staging: Staging | None) -> Ended:
        """Carry out the steps at the end of a job.

        Args:
            staging: None if the agent has not reached this step.
        """
        setup, notifier = self._parts.setup, self._parts.notifier
        # The end of the job must not count as a failure of a peer.
        peers = self._stats().peers()
        if staging is not None:
            await self._end_copies(staging)
        report = await self._account(peers)
        retained = True
        if staging is not None and (
            error := await in_thread(end_namespace, setup, staging)
        ):
            retained = False
            notifier.warn(f"the tiers are not retained: {error}")
        lost = staging.stager.storage.lost_tiers() if staging is not None else []
        # A million names take seconds to remove: the heartbeat continues meanwhile.
        await in_thread(remove_tiers, setup, self._run, lost)
        return Ended(report, retained)

    async def _end_copies(self, staging: Staging) -> None:
        """Wait for running copies, so that their reads are counted; end the engine."""
        stager, engine = staging.stager, staging.engine
        stager.stop()
        deadline = time.monotonic() + DRAIN_S
        while stager.in_flight and time.monotonic() < deadline:
            stager.turn()
            await asyncio.sleep(0.002)
        self._parts.joining.stop()
        staging.siblings.stop()
        if (recorder := self._stats().recorder) is not None:
            recorder.look_last()
        asyncio.get_running_loop().remove_reader(engine.event_fd)
        await in_thread(engine.close, ENGINE_TIMEOUT_MS)

    async def _await_exit_status(self) -> None:
        """Wait until a launcher reports how its program ended; it may never do so."""
        processes = self._parts.processes
        deadline = time.monotonic() + EXIT_STATUS_S
        while processes.programs_seen and processes.exit_status() is None:
            if time.monotonic() >= deadline:
                return
            await asyncio.sleep(0.01)

    async def _account(
        self, peers: tuple[reports.PeerFigures, ...]
    ) -> reports.Report | None:
        """Write the report of this node, or one of all nodes with the others.

        Args:
            peers: the figures of peers when the job was over.
        """
        self._parts.processes.scan()
        await self._await_exit_status()
        cluster = self._parts.joining.take_cluster()
        fragments: Mapping[int, bytes] | None = {}
        report = None
        try:
            if cluster is not None:
                stats = replace(self._stats(), final_peers=peers)
                fragments = await cluster.gather(stats)
        except Exception:
            log.exception("reports are not gathered")
        try:
            if fragments is None:
                self._parts.notifier.done()
            elif self._lifetime.has_report or fragments:
                stats = replace(self._stats(), final_peers=peers)
                render, notifier = self._lifetime.render, self._parts.notifier
                parts = (self._parts.setup, stats, fragments, notifier, render)
                report = await in_thread(publish_report, *parts)
        except Exception:
            log.exception("report failed")
        if cluster is not None:
            await cluster.close()
        return report


# -- the report ---------------------------------------------------------------------


def publish_report(
    setup: Setup,
    stats: AgentStats,
    node_reports: Mapping[int, bytes],
    notifier: Notifier,
    render: Callable[[reports.Report], str],
) -> reports.Report:
    """Write the report, print its summary, and return it.

    Args:
        node_reports: the reports of other nodes, by their numbers.
        render: returns the summary of a report.
    """
    own = stats.snapshot()
    report = reports.merge(own, node_reports) if own.nodes else reports.summarize(own)
    template = setup.config.report.file
    if template is not None:
        path = reports.fill_template(template, stats.label.job, stats.label.node)
        try:
            found = reports.write_report(path, report, mode=0o666 & ~setup.umask)
            if found != path:
                notifier.warn(
                    f"a more complete report already exists; saved as {found}"
                )
        except OSError as error:
            notifier.warn(f"cannot write the report: {path}: {error.strerror}")
            log.error("report not written path=%s error=%s", path, error)
        except Exception as error:  # the summary is printed anyway
            notifier.warn(f"cannot make the page {path}: {error!r}")
            log.exception("page not made path=%s", path)
    if not setup.quiet:
        notifier.say(render(report))
    return report


# -- Tiers and Replicas -------------------------------------------------------------


def remove_tiers(setup: Setup, run: Path, lost: Collection[int] = ()) -> None:
    """Remove the Tiers of this job that exist; may be called twice.

    Args:
        lost: numbers of Tiers that may never answer: each has REMOVE_S at most.
    """
    for number, tier in enumerate(setup.tiers):
        if number not in lost:
            tier.remove(locked=run)
        else:
            with contextlib.suppress(TimeoutError):
                within(REMOVE_S, partial(tier.remove, run))


def end_namespace(setup: Setup, staging: Staging) -> str:
    """Set all Replicas absent, because programs may still run; retain the Tiers.

    Returns:
        The reason if they could not be retained, else "".
    """
    reason = ""
    try:
        if setup.config.retain != "job":
            retain_all(staging, setup.config.retain)
    except Exception as error:
        reason = str(error)
        log.exception("tiers not retained")
    staging.stager.replicas.end()
    return reason


# -- retained Tiers -----------------------------------------------------------------


def expiry_s(retain: str | float, now_s: float) -> float:
    """Return when a Tier that is retained now expires; inf: never."""
    return now_s + retain if isinstance(retain, int | float) else math.inf


def claim_all(tiers: Sequence[Tier], roots: Sequence[bytes]) -> dict[int, Manifest]:
    """Claim the Tiers that earlier jobs have retained of these roots, by number."""
    digest, found = namespace_digest(roots), {}
    for number, tier in enumerate(tiers):
        manifest = claim(tier.directory, tier.home, digest)
        if manifest is None:
            continue
        held = sum(map(footprint, manifest.sizes.tolist()))
        held += manifest.packs.stored_bytes if manifest.packs else 0
        tier.add_retained(held)
        found[number] = manifest
        log.info("retained claimed tier=%s files=%d", tier.name, manifest.files)
    return found


def offer(
    stager: Stager,
    namespace: Namespace,
    manifests: dict[int, Manifest],
    extents: ExtentDigests,
) -> None:
    """Offer retained Replicas to the Stager for adoption, and remove all others.

    Replicas of Files that have changed since a provisional index was made have the
    names of the old versions, and are removed.
    """
    names = [
        (file, namespace.name_of(file)) for file in range(len(namespace.inventory))
    ]
    for number, manifest in manifests.items():
        tier = stager.storage.tiers[number]
        files, unwanted = match(manifest, names, stager.replicas.sizes, extents)
        doubted = unconfirmed(namespace, files)
        unwanted |= {namespace.name_of(file) for file in doubted}
        files = [file for file in files if file not in doubted]
        stager.replicas.confirm(np.array(files, np.int64))
        for file in files:
            if not stager.offer(file, number):
                unwanted.add(namespace.name_of(file))
        for name in unwanted:
            (tier.directory / name).unlink(missing_ok=True)


def adopt_retained(
    staging: Staging,
    manifests: dict[int, Manifest],
    counters: AgentCounters,
    warn: Callable[[str], None],
) -> None:
    """Adopt packs and Replicas that earlier jobs have retained, Replicas once verified.

    Args:
        warn: called with unchanged packed Files that are not adopted.
    """
    offer(staging.stager, staging.namespace, manifests, staging.extents)
    adopt_packs(staging, manifests, counters, warn)


def retain_all(staging: Staging, retain: str | float) -> None:
    """Retain every Tier with a manifest of its ready Replicas and its pack files.

    Unverified Replicas of earlier jobs are included: the next job that adopts them
    verifies them.
    """
    stager, namespace = staging.stager, staging.namespace
    digest = namespace_digest([root.path for root in namespace.roots])
    expires_s = expiry_s(retain, time.time())
    about = _origins(stager, namespace)
    packing = {one.tier: one for one in staging.packing}
    for number, tier in enumerate(stager.storage.tiers):
        files, packs = _retainable(stager, number), None
        if number in packing and tier.directory.is_dir():
            packs = packs_of(tier, packing[number], namespace.inventory)
        holds = len(files) or (packs and packs.segments)
        if not holds or not tier.directory.is_dir():
            continue
        manifest = describe(
            *(files, namespace.name_of, stager.replicas.sizes),
            *(staging.extents, expires_s),
        )
        origins = replace(about, tier=tier.name)
        manifest = replace(manifest, origins=origins, packs=packs)
        retain_directory(tier.directory, tier.home, digest, manifest)
        log.info("tier retained tier=%s files=%d", tier.name, manifest.files)


def _retainable(stager: Stager, tier: int) -> npt.NDArray[np.int64]:
    """Return the Files with a Replica in a Tier that no program has written."""
    waiting = np.flatnonzero(stager.unverified == tier)
    held = np.union1d(stager.replicas.ready_in(tier), waiting)
    return stager.replicas.unwritten(held)


def _origins(stager: Stager, namespace: Namespace) -> Origins:
    """Return the origins of the Replicas of all Tiers."""
    policy, units = stager.policy, stager.policy.units
    return Origins(
        roots=tuple(os.fsdecode(root.path) for root in namespace.roots),
        tier="",
        retained_s=time.time(),
        catalog=namespace.digest,
        files=len(namespace.inventory),
        nodes=policy.nodes,
        kept_files=int(np.count_nonzero(policy.kept_whole)),
        left_files=int(np.count_nonzero(~units.all_of(policy.placed))),
    )
