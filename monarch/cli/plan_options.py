"""The options of `monarch plan --simulate`: the rates of a site, the reads of a job."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import click

READERS_MAX: Final = 4096
_WAYS: Final = ("sharded", "everything")

_OPTIONS: Final = (
    click.option(
        "--simulate",
        is_flag=True,
        help="Predict how long epochs take, and what limits them, with --origin-rate.",
    ),
    click.option(
        "--origin-rate",
        metavar="RATE",
        help="Simulate: what the origin gives to all nodes together, such as 20GB/s.",
    ),
    click.option(
        "--origin-latency",
        metavar="DURATION",
        default="1ms",
        show_default=True,
        help="Simulate: time of an open at the origin, and of a read before its bytes.",
    ),
    click.option(
        "--network-rate",
        metavar="RATE",
        default="1.25GB/s",
        show_default=True,
        help="Simulate: what a node can send, and receive, at the same time.",
    ),
    click.option(
        "--tier-rate",
        metavar="RATE[,RATE]...",
        help="Simulate: how fast each tier is read. Default: 4GB/s for ram, 1GB/s for "
        "ssd.",
    ),
    click.option(
        "--readers",
        type=click.IntRange(1, READERS_MAX),
        metavar="N",
        default=4,
        show_default=True,
        help="Simulate: processes of a node that read at the same time.",
    ),
    click.option(
        "--reads",
        type=click.Choice(_WAYS),
        default="sharded",
        show_default=True,
        help="Simulate: in an epoch each node reads its share of the files, or each "
        "reads everything.",
    ),
    click.option(
        "--compute",
        metavar="DURATION|RATE",
        default="0ms",
        show_default=True,
        help="Simulate: what a node computes, as the time of a file (2ms) or a rate "
        "(64MB/s); its readers read ahead meanwhile.",
    ),
    click.option(
        "--serial",
        is_flag=True,
        help="Simulate: each reader computes itself, before it reads the next file.",
    ),
)


def simulation_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options of a simulation to a verb."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command
