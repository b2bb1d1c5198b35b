"""`monarch agent`: the agent of one job, started by `monarch run` or before it."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn

import click

from monarch.cli.options import shared_options
from monarch.errors import MonarchError, UsageError

if TYPE_CHECKING:
    from monarch.agent.bootstrap import Bootstrap
    from monarch.config import Config

START_S: Final = 10.0
"""How long a launcher of the job may try to start an agent itself."""
EPILOG = """\b
Examples:
  monarch agent --job train -c job.yaml &
  monarch run --job train -- python train.py
  monarch run --job train -- python evaluate.py
\b
  mpiexec -n 4 -ppn 1 monarch agent --job train -c job.yaml &
  mpiexec -n 32 -ppn 8 monarch run --job train -- python train.py

`monarch run --job NAME` uses the agent if it is running, or starts within 3 s.
Programs may follow each other within `agent.linger` (10 s).
"""


@click.command(
    "agent", epilog=EPILOG, context_settings={"ignore_unknown_options": True}
)
@shared_options(
    *("config", "settings", "data", "tiers", "job", "report", "index", "hosts"),
    *("secret_file", "quiet"),
)
@click.argument("argv", nargs=-1, type=click.UNPROCESSED, metavar="")
def agent(argv: tuple[str, ...], **given: Any) -> None:
    """Run the agent of a job on this node in the foreground, until the job has ended.

    `monarch run` starts an agent by itself; use this verb to start it earlier. Under
    mpiexec, with one process on each node, the agents find each other by MPI. The agent
    ends `agent.linger` after the last program of the job, or by SIGTERM.
    """
    if argv:
        raise UsageError(f"unexpected argument {argv[0]!r}")
    _serve_job(given)


def _serve_job(given: dict[str, Any]) -> NoReturn:
    """Run the agent of a job in the foreground."""
    from monarch.agent.main import serve
    from monarch.agent.segments import StartLock
    from monarch.cli.terminal_notifier import TerminalNotifier
    from monarch.cluster import node_name, run_root, safe_name
    from monarch.config import RunOptions, current_directory, load, load_request

    options = RunOptions(**given)
    if options.job is None:
        raise UsageError(
            "--job NAME is required; use the same name in `monarch run --job NAME`"
        )
    config = load(options, os.environ, current_directory()).config
    node, job = node_name(os.environ), safe_name(options.job)
    bootstrap = _bootstrap(config, job)
    run_dir = run_root(os.environ) / f"{job}.{node}"
    start = StartLock(run_dir, START_S)
    notifier = TerminalNotifier(
        node if bootstrap else "",
        start.release,
        first=bootstrap is None or bootstrap.number == 0,
        quiet=options.quiet,
    )
    # An ordinary exit, because mpiexec treats any other as a failure of all ranks.
    ask = partial(load_request, options, [], os.environ)
    raise SystemExit(serve(run_dir, notifier, ask, bootstrap))


# -- MPI ----------------------------------------------------------------------------


def _bootstrap(config: Config, job: str) -> Bootstrap | None:
    """Return the bootstrap by MPI; None if another source names the nodes.

    A process that is not the first on its node exits here.
    """
    from monarch.cluster import (
        NodeList,
        UnnamedNodes,
        find_nodes,
        launched_by_mpi,
        node_name,
    )
    from monarch.mpi.launch import import_mpi

    alone = config.hosts or config.peers.mode == "off"
    if alone or not launched_by_mpi(os.environ):
        return None
    names = [node_name(os.environ)]
    found = find_nodes(os.environ, Path.read_text, config.hosts, names)
    if isinstance(found, NodeList):
        return None
    try:
        mpi = import_mpi()
    except UsageError:
        if isinstance(found, UnnamedNodes):
            raise
        return None
    return _bootstrap_by_mpi(mpi, config, job)


def _bootstrap_by_mpi(mpi: Any, config: Config, job: str) -> Bootstrap | None:
    """Exchange addresses by MPI and finalize MPI before the agent runs."""
    from monarch.mpi.launch import Launch
    from monarch.mpi.mpi_bootstrap import bootstrap_by_mpi
    from monarch.mpi.ranks import Ranks

    bootstrap = None
    with Launch(mpi, os.environ) as launch:
        try:
            if launch.acts and len(launch.nodes) > 1:
                bootstrap = bootstrap_by_mpi(Ranks(launch), job, config.peers)
        except MonarchError as error:
            # The error is the same on all nodes, so one of them prints it.
            raise error if launch.first else SystemExit(error.exit_code) from None
    if not launch.acts:
        raise SystemExit(0)
    return bootstrap
