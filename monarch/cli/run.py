"""`monarch run`: its options; the native launcher runs it."""

import os
import sys
import sysconfig
from pathlib import Path
from typing import Any

import click

from monarch.cli.options import shared_options
from monarch.errors import MonarchError

EPILOG = """\b
Examples:
  monarch run --data /pfs/imagenet --tier ram:8GiB -- python train.py
  monarch run --tier ram:40% --tier ssd:200GiB:/local -c job.yaml -- ./train
  srun monarch run -c job.yaml -- python train.py --epochs 90
  monarch run --hosts node[0-3] -c job.yaml -- python train.py   # on each

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
@shared_options(
    *("config", "settings", "data", "tiers", "job", "report", "index", "hosts"),
    "secret_file",
)
@click.option(
    "--strict", is_flag=True, help="Exit with 125 instead of running without Monarch."
)
@shared_options("quiet")
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
