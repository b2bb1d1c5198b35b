"""Other jobs of this user on this node, whose staged Files are linked, not copied.

They are looked for often at the start, and later once a second: only where run
directories of this job are, so that no other user's files are trusted.

Their Files use space that is not free, but this job needs no space for them. A Tier
counts it at the start only if all Files that they do not have fit into the free space:
then neither the order of staging nor the end of a job can fill the disk. A job that
evicts these Files for others may fill it: the Tier then shrinks to its contents.
"""

import asyncio
import contextlib
import itertools
import logging
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from monarch import native
from monarch.agent.namespace import Namespace, device_of_files
from monarch.agent.setup import Setup
from monarch.background import in_thread, log_failure
from monarch.catalog.presence import large_above, large_files
from monarch.cluster import find_run
from monarch.errors import UsageError
from monarch.native import ColdMode, node_name
from monarch.stager.capacity import footprints
from monarch.tiers.directory_lock import is_locked
from monarch.tiers.live_jobs import linkable_files, live_jobs, ready_files
from monarch.tiers.memory import read_memory
from monarch.units import format_size

PERIOD_S: Final = 1.0
FIRST_PERIOD_S: Final = 0.1
FIRST_LOOKS: Final = 50
"""Jobs of one array start together: at the first look, no other has a Catalog."""

log = logging.getLogger("monarch.agent")


class Siblings:
    """Reports the jobs that run beside this one to the data plane.

    Args:
        run: the run directory of this job.
        shares: whether to look for others at all.
    """

    def __init__(self, run: Path, engine: native.Engine, *, shares: bool) -> None:
        self._run = run
        self._engine = engine
        self._known: set[tuple[Path, int, int]] = set()
        self._engine_lock = threading.Lock()
        self._stopped = not shares

    def __repr__(self) -> str:
        return f"<Siblings {len(self._known)} seen beside {self._run.name}>"

    def begin(self) -> "asyncio.Task[None]":
        """Begin to look repeatedly, until stop() is called."""
        task = asyncio.create_task(self._run_on())
        task.add_done_callback(log_failure)
        return task

    async def _run_on(self) -> None:
        for looks in itertools.count():
            if self._stopped:
                return
            await asyncio.sleep(FIRST_PERIOD_S if looks < FIRST_LOOKS else PERIOD_S)
            await in_thread(self.look)

    def look(self) -> None:
        """Look for jobs that have begun since, and have a Catalog."""
        for run, catalog in () if self._stopped else self._others():
            if catalog in self._known or not is_locked(run):
                continue
            self._known.add(catalog)
            with self._engine_lock:
                if self._stopped:
                    return
                added = self._engine.add_sibling(os.fsencode(run))
            if added:
                log.info("sibling job run=%s", run)

    def stop(self) -> None:
        """Stop looking, because the engine ends."""
        with self._engine_lock:
            self._stopped = True

    def _others(self) -> Iterator[tuple[Path, tuple[Path, int, int]]]:
        """Yield the run directories of other jobs, and the identity of each Catalog."""
        for run in other_runs(self._run):
            with contextlib.suppress(OSError):
                seen = (run / "catalog").stat()
                yield run, (run, seen.st_ino, seen.st_mtime_ns)


def other_runs(run: Path) -> list[Path]:
    """Return the run directories beside that of a job, except those of the job.

    Another node that shares the directory runs the same job.
    """
    job = run.name.removesuffix(node_name(os.environ))
    name = "MONARCH_STAGING_RUN_DIR"
    environ = {name: os.environ[name]} if name in os.environ else {}
    try:
        return [one for one in find_run(environ, None) if not one.name.startswith(job)]
    except (UsageError, OSError):
        return []


def count_shared(setup: Setup, namespace: Namespace, run: Path, alone: bool) -> None:
    """Add the space of Files that will be linked from other jobs to the Tiers.

    Args:
        run: the run directory of this job.
        alone: whether no other node is in the job, now or later.
    """
    cold, config = setup.config.cold_open, setup.config
    jobs = live_jobs(other_runs(run)) if config.share == "on" else []
    sizes, roots = namespace.inventory.sizes, namespace.roots
    ready = ready_files(jobs, roots)
    if not ready:
        return
    large = large_files(sizes, large_above(ColdMode[cold.mode.upper()], cold.wait_max))
    links_large = alone and config.retain == "job"
    may = linkable_files(roots, large, links_large=links_large)
    rooms = footprints(sizes)
    for tier in setup.tiers:
        if not tier.can_link(len(read_memory())):
            continue
        mask = ready.pop(device_of_files(tier.directory), None)
        held = 0 if mask is None else int(rooms[mask & may].sum())
        if held and tier.add_shared(held, namespace.room_bytes):
            log.info("shared counted tier=%s size=%s", tier.name, format_size(held))
