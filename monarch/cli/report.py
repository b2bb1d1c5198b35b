"""`monarch report`: prints the report of an earlier run again."""

import json
from pathlib import Path

import click


@click.command("report")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print the JSON itself.")
def report(file: Path, as_json: bool) -> None:
    """Print FILE, which `monarch run --report FILE` has written."""
    from monarch.report import read_report, render

    content = read_report(file)
    click.echo(
        json.dumps(content, indent=1) + "\n" if as_json else render(content), nl=False
    )
