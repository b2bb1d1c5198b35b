"""`monarch doctor`: reports problems that prevent or slow Monarch on this node."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import click

from monarch.cli.options import shared_options

EPILOG = """\b
Examples:
  monarch doctor
  monarch doctor -c job.yaml --root /images/train-sandbox
  srun -N4 --ntasks-per-node=1 monarch doctor -c job.yaml
  monarch doctor --json

A finding is ok; or a note, which costs something in some jobs only; or a warning, which
makes jobs slower or serves less of them; or it prevents staging.
Exit status: 0 if nothing prevents staging, 1 if something does, 2 for options or a
configuration that cannot be used.
"""


@click.command("doctor", epilog=EPILOG)
@shared_options("config", "settings", "data", "tiers", "hosts")
@click.option(
    "--root",
    metavar="DIR",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="The root directory of a container: whether the shim loads in it.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_context
def doctor(
    ctx: click.Context, /, root: Path | None, as_json: bool, **given: Any
) -> None:
    """Tell what prevents or slows Monarch on this node, and what to do about it.

    Looks at the shim, kernel, limits, run directory, memory, tiers, datasets, and the
    way to other nodes. What it makes in tiers and rendezvous it removes at once.
    """
    from monarch.cli.terminal import print_parts
    from monarch.cluster import node_name
    from monarch.config import RunOptions, current_directory, load
    from monarch.doctor import examine
    from monarch.doctor.findings import as_json as to_json
    from monarch.doctor.findings import as_lines, is_healthy

    config = load(RunOptions(**given), os.environ, current_directory()).config
    findings = list(examine(config, os.environ, root))
    node = node_name(os.environ)
    if as_json:
        click.echo(json.dumps(to_json(findings, node), indent=2))
    else:
        print_parts(as_lines(findings, node))
    ctx.exit(0 if is_healthy(findings) else 1)
