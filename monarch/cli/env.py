"""`monarch env`: prints the directories and variables that a container needs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from monarch.cli.options import shared_options
from monarch.errors import MonarchError, UsageError

if TYPE_CHECKING:
    from monarch.config import Config

EPILOG = """\b
Examples, all within a job:
  monarch run -c job.yaml -- sh -c '
    eval "$(monarch env --apptainer)"
    exec apptainer exec image.sif python train.py'
  monarch run -c job.yaml -- sh -c '
    eval "docker run --rm $(monarch env --docker) image python train.py"'
  monarch run -c job.yaml -- sh -c '
    eval "bwrap --ro-bind ROOT / --dev /dev $(monarch env --bwrap) \\
      python train.py"'

Outside of a job it prints the same with $MONARCH_STAGING_RUN in place of the job's run
directory, and takes the tiers and datasets from the options and the configuration.
"""


@click.command("env", epilog=EPILOG)
@click.option(
    "--apptainer",
    "tool",
    flag_value="apptainer",
    help="Print shell commands for Apptainer and Singularity.",
)
@click.option(
    "--docker",
    "tool",
    flag_value="docker",
    help="Print options of `docker run` or `podman run`.",
)
@click.option(
    "--bwrap", "tool", flag_value="bwrap", help="Print options of bwrap (bubblewrap)."
)
@shared_options("config", "settings", "data", "tiers")
def env(tool: str | None, **given: Any) -> None:
    """Print the directories and variables that programs in a container need."""
    from monarch.cluster import RUN_VARIABLE
    from monarch.doctor import containers

    if tool is None:
        raise UsageError("name the container program: --apptainer, --docker or --bwrap")
    run = os.environ.get(RUN_VARIABLE)
    if run:
        needs = containers.needs_of(_config_of(Path(run)), run)
    else:
        needs = containers.needs_of(_load(given), containers.ANY_RUN)
        click.echo(
            "monarch: no job here: the shell in `monarch run -- sh -c ...` has to "
            "expand $MONARCH_STAGING_RUN",
            err=True,
        )
    if tool == "apptainer":
        click.echo("\n".join(containers.apptainer(needs)))
    else:
        words = {"docker": containers.docker, "bwrap": containers.bwrap}[tool](needs)
        click.echo(" ".join(words))  # on one line, which can be part of a command


def _config_of(run: Path) -> Config:
    """Return the configuration of the agent of a run directory."""
    from monarch.config import from_json

    try:
        return from_json((run / "config.json").read_text())
    except OSError as error:
        raise MonarchError(f"{run}: {error.strerror}; its agent has ended") from error


def _load(given: dict[str, Any]) -> Config:
    from monarch.config import RunOptions, current_directory, load

    return load(RunOptions(**given), os.environ, current_directory()).config
