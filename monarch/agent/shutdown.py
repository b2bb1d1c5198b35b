"""What an ending agent leaves: a report, a summary, and retained Tiers if asked."""

import contextlib
import logging
from collections.abc import Collection, Mapping
from functools import partial
from pathlib import Path

from monarch.agent.launcher_pipe import Notifier
from monarch.agent.namespace import Namespace
from monarch.agent.retention import retain_all
from monarch.agent.setup import Setup
from monarch.agent.stats import AgentStats
from monarch.background import within
from monarch.report import (
    fill_template,
    merge,
    render,
    summarize,
    write_report,
)
from monarch.stager import ExtentDigests, Stager

REMOVE_S = 2.0

log = logging.getLogger("monarch.agent")


def tell_report(
    setup: Setup,
    stats: AgentStats,
    fragments: Mapping[int, bytes],
    notifier: Notifier,
) -> None:
    """Write the report and print it as the summary.

    Args:
        fragments: what other nodes have reported, by their numbers.
    """
    own = stats.snapshot()
    report = merge(own, fragments) if own.nodes else summarize(own)
    template = setup.config.report.file
    if template is not None:
        path = fill_template(template, stats.label.job, stats.label.node)
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
            tier.remove(locked=run)
        else:
            with contextlib.suppress(TimeoutError):
                within(REMOVE_S, partial(tier.remove, run))


def end_namespace(
    setup: Setup, stager: Stager, namespace: Namespace, extents: ExtentDigests
) -> None:
    """Withdraw every Replica from programs that live on, and retain it if asked."""
    try:
        if setup.config.retain != "job":
            retain_all(stager, namespace, extents, setup.config.retain)
    except Exception:
        log.exception("tiers are not retained")
    stager.replicas.end()
