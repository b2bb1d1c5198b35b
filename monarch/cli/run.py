"""`monarch run`: its options; the native launcher carries it out."""

import os
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from monarch.errors import MonarchError, UsageError

if TYPE_CHECKING:
    from monarch.config import RunOptions

EPILOG = """\b
Examples:
  monarch run --data /pfs/imagenet --tier ram:8GiB -- python train.py
  monarch run --tier ram:40% --tier ssd:200GiB:/local -c job.yaml -- ./train
  srun monarch run -c job.yaml -- python train.py --epochs 90
  monarch run --hosts node[0-3] -c job.yaml -- python train.py   # on each of them

The exit status is that of the program; 127 if it is not found, 126 if it cannot be
executed, 2 if an option or the configuration is not valid. If Monarch cannot start, the
program runs without it after one warning; with --strict the exit status is 125.
"""


@click.command(
    "run",
    epilog=EPILOG,
    context_settings={
        "allow_interspersed_args": False,
        "help_option_names": ["-h", "--help"],
    },
)
@click.option(
    "-c", "--config", metavar="FILE", help="Read the configuration from FILE."
)
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="KEY=VALUE",
    help="Set one value, such as fill.concurrency=8 or tiers[0].capacity=40%.",
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
    help="Stage into this tier: ram:8GiB, ram:40% or ssd:200GiB:/local. Fastest first; "
    "replaces the configured tiers.",
)
@click.option("--job", metavar="NAME", help="Name of the job of this program.")
@click.option(
    "--report",
    metavar="FILE.json",
    help="Write the report of the job to FILE.json (%j: job, %n: node, %t: time, %p: "
    "process id of the agent).",
)
@click.option(
    "--index", metavar="FILE", help="Load the index file FILE instead of scanning."
)
@click.option(
    "--hosts",
    metavar="LIST",
    help="The nodes of the job, such as n[0-3],big:7001, if no scheduler names them. "
    "Run the same command on each node.",
)
@click.option(
    "--secret-file",
    metavar="FILE",
    help="Read the secret of the job from FILE (32 bytes, mode 600).",
)
@click.option(
    "--strict", is_flag=True, help="Exit with 125 instead of running without Monarch."
)
@click.option(
    "-q",
    "--quiet",
    is_flag=True,
    help="Print warnings only, no start line and no summary.",
)
@click.option(
    "--wait",
    is_flag=True,
    help="Wait until the job has ended on this node. Without this option only the "
    "command that started the agent waits, because it prints the summary.",
)
@click.argument(
    "command", nargs=-1, type=click.UNPROCESSED, metavar="-- PROGRAM [ARG]..."
)
def run(**_options: Any) -> None:
    """Run PROGRAM with its dataset staged on this node.

    Options end at `--`, or at the first word that is not an option.
    """
    launcher = find_launcher()
    os.execv(launcher, [str(launcher), *_original_arguments()])


def parse_run_argv(argv: Sequence[str]) -> tuple["RunOptions", list[str]]:
    """Return the options and the program's argv of a `monarch run` command line.

    Args:
        argv: the arguments after `run`.
    """
    from monarch.config import RunOptions

    try:
        with run.make_context("monarch run", list(argv)) as ctx:
            given = dict(ctx.params)
    except click.exceptions.Exit:
        given = {"command": ()}
    except click.ClickException as error:
        raise UsageError(error.format_message()) from error
    command = list(given.pop("command"))
    if not command:
        raise UsageError("no program given: monarch run [OPTIONS] -- PROGRAM [ARG]...")
    return RunOptions(**given), command


def find_launcher() -> Path:
    """Return the native command `monarch` of this installation."""
    places = (
        Path(sys.executable).parent,
        Path(sysconfig.get_path("scripts")),
        Path(sysconfig.get_path("scripts", "posix_user")),
    )
    for place in places:
        launcher = place / "monarch"
        if os.access(launcher, os.X_OK):
            return launcher
    raise MonarchError(
        f"the native command is not installed next to {sys.executable}; install "
        "Monarch with pip"
    )


def _original_arguments() -> list[str]:
    return sys.argv[sys.argv.index("run") :]
