"""`monarch report`: prints a report file, makes a page of it, compares and checks."""

import json
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from monarch.errors import UsageError

if TYPE_CHECKING:
    from monarch.report.format import Part

Result = TypeVar("Result")

EPILOG = """\b
Examples:
  monarch report run.json                   # as after the run
  monarch report run.json --html run.html   # one page, without scripts
  monarch report --compare before.json after.json
  monarch report run.json --assert 'ready_share>=0.9'
  monarch report run.json --assert 'waits.p99_s<50ms' --assert 'opens>0'

A condition names a figure of the headline, or any figure of the JSON by its dotted
path, such as waits.p99_s or tiers.ram.used_bytes. The exit status is 1 if one is false.
"""


@click.command("report", epilog=EPILOG)
@click.argument("file", type=click.Path(path_type=Path), required=False)
@click.option("--node", metavar="NAME", help="Print the part about one node.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option(
    "--html",
    "target",
    type=click.Path(path_type=Path, allow_dash=True),
    metavar="OUT.html",
    help="Make a page of HTML; - is standard output.",
)
@click.option(
    "--compare",
    "pair",
    nargs=2,
    type=click.Path(path_type=Path),
    metavar="A.json B.json",
    help="Print the figures that differ between two reports, side by side.",
)
@click.option(
    "--assert",
    "conditions",
    multiple=True,
    metavar="CONDITION",
    help="Exit with 1 if a condition on the figures is false; may be repeated.",
)
def report(file: Path | None, conditions: tuple[str, ...], **how: Any) -> None:
    """Print the report file FILE of `monarch run` or `monarch stage --report FILE`."""
    chosen = [name for name, value in how.items() if value] + ["assert"] * bool(
        conditions
    )
    _check_choice(file, chosen)
    if how["pair"]:
        _compare(*how["pair"])
        return
    from monarch.report import read_report

    assert file is not None
    content = read_report(file)
    if conditions:
        holds = _whole(file, lambda: _check(content, conditions))
        sys.exit(0 if holds else 1)
    elif how["target"]:
        _write_page(file, how["target"], content)
    elif how["as_json"]:
        click.echo(json.dumps(_selected(content, how["node"]), indent=1))
    else:
        from monarch.cli.terminal import print_parts

        print_parts(_whole(file, lambda: _parts(content, how["node"])))


_OPTIONS = {
    "node": "--node",
    "as_json": "--json",
    "target": "--html",
    "pair": "--compare",
    "assert": "--assert",
}


def _check_choice(file: Path | None, chosen: list[str]) -> None:
    """Refuse options that contradict each other."""
    if (file is None) != ("pair" in chosen):
        raise UsageError("name one report file, or two with --compare")
    if len(chosen) > 1 and set(chosen) != {"node", "as_json"}:
        both = " and ".join(_OPTIONS[name] for name in chosen[:2])
        raise UsageError(f"{both} do not go together")


def _whole(file: Path, make: Callable[[], Result]) -> Result:
    """Return the result of a step on a report; an edited file may lack any key."""
    try:
        return make()
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        reason = f"{type(error).__name__}: {error}"
        raise UsageError(f"{file}: incomplete report ({reason})") from error


def _selected(content: Mapping[str, Any], node: str | None) -> Any:
    from monarch.report import find_node

    return content if node is None else find_node(content, node)


def _parts(content: Mapping[str, Any], node: str | None) -> list["Part"]:
    from monarch.report import (
        is_staging,
        one_node_parts,
        report_parts,
        staged_lines,
    )

    if node is not None:
        return one_node_parts(content, node)
    if is_staging(content):
        return [*staged_lines(content)]
    return report_parts(content)


def _write_page(file: Path, target: Path, content: Mapping[str, Any]) -> None:
    from monarch.atomic_file import whole_file
    from monarch.report.html import page

    body = _whole(file, lambda: page(content)).encode()
    if str(target) == "-":
        click.echo(body, nl=False)
        return
    try:
        with whole_file(target, mode=0o666 & ~_umask()) as out:
            out.write(body)
    except OSError as error:
        raise UsageError(f"{target} cannot be written: {error.strerror}") from error


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def _compare(first: Path, second: Path) -> None:
    from monarch.cli.terminal import print_parts
    from monarch.report import read_report
    from monarch.report.compare import comparison

    one, two = read_report(first), read_report(second)
    titles = (first.name, second.name)
    if first.name == second.name:
        titles = (str(first), str(second))
    place = Path(f"{first} and {second}")
    print_parts(_whole(place, lambda: comparison(titles, one, two)))


def _check(content: Mapping[str, Any], conditions: tuple[str, ...]) -> bool:
    """Print each condition with the figure that decides it, and whether all hold."""
    from monarch.report.assertion import check
    from monarch.report.figures import with_headline

    whole = with_headline(content)
    outcomes = [check(whole, condition) for condition in conditions]
    for outcome in outcomes:
        click.echo(outcome.text)
    return all(outcome.holds for outcome in outcomes)
