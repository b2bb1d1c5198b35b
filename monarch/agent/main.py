"""The agent process from its first line to its exit code."""

import asyncio
import errno
import logging
import os
import resource
from collections.abc import Callable
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Final

from monarch.agent.agent import Agent
from monarch.agent.bootstrap import Meeting, find_meeting
from monarch.agent.cluster import Cluster
from monarch.agent.launcher_pipe import Notifier
from monarch.agent.rundir import RunDirectory
from monarch.agent.segments import Segments
from monarch.agent.setup import Setup, make_setup, with_transit
from monarch.agent.shutdown import remove_tiers
from monarch.agent.tier_watch import prepare_tiers
from monarch.cluster import mesh_job, node_name
from monarch.config import RunOptions, run_directory, to_json
from monarch.errors import MonarchError

LOG_BYTES_MAX: Final = 2 << 20
"""Of agent.log; when it is full it becomes agent.log.1, and another one begins."""

log = logging.getLogger("monarch.agent")

Parse = Callable[[], tuple[RunOptions, list[str]]]


def serve(
    run_dir: Path, notifier: Notifier, parse: Parse, meeting: Meeting | None = None
) -> int:
    """Be the agent of a run directory; tell the launcher what prevents it.

    Args:
        parse: gives the options of `monarch run` and the program's argv.
        meeting: the other nodes, where they are not to be looked for.
    """
    try:
        options, command = parse()
        setup = make_setup(options, command, run_dir.name, os.environ)
        for warning in setup.warnings:
            notifier.warn(warning)
        if meeting is None:
            job = run_dir.name.removesuffix(f".{node_name(os.environ)}")
            hosts, here = setup.config.hosts, run_directory()
            job = mesh_job(job, hosts, options, os.environ, here)
            meeting = find_meeting(setup, job, os.environ, notifier)
        _hold(run_dir, setup, notifier, meeting)
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


def _hold(
    run_dir: Path, setup: Setup, notifier: Notifier, meeting: Meeting | None
) -> None:
    """Own the run directory and the Tiers while the agent lives."""
    run = RunDirectory(run_dir)
    if meeting is not None:
        setup = with_transit(setup, run_dir)
    try:
        _allow_descriptors()
        _open_log(run_dir, setup.config.log.level)
        run.write("config.json", to_json(setup.config))
        os.chdir("/")
        segments = Segments(run_dir)
        segments.create_first()
        setup = prepare_tiers(setup, run_dir, notifier.warn)
        if setup.transit is not None:
            setup.transit.prepare(locked=run_dir)
        asyncio.run(_live(setup, run, segments, notifier, meeting))
    except BaseException:
        # The launcher tells those beside it why, and needs the directory for it.
        remove_tiers(setup, run_dir)
        run.leave()
        raise
    run.remove()


def _lacks_room(error: Exception) -> bool:
    """Return whether the launcher's line says it all, and a log would find no room."""
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)


def _allow_descriptors() -> None:
    """One for each process of the job and each copy: the usual 1024 may be too few."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


async def _live(
    setup: Setup,
    run: RunDirectory,
    segments: Segments,
    notifier: Notifier,
    meeting: Meeting | None,
) -> None:
    cluster = Cluster(meeting, setup, notifier) if meeting is not None else None
    await Agent(setup, run, segments, notifier, cluster).live()


def _open_log(run_dir: Path, level: str) -> None:
    """Log into the run directory, which is memory: two files of bounded size."""
    handler = RotatingFileHandler(
        run_dir / "agent.log", maxBytes=LOG_BYTES_MAX, backupCount=1
    )
    logging.basicConfig(
        handlers=[handler],
        level=level.upper(),
        format="%(asctime)s %(levelname)s %(name)s %(message)s",
        force=True,
    )
