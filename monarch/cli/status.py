"""`monarch status`, `stop` and `hint`: send requests to the agents of this node."""

import json
import os
import time
from pathlib import Path
from typing import Any, BinaryIO, Final

import click

SCHEMA: Final = 1
"""The supported version of answers."""
STOP_SECONDS: Final = 10.0
POLL_SECONDS: Final = 0.02


@click.command("status")
@click.option("--job", metavar="NAME", help="Show only the agent of this job.")
@click.option(
    "--json", "as_json", is_flag=True, help="Print one line of JSON per agent."
)
def status(job: str | None, as_json: bool) -> None:
    """Show the state of agents on this node, and why files are not staged.

    Without --job: the agent of the job in which the command runs, else all agents of
    the user. The exit status is 1 if no agent is running.
    """
    answers = [a for run in running_agents(job) if (a := ask_agent(run, "status"))]
    if not answers:
        raise SystemExit(1 if as_json else print_no_agent(job))
    from monarch.cli.live_text import status_parts
    from monarch.cli.terminal import print_parts

    for answer in answers:
        if as_json:
            click.echo(json.dumps(answer))
        else:
            print_parts(status_parts(answer))


def running_agents(job: str | None) -> list[Path]:
    """Return the run directories with a running agent."""
    from monarch.cluster import find_run
    from monarch.tiers.directory_lock import is_locked

    return [run for run in find_run(os.environ, job) if is_locked(run)]


def ask_agent(run: Path, op: str) -> dict[str, Any] | None:
    """Return the answer of an agent; print the reason if it has none."""
    from monarch.agent.control import ask
    from monarch.errors import MonarchError

    try:
        answer = ask(run, {"op": op})
    except MonarchError as error:
        click.echo(f"monarch: {error}", err=True)
        return None
    if answer.get("schema") != SCHEMA:
        reason = "its agent runs another version of Monarch"
        click.echo(f"monarch: {run}: {answer.get('error', reason)}", err=True)
        return None
    return answer


def print_no_agent(job: str | None) -> int:
    """Print that no agent is running; return the exit code."""
    whose = "yours" if job is None else f"job {job!r}"
    click.echo(f"monarch: no agent of {whose} is running on this node", err=True)
    return 1


@click.command("stop")
@click.option("--job", metavar="NAME", help="Stop only the agent of this job.")
def stop(job: str | None) -> None:
    """Stop agents on this node and wait until they have ended.

    Running programs read the origin from then on. Without --job: the agent of the job
    in which the command runs, else all agents of the user. The exit status is 1 if no
    agent is running.
    """
    from monarch.agent.control import ask

    runs = running_agents(job)
    if not runs:
        raise SystemExit(print_no_agent(job))
    for run in runs:
        ask(run, {"op": "stop"})
    for run in runs:
        _wait_for_end(run)


def _wait_for_end(run: Path) -> None:
    from monarch.errors import MonarchError
    from monarch.tiers.directory_lock import is_locked

    deadline = time.monotonic() + STOP_SECONDS
    while is_locked(run):
        if time.monotonic() > deadline:
            raise MonarchError(
                f"{run}: the agent did not stop within {STOP_SECONDS:.0f} s"
            )
        time.sleep(POLL_SECONDS)
    click.echo(f"stopped {run}")


@click.command("hint")
@click.option(
    "--order",
    type=click.File("rb"),
    required=True,
    metavar="FILE",
    help='Paths in the order in which they will be opened, one on each line; "-": '
    "standard input. An empty one forgets the last.",
)
@click.option("--null", "-0", is_flag=True, help="A NUL ends each path, not a line.")
@click.option("--job", metavar="NAME", help="Tell only the agent of this job.")
def hint(order: BinaryIO, null: bool, job: str | None) -> None:
    """Name the files that programs of this node will open next, in their order.

    Monarch reads them ahead, into the tiers or as far as the pool has room. The order
    replaces the last one that this command has given. Without --job: the agent of the
    job in which the command runs, else all agents of the user. The exit status is 1 if
    no agent is running.
    """
    from monarch.agent.control import packed, send_hint

    end = b"\0" if null else b"\n"
    paths = packed(path for path in order.read().split(end) if path)
    runs = running_agents(job)
    if not runs:
        raise SystemExit(print_no_agent(job))
    for run in runs:
        click.echo(_hint_line(run, send_hint(run, paths, lasting=True)))


def _hint_line(run: Path, answer: dict[str, int | None]) -> str:
    paths, files = answer["paths"], answer["files"]
    if files is None:
        return f"{run}: {paths} paths, to be looked up once the datasets are indexed"
    return f"{run}: {files} of {paths} paths are files of the datasets"
