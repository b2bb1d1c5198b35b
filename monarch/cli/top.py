"""`monarch top`: watches the agents of this node, and the nodes of their jobs."""

from __future__ import annotations

import json
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import click

from monarch.cli.status import ask_agent, print_no_agent, running_agents
from monarch.cli.terminal import can_replace

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from monarch.report.format import Part

LIVE_S: Final = 1.0
LINES_S: Final = 10.0
"""The interval of frames below each other, where none can be replaced."""

EPILOG = """\b
Examples:
  monarch top
  monarch top --once --job train
  monarch top --json | jq .staged.share

On a terminal the figures are replaced once a second, until no agent is left or Ctrl-C
is pressed. Elsewhere (a pipe, TERM=dumb) they are printed below each other every 10 s.
Of a job with several nodes each node tells how it does: once a second up to 32 nodes,
less often in larger jobs; beyond 128 nodes only their states are known.
"""


@click.command("top", epilog=EPILOG)
@click.option("--job", metavar="NAME", help="Watch only the agent of this job.")
@click.option("--once", is_flag=True, help="Print the figures once.")
@click.option(
    "--interval",
    type=click.FloatRange(0.1, 3600),
    metavar="SECONDS",
    help="Time between two looks. Default: 1; for text off a terminal 10.",
)
@click.option(
    "--json", "as_json", is_flag=True, help="Print one line of JSON per agent and look."
)
def top(job: str | None, once: bool, interval: float | None, as_json: bool) -> None:
    """Watch how staging and the opens of programs go on.

    Without --job: the agent of the job in which the command runs, else all agents of
    the user on this node. The exit status is 1 if no agent is running.
    """
    first = _look(job)
    if not first:
        raise SystemExit(1 if as_json else print_no_agent(job))
    live = not (once or as_json) and can_replace(sys.stdout)
    every_s = interval or (LIVE_S if live or as_json else LINES_S)
    looks = iter([first]) if once else _looks(first, job, every_s)
    try:
        if live:
            _show_live(looks)
        else:
            _print(looks, as_json)
    except KeyboardInterrupt:
        return
    if not once:
        click.echo("monarch: no agent is running any more", err=True)


def _look(job: str | None) -> list[dict[str, Any]]:
    return [found for run in running_agents(job) if (found := ask_agent(run, "live"))]


def _looks(
    first: list[dict[str, Any]],
    job: str | None,
    every_s: float,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[list[dict[str, Any]]]:
    """Yield the answers of the agents, until no agent is left."""
    found = first
    while found:
        yield found
        sleep(every_s)
        found = _look(job)


def _print(looks: Iterator[list[dict[str, Any]]], as_json: bool) -> None:
    """Print each look below the previous one."""
    from monarch.cli.live_text import top_parts
    from monarch.cli.terminal import print_parts

    for number, found in enumerate(looks):
        if number and not as_json:
            click.echo()
        for place, figures in enumerate(found):
            if as_json:
                click.echo(json.dumps(figures))
                continue
            if place:
                click.echo()
            print_parts(top_parts(figures, ascii_only=not can_replace(sys.stdout)))
        sys.stdout.flush()


# -- a terminal -----------------------------------------------------------------------


def _show_live(looks: Iterator[list[dict[str, Any]]]) -> None:
    """Replace the figures on the terminal by those of each look."""
    from rich.live import Live

    from monarch.cli.terminal import make_console

    console = make_console()
    before = signal.signal(signal.SIGTERM, _leave)
    try:
        with Live(console=console, auto_refresh=False) as live:
            for found in looks:
                live.update(frame(found, console), refresh=True)
    except _TerminatedError:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.raise_signal(signal.SIGTERM)
    finally:
        signal.signal(signal.SIGTERM, before)


class _TerminatedError(Exception):
    """The view is to end; the cursor of its terminal is restored first."""


def _leave(number: int, frame: object) -> None:
    raise _TerminatedError


def frame(found: Sequence[dict[str, Any]], console: Console) -> RenderableType:
    """Return the figures of all agents for a terminal."""
    from rich.console import Group
    from rich.text import Text

    from monarch.cli.live_text import top_parts
    from monarch.cli.terminal import rich_parts

    ascii_only = not (console.encoding or "").startswith("utf")
    shown: list[RenderableType] = []
    for figures in found:
        parts: list[Part] = top_parts(figures, ascii_only=ascii_only)
        shown += [*rich_parts(parts, console.width), Text("")]
    now = time.strftime("%H:%M:%S")
    return Group(*shown, Text(f"{now}  Ctrl-C ends this view, not the job", "dim"))
