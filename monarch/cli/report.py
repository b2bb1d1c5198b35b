"""`monarch report`: prints the report of an earlier run again."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click


@click.command("report")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--node", metavar="NAME", help="Print what it tells of one node.")
@click.option("--json", "as_json", is_flag=True, help="Print the JSON itself.")
def report(file: Path, node: str | None, as_json: bool) -> None:
    """Print FILE, which `monarch run --report FILE` has written."""
    from monarch.report import read_report

    content = read_report(file)
    if as_json:
        click.echo(json.dumps(_part(content, node), indent=1))
    else:
        click.echo(_text(file, content, node), nl=False)


def _part(content: Mapping[str, Any], node: str | None) -> Any:
    from monarch.report import find_node

    return content if node is None else find_node(content, node)


def _text(file: Path, content: Mapping[str, Any], node: str | None) -> str:
    """Return a report as text; what was edited by hand may lack anything."""
    from monarch.errors import UsageError
    from monarch.report import render, render_node
    from monarch.report.format import printable

    try:
        text = render(content) if node is None else render_node(content, node)
        return "".join(f"{printable(line)}\n" for line in text.splitlines())
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        reason = f"{type(error).__name__}: {error}"
        raise UsageError(f"{file}: not a whole report ({reason})") from error
