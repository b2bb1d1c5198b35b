"""`monarch version`: which Monarch this is."""

import click

from monarch import __version__


@click.command("version")
def version() -> None:
    """Print the version."""
    click.echo(f"monarch {__version__}")
