"""`monarch stage`: fills Tiers before a job, by agents without programs."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from monarch.config import RunOptions

EPILOG = """\b
Examples:
  monarch stage -c job.yaml --set retain=node
  srun -N4 --ntasks-per-node=1 monarch stage -c job.yaml
  mpiexec -n 4 -ppn 1 monarch stage --mpi -c job.yaml
  monarch stage --hosts node[0-3] -c job.yaml   # on each of them

Staged files are kept as `retain` specifies. A later `monarch run` with the same
datasets, tiers and `retain` adopts them after comparing their checksums. A tier in RAM
is lost when the node restarts. The exit status is 1 if a file could not be staged.
"""
MODES = ("auto", "partition", "replicate")


@click.command("stage", epilog=EPILOG)
@click.option(
    "-c", "--config", metavar="FILE", help="Read the configuration from FILE."
)
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="KEY=VALUE",
    help="Set one value, such as retain=7d.",
)
@click.option(
    "--data",
    multiple=True,
    metavar="PATH",
    help="Stage the files below PATH. May be given more than once; replaces the "
    "configured datasets.",
)
@click.option(
    "--tier",
    "tiers",
    multiple=True,
    metavar="KIND:CAPACITY[:PATH]",
    help="Stage into this tier, as in `monarch run`; replaces the configured tiers.",
)
@click.option(
    "--index", metavar="FILE", help="Load the index file FILE instead of scanning."
)
@click.option(
    "--report",
    metavar="FILE.json",
    help="Write the report to FILE.json (%j: job, %n: node, %t: time, %p: process id).",
)
@click.option(
    "--hosts",
    metavar="LIST",
    help="The nodes to stage on, as in `monarch run`. Run the same command on each.",
)
@click.option(
    "--secret-file",
    metavar="FILE",
    help="Read the secret of the nodes from FILE (32 bytes, mode 600).",
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
@click.pass_context
def stage(ctx: click.Context, /, **given: Any) -> None:
    """Copy the datasets into the tiers of this node, or of many nodes, before a job.

    The nodes are found as by `monarch run`. One of them reads each file from the origin
    and sends it to the others that keep it.
    """
    # The summary contains what an agent would log.
    logging.getLogger("monarch").addHandler(logging.NullHandler())
    from monarch.cli.stage_nodes import stage_as_launched, stage_by_mpi

    mode, mpi = given.pop("mode"), given.pop("mpi")
    options = _options(mode, given)
    ctx.exit(stage_by_mpi(options) if mpi else stage_as_launched(options))


def _options(mode: str | None, given: dict[str, Any]) -> RunOptions:
    """Return the options of an agent that stages; fill is always on."""
    from monarch.config import RunOptions

    settings = [*given.pop("settings"), "fill.enabled=true"]
    settings += [f"peers.mode={mode}"] if mode else []
    return RunOptions(settings=tuple(settings), **given)
