"""The agent process: set-up, log, event loop and exit code."""

import asyncio
import errno
import logging
import os
import resource
from collections.abc import Callable
from dataclasses import dataclass
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Final

from monarch.agent.agent import Agent
from monarch.agent.bootstrap import Bootstrap, find_bootstrap
from monarch.agent.control import Notifier
from monarch.agent.lifetime import MakeLifetime, ProgramLifetime
from monarch.agent.segments import RunDirectory
from monarch.agent.setup import Setup, make_setup, with_pool
from monarch.agent.shutdown import remove_tiers
from monarch.agent.tier_watch import prepare_tiers
from monarch.cluster import node_name, shared_job
from monarch.config.request import Request
from monarch.errors import MonarchError

LOG_BYTES_MAX: Final = 2 << 20
"""The limit of agent.log, which is renamed to agent.log.1 when it is full."""

log = logging.getLogger("monarch.agent")

Ask = Callable[[], Request]


def serve(
    run_dir: Path,
    notifier: Notifier,
    ask: Ask,
    bootstrap: Bootstrap | None = None,
    fingerprint: int | None = None,
) -> int:
    """Run the agent of a run directory; return its exit code.

    Args:
        notifier: prints failures before it is closed.
        ask: returns the request for the agent.
        bootstrap: how to find the other nodes; None: by the environment.
        fingerprint: of the options, if the name of the job is random.
    """
    try:
        request = ask()
        setup = make_setup(request, run_dir.name, os.environ)
        for warning in (*setup.warnings, *setup.doubts):
            notifier.warn(warning)
        if bootstrap is None:
            job = shared_job(
                run_dir.name.removesuffix(f".{node_name(os.environ)}"),
                setup.config.hosts,
                fingerprint,
                request.file,
            )
            bootstrap = find_bootstrap(setup.config, job, os.environ, notifier)
        prepared = prepare(run_dir, setup, notifier, bootstrap)
        run(prepared, notifier, ProgramLifetime)
    except MonarchError as error:
        notifier.fail(error.exit_code, str(error))
        return error.exit_code
    except Exception as error:
        if not _lacks_room(error):
            log.exception("agent failed")
        notifier.fail(125, f"the agent failed: {type(error).__name__}: {error}")
        return 125
    finally:
        notifier.close()
    return 0


@dataclass(frozen=True, slots=True)
class Prepared:
    """An agent that has its run directory and its Tiers, but does nothing yet."""

    setup: Setup
    run: RunDirectory
    bootstrap: Bootstrap | None

    def undo(self) -> None:
        """Remove the Tiers and the agent's files.

        The launcher writes the reason into the directory, for others of the job.
        """
        remove_tiers(self.setup, self.run.path)
        self.run.clear()


def prepare(
    run_dir: Path, setup: Setup, notifier: Notifier, bootstrap: Bootstrap | None
) -> Prepared:
    """Claim the run directory of an agent, and make its Tiers.

    Raises:
        MonarchError: another agent has the directory, or no Tier works.
    """
    run = RunDirectory(run_dir)
    setup = with_pool(setup, run_dir, pool_at_once=bootstrap is not None)
    try:
        _allow_descriptors()
        _open_log(run_dir, setup.config.log.level)
        run.write("config.json", setup.config_text)
        os.chdir("/")
        run.segments.create_first()
        setup = prepare_tiers(setup, run_dir, notifier.warn)
        if setup.pool is not None:
            setup.pool.prepare(locked=run_dir)
    except BaseException:
        Prepared(setup, run, bootstrap).undo()
        raise
    return Prepared(setup, run, bootstrap)


def run(prepared: Prepared, notifier: Notifier, make: MakeLifetime) -> Agent:
    """Run a prepared agent to its end; return it.

    Raises:
        MonarchError: no Catalog exists.
    """
    try:
        agent = asyncio.run(_live(prepared, notifier, make))
    except BaseException:
        prepared.undo()
        raise
    prepared.run.remove()
    return agent


def _lacks_room(error: Exception) -> bool:
    """Return whether a file system is full: the log could not be written either."""
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)


def _allow_descriptors() -> None:
    """Raise the limit: each process of the job and each copy uses a descriptor."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


async def _live(prepared: Prepared, notifier: Notifier, make: MakeLifetime) -> Agent:
    setup, cluster = prepared.setup, None
    if prepared.bootstrap is not None:
        # Imported only if the job has other nodes.
        from monarch.agent.cluster import Cluster

        cluster = Cluster(prepared.bootstrap, setup, notifier)
    agent = Agent(setup, prepared.run, notifier, cluster, make)
    await agent.live()
    return agent


def _open_log(run_dir: Path, level: str) -> None:
    """Log into the run directory, which is in memory: two files of bounded size."""
    handler = RotatingFileHandler(
        run_dir / "agent.log", maxBytes=LOG_BYTES_MAX, backupCount=1
    )
    logging.basicConfig(
        handlers=[handler],
        level=level.upper(),
        format="%(asctime)s %(levelname)s %(name)s %(message)s",
        force=True,
    )
