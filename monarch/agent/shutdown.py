"""What an ending agent leaves: a report, a summary, and retained Tiers if asked."""

import contextlib
import logging
import math
import time
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from monarch.agent.control import Notifier
from monarch.agent.namespace import Namespace
from monarch.agent.setup import Setup
from monarch.agent.stats import Figures
from monarch.background import within
from monarch.native import Reason, ReplicaState, state_word
from monarch.report import (
    fill_template,
    merge,
    render,
    summarize,
    write_report,
)
from monarch.stager import ExtentDigests, Stager, describe, match
from monarch.stager.capacity import footprint
from monarch.tiers import Tier
from monarch.tiers.retain import Manifest, claim, keep, namespace_digest

REMOVE_S = 2.0

log = logging.getLogger("monarch.agent")


def tell_report(
    setup: Setup,
    figures: Figures,
    fragments: Mapping[int, bytes],
    notifier: Notifier,
) -> None:
    """Write the report and print it as the summary.

    Args:
        fragments: what other nodes have reported, by their numbers.
    """
    own = figures.snapshot()
    report = merge(own, fragments) if own.nodes else summarize(own)
    template = setup.config.report.file
    if template is not None:
        path = fill_template(template, figures.job, figures.node)
        try:
            found = write_report(path, report, mode=0o666 & ~setup.umask)
            if found != path:
                notifier.warn(f"others have told more of the job: this is in {found}")
        except OSError as error:
            notifier.warn(f"the report is not written: {path}: {error.strerror}")
            log.error("report failed path=%s error=%s", path, error)
    if not setup.quiet:
        notifier.say(render(report))


def remove_tiers(setup: Setup, run: Path, lost: Collection[int] = ()) -> None:
    """Remove what the Tiers of this job still hold; doing it twice does no harm.

    Args:
        lost: numbers of Tiers that may never answer: those are not waited for.
    """
    for number, tier in enumerate(setup.tiers):
        if number not in lost:
            tier.remove(held=run)
        else:
            with contextlib.suppress(TimeoutError):
                within(REMOVE_S, partial(tier.remove, run))


def end_namespace(
    setup: Setup, figures: Figures, extents: ExtentDigests | None
) -> None:
    """Withdraw every Replica from programs that live on, and retain it if asked."""
    stager, namespace = figures.stager, figures.namespace
    if stager is None or namespace is None or extents is None:
        return
    try:
        if setup.config.retain != "job":
            retain_all(stager, namespace, extents, setup.config.retain)
    except Exception:
        log.exception("tiers are not retained")
    words = stager.table.words
    words[:] = np.uint32(state_word(ReplicaState.ABSENT, reason=Reason.STOPPING))


def expiry_s(retain: str | float, now_s: float) -> float:
    """Return when what is retained now may go: at a time, or never by itself."""
    return now_s + retain if isinstance(retain, int | float) else math.inf


def claim_all(tiers: Sequence[Tier], roots: Sequence[bytes]) -> dict[int, Manifest]:
    """Take over what earlier jobs over these roots have left, by Tier number."""
    digest, found = namespace_digest(roots), {}
    for number, tier in enumerate(tiers):
        manifest = claim(tier.directory, tier.home, digest)
        if manifest is None:
            continue
        tier.count_in(sum(map(footprint, manifest.sizes.tolist())))
        found[number] = manifest
        log.info("retained claimed tier=%s files=%d", tier.name, len(manifest.names))
    return found


def offer(
    stager: Stager,
    namespace: Namespace,
    manifests: dict[int, Manifest],
    extents: ExtentDigests,
) -> None:
    """Let the Stager adopt what the manifests hold, and remove what nobody wants."""
    names = [
        (file, namespace.name_of(file)) for file in range(len(namespace.inventory))
    ]
    for number, manifest in manifests.items():
        tier = stager.tiers[number]
        files, strangers = match(manifest, names, stager.table.sizes, extents)
        for file in files:
            size = int(stager.table.sizes[file])
            if file in stager.adoption.tiers:
                strangers.add(namespace.name_of(file))
            elif stager.ledger.reserve_in(number, size):
                stager.adoption.tiers[file] = number
            else:
                strangers.add(namespace.name_of(file))
        for name in strangers:
            (tier.directory / name).unlink(missing_ok=True)


def retain_all(
    stager: Stager, namespace: Namespace, extents: ExtentDigests, retain: str | float
) -> None:
    """Set every Tier aside with a manifest of its ready Replicas."""
    digest = namespace_digest([root.path for root in namespace.roots])
    expires_s = expiry_s(retain, time.time())
    table = stager.table
    for number, tier in enumerate(stager.tiers):
        files = table.ready_in(number)
        files = files[np.equal(table.written[files], 0)]
        if not len(files) or not tier.directory.is_dir():
            continue
        manifest = describe(files, namespace.name_of, table.sizes, extents, expires_s)
        keep(tier.directory, tier.home, digest, manifest)
        log.info("tier retained tier=%s files=%d", tier.name, len(files))
