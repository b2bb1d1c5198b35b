"""`monarch agent`: the process that `monarch run` starts on each node."""

import logging
import os
from pathlib import Path

import click


@click.command("agent", context_settings={"ignore_unknown_options": True})
@click.option("--run-dir", required=True, type=click.Path(path_type=Path))
@click.option("--notify-fd", required=True, type=int)
@click.argument("argv", nargs=-1, type=click.UNPROCESSED)
def agent(run_dir: Path, notify_fd: int, argv: tuple[str, ...]) -> None:
    """Stage for one job on this node; started by `monarch run`, not by hand.

    ARGV are the arguments of `monarch run`.
    """
    from monarch.agent.main import serve
    from monarch.agent.notify import Notifier
    from monarch.cli.run import parse_run_argv

    code = serve(run_dir, Notifier(notify_fd), lambda: parse_run_argv(argv))
    logging.shutdown()
    # A scan that hangs on a dead origin has threads that no ordinary exit outlives.
    os._exit(code)
