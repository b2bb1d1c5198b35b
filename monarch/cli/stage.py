"""`monarch stage`: fills Tiers before a job, by agents without programs."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import click

from monarch.cli.options import MODES, shared_options

if TYPE_CHECKING:
    from monarch.config import RunOptions

EPILOG = """\b
Examples:
  monarch stage -c job.yaml --set retain=node
  srun -N4 --ntasks-per-node=1 monarch stage -c job.yaml
  mpiexec -n 4 -ppn 1 monarch stage --mpi -c job.yaml
  monarch stage --hosts node[0-3] -c job.yaml   # on each of them
  monarch stage --check -c job.yaml
  monarch stage --evict -c job.yaml

Staged files are kept as `retain` specifies. A later `monarch run` with the same
datasets, tiers and `retain` adopts them after comparing their checksums. A tier in RAM
is lost when the node restarts. `monarch list` shows what is retained. The exit status
is 1 if a file could not be staged; with --check if one is not staged, or is wrong. A
node that has staged a part with others checks its part.
"""


@click.command("stage", epilog=EPILOG)
@shared_options(
    *("config", "settings", "data", "tiers", "index", "report", "hosts", "secret_file")
)
@click.option(
    "--mpi",
    is_flag=True,
    help="Let the nodes of an MPI launch find each other by MPI, with one process on "
    "each node.",
)
@click.option(
    "--mode",
    type=click.Choice(MODES),
    help="On several nodes: partition: one copy in the job; replicate: a copy on every "
    "node; auto: as many copies as fit. Default: peers.mode of the configuration.",
)
@click.option("-q", "--quiet", is_flag=True, help="Print no summary.")
@click.option(
    "--check",
    is_flag=True,
    help="Stage nothing: compare what is retained on this node with the datasets, and "
    "print what lacks or is wrong.",
)
@click.option(
    "--evict",
    is_flag=True,
    help="Stage nothing: remove the retained copies of the datasets from the tiers of "
    "this node.",
)
@click.pass_context
def stage(ctx: click.Context, /, **given: Any) -> None:
    """Copy the datasets into the tiers of this node, or of many nodes, before a job.

    The nodes are found as by `monarch run`. One of them reads each file from the origin
    and sends it to the others that keep it.
    """
    # The summary contains what an agent would log.
    logging.getLogger("monarch").addHandler(logging.NullHandler())
    mode, mpi = given.pop("mode"), given.pop("mpi")
    check, evict = given.pop("check"), given.pop("evict")
    options = _options(mode, given)
    if check or evict:
        if mpi or (check and evict):
            raise click.UsageError("use --check, --evict or --mpi, not several", ctx)
        from monarch.cli import retained

        ctx.exit((retained.check if check else retained.evict)(options))
    from monarch.cli.stage_nodes import stage_as_launched, stage_by_mpi

    ctx.exit(stage_by_mpi(options) if mpi else stage_as_launched(options))


def _options(mode: str | None, given: dict[str, Any]) -> RunOptions:
    """Return the options of an agent that stages; fill is always on."""
    from monarch.config import RunOptions

    settings = [*given.pop("settings"), "fill.enabled=true"]
    settings += [f"peers.mode={mode}"] if mode else []
    return RunOptions(settings=tuple(settings), **given)
