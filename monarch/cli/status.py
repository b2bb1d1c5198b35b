"""`monarch status`, `stop` and `hint`: ask the running agents of this node."""

import json
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final

import click

if TYPE_CHECKING:
    from monarch.report.format import Part

NAMES_MAX: Final = 4
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
    answers = [answer for run in running_agents(job) if (answer := _ask(run))]
    if not answers:
        raise SystemExit(1 if as_json else print_no_agent(job))
    from monarch.cli.terminal import print_parts

    for answer in answers:
        if as_json:
            click.echo(json.dumps(answer))
        else:
            print_parts(_parts(answer))


def running_agents(job: str | None) -> list[Path]:
    """Return the run directories with a running agent."""
    from monarch.cluster import find_run
    from monarch.tiers.directory_lock import is_locked

    return [run for run in find_run(os.environ, job) if is_locked(run)]


def _ask(run: Path) -> dict[str, Any] | None:
    from monarch.agent.control import ask
    from monarch.errors import MonarchError

    try:
        return ask(run, {"op": "status"})
    except MonarchError as error:
        click.echo(f"monarch: {error}", err=True)
        return None


def print_no_agent(job: str | None) -> int:
    """Print that no agent is running; return the exit code."""
    whose = "yours" if job is None else f"job {job!r}"
    click.echo(f"monarch: no agent of {whose} is running on this node", err=True)
    return 1


def _parts(answer: dict[str, Any]) -> list["Part"]:
    from monarch.report import report_parts

    living, files = answer["living"], answer["in_flight"]
    head = (
        f"{answer['run']}: {answer['state']}, agent {answer['pid']}, "
        f"{living} {'process' if living == 1 else 'processes'}, "
        f"{files} {'file' if files == 1 else 'files'} being copied"
    )
    lines = node_lines(answer.get("nodes", []))
    return [head, *lines, *report_parts(answer["report"])]


def node_lines(nodes: list[dict[str, Any]]) -> list[str]:
    """Return the states of the nodes of a job, with the names of the missing ones."""
    from monarch.report.format import listed, many, short_names

    if not nodes:
        return []
    names = short_names([node["name"] for node in nodes])
    found: dict[str, list[str]] = {}
    for node, name in zip(nodes, names, strict=True):
        state = node["phase"] if node["standing"] == "joined" else node["standing"]
        found.setdefault(state, []).append(name)
    there = [state for state in ("running", "starting", "finished") if state in found]
    counts = ", ".join(f"{len(found[state])} {state}" for state in there)
    lines = [f"  {many(len(nodes), 'nodes')}: {counts or 'none has joined'}"]
    lines += [
        f"  {state}: {listed(found[state], NAMES_MAX)}"
        for state in ("never joined", "left")
        if state in found
    ]
    return lines


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
