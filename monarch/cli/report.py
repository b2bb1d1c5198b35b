"""`monarch report`: prints the report of an earlier run again."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click


@click.command("report")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print the JSON itself.")
def report(file: Path, as_json: bool) -> None:
    """Print FILE, which `monarch run --report FILE` has written."""
    from monarch.report import read_report

    content = read_report(file)
    text = json.dumps(content, indent=1) + "\n" if as_json else _text(file, content)
    click.echo(text, nl=False)


def _text(file: Path, content: Mapping[str, Any]) -> str:
    """Return a report as text; what was edited by hand may lack anything."""
    from monarch.errors import UsageError
    from monarch.report import render

    try:
        return render(content)
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        reason = f"{type(error).__name__}: {error}"
        raise UsageError(f"{file}: not a whole report ({reason})") from error
