"""The options that several verbs take, each defined once."""

from collections.abc import Callable
from typing import Any, Final, TypeVar

import click

MODES: Final = ("auto", "partition", "replicate")

_Command = TypeVar("_Command", bound="Callable[..., Any] | click.Command")

_OPTIONS: Final = {
    "config": click.option(
        "-c", "--config", metavar="FILE", help="Read the configuration from FILE."
    ),
    "settings": click.option(
        "--set",
        "settings",
        multiple=True,
        metavar="KEY=VALUE",
        help="Set one value, such as fill.concurrency=8 or tiers[0].capacity=40%.",
    ),
    "data": click.option(
        "--data",
        multiple=True,
        metavar="PATH",
        help="Stage the files below PATH. May be given more than once; replaces the "
        "configured datasets.",
    ),
    "tiers": click.option(
        "--tier",
        "tiers",
        multiple=True,
        metavar="KIND:CAPACITY[:PATH]",
        help="Stage into this tier: ram:8GiB, ram:40% or ssd:200GiB:/local. Fastest "
        "first; replaces the configured tiers.",
    ),
    "job": click.option(
        "--job", metavar="NAME", help="Name of the job of this program."
    ),
    "report": click.option(
        "--report",
        metavar="FILE.json",
        help="Write the report of the job to FILE.json (%j: job, %n: node, %t: time, "
        "%p: process id of the agent); to FILE.html: a page, with its JSON beside it.",
    ),
    "index": click.option(
        "--index", metavar="FILE", help="Load the index file FILE instead of scanning."
    ),
    "hosts": click.option(
        "--hosts",
        metavar="LIST",
        help="The nodes of the job, such as n[0-3],big:7001, if no scheduler names "
        "them. Run the same command on each node.",
    ),
    "secret_file": click.option(
        "--secret-file",
        metavar="FILE",
        help="Read the secret of the job from FILE (32 bytes, mode 600).",
    ),
    "quiet": click.option(
        "-q",
        "--quiet",
        is_flag=True,
        help="Print warnings only, no start line and no summary.",
    ),
}


def shared_options(*names: str) -> Callable[[_Command], _Command]:
    """Return a decorator that adds these options to a command, in this order."""

    def decorate(command: _Command) -> _Command:
        for name in reversed(names):
            command = _OPTIONS[name](command)
        return command

    return decorate
