"""`monarch report`: prints a report file."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from monarch.report.format import Part


@click.command("report")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--node", metavar="NAME", help="Print the part about one node.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def report(file: Path, node: str | None, as_json: bool) -> None:
    """Print the report file FILE of `monarch run` or `monarch stage --report FILE`."""
    from monarch.cli.terminal import print_parts
    from monarch.report import read_report

    content = read_report(file)
    if as_json:
        click.echo(json.dumps(_selected(content, node), indent=1))
    else:
        print_parts(_parts(file, content, node))


def _selected(content: Mapping[str, Any], node: str | None) -> Any:
    from monarch.report import find_node

    return content if node is None else find_node(content, node)


def _parts(file: Path, content: Mapping[str, Any], node: str | None) -> list["Part"]:
    """Return the parts of a report; a file that was edited may lack any key."""
    from monarch.errors import UsageError
    from monarch.report import (
        is_staging,
        one_node_parts,
        report_parts,
        staged_lines,
    )

    try:
        if node is not None:
            return one_node_parts(content, node)
        if is_staging(content):
            return [*staged_lines(content)]
        return report_parts(content)
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        reason = f"{type(error).__name__}: {error}"
        raise UsageError(f"{file}: incomplete report ({reason})") from error
