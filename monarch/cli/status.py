"""`monarch status`: what the agents of this user on this node are doing."""

import json
import os
from pathlib import Path
from typing import Any, Final

import click

NAMES_MAX: Final = 4


@click.command("status")
@click.option("--job", metavar="NAME", help="Ask only the agent of this job.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON line per agent.")
def status(job: str | None, as_json: bool) -> None:
    """Show what agents on this node do, and why files are not staged.

    Without --job, inside a job its own agent is asked, else all of this user.
    The exit status is 1 if no agent runs.
    """
    answers = [answer for run in living_runs(job) if (answer := _ask(run))]
    if not answers:
        raise SystemExit(1 if as_json else nobody(job))
    for answer in answers:
        click.echo(json.dumps(answer) if as_json else _describe(answer), nl=as_json)


def living_runs(job: str | None) -> list[Path]:
    """Return the run directories whose agent lives."""
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


def nobody(job: str | None) -> int:
    """Say that there is no agent to ask; return the exit code."""
    whose = "yours" if job is None else f"job {job!r}"
    click.echo(f"monarch: no agent of {whose} runs on this node", err=True)
    return 1


def _describe(answer: dict[str, Any]) -> str:
    from monarch.report import render

    living, files = answer["living"], answer["in_flight"]
    head = (
        f"{answer['run']}: {answer['state']}, agent {answer['pid']}, "
        f"{living} {'process' if living == 1 else 'processes'}, "
        f"{files} {'file' if files == 1 else 'files'} being copied"
    )
    lines = [head, *node_lines(answer.get("nodes", []))]
    return "\n".join([*lines, render(answer["report"])])


def node_lines(nodes: list[dict[str, Any]]) -> list[str]:
    """Return how the nodes of a job stand, those that are not there by name."""
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
    lines = [f"  {many(len(nodes), 'nodes')}: {counts or 'none is there'}"]
    lines += [
        f"  {state}: {listed(found[state], NAMES_MAX)}"
        for state in ("never joined", "left")
        if state in found
    ]
    return lines
