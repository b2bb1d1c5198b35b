"""`monarch stop`: ends agents; their programs go on with the origin."""

import time
from pathlib import Path

import click

from monarch.cli.status import living_runs, nobody

PATIENCE_S = 10.0
SLICE_S = 0.02


@click.command("stop")
@click.option("--job", metavar="NAME", help="Stop only the agent of this job.")
def stop(job: str | None) -> None:
    """End agents on this node and wait until they have gone.

    Programs that still run read the origin from then on. Without --job, inside a job
    its own agent is ended, else all of this user. The exit status is 1 if none runs.
    """
    from monarch.agent.control import ask

    runs = living_runs(job)
    if not runs:
        raise SystemExit(nobody(job))
    for run in runs:
        ask(run, {"op": "stop"})
    for run in runs:
        _await_end(run)


def _await_end(run: Path) -> None:
    from monarch.errors import MonarchError
    from monarch.tiers.directory_lock import is_locked

    deadline = time.monotonic() + PATIENCE_S
    while is_locked(run):
        if time.monotonic() > deadline:
            raise MonarchError(f"{run}: the agent has not ended in {PATIENCE_S:.0f} s")
        time.sleep(SLICE_S)
    click.echo(f"stopped {run}")
