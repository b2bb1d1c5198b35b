"""`monarch clean`: removes the leftovers of dead jobs on this node."""

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import click


@click.command("clean")
@click.argument(
    "places", nargs=-1, metavar="[PLACE]...", type=click.Path(path_type=Path)
)
@click.option(
    "--retained",
    is_flag=True,
    help="Also remove files that are retained for later jobs.",
)
def clean(places: tuple[Path, ...], retained: bool) -> None:
    """Remove leftovers of your dead jobs in the run root and each PLACE, a tier's path.

    Running jobs are not affected: files that they share with a dead job stay, and the
    last line tells how much space was freed. Agents do the same when they start, so
    this is for the end of a batch job. Secrets and addresses of jobs are removed from
    the default rendezvous directory and from each PLACE if all known nodes of the job
    refuse connections.
    """
    from monarch.cluster import run_roots
    from monarch.errors import UsageError
    from monarch.native import homes, is_home
    from monarch.tiers.leftovers import collect
    from monarch.tiers.links import FreedSpace

    for place in places:
        if not place.is_dir():
            raise UsageError(f"{place}: no such directory")
    found = {*run_roots(os.environ), *homes()}
    found |= {home for place in places for home in homes(place)}
    space, gone = FreedSpace(), []
    for home in sorted(found):
        removed = collect(home, time.time(), keep_logs=False, note=space.note)
        if retained and is_home(home):
            removed += _remove_retained(home, space.note)
        for path in removed:
            click.echo(f"removed {path}")
        gone += removed
    _remove_stale_files(places)
    if gone:
        click.echo(_freed_text(*space.sums(gone)))


def _freed_text(freed_bytes: int, kept_bytes: int) -> str:
    """Return the text on the freed space, and on the space that others still use."""
    from monarch.units import format_size

    text = f"freed {format_size(freed_bytes)}"
    if kept_bytes:
        text += f"; {format_size(kept_bytes)} stay in use by jobs that share the files"
    return text


def _remove_stale_files(places: tuple[Path, ...]) -> None:
    """Remove the files of dead jobs of several nodes from rendezvous directories."""
    from monarch.cli.terminal import print_line
    from monarch.cluster import run_roots
    from monarch.cluster.stale_files import remove_stale_files
    from monarch.config.request import state_directory
    from monarch.tiers.directory_lock import is_locked

    def is_running(job: str) -> bool:
        found = [run for root in run_roots(os.environ) for run in root.glob(f"{job}.*")]
        return any(map(is_locked, found))

    default = state_directory(os.environ)
    for place in sorted({default, *places}):
        found = remove_stale_files(
            place, time.time(), is_running, default=place == default
        )
        for path in found.removed:
            click.echo(f"removed {path}")
        for line in found.kept:
            print_line(f"monarch: {line}")


def _remove_retained(home: Path, note: Callable[[Path], None]) -> list[Path]:
    from monarch.tiers.directory_lock import is_private
    from monarch.tiers.retained import RETAINED

    found = sorted(home.glob(f"{RETAINED}*")) if is_private(home) else []
    for path in found:
        note(path)
        shutil.rmtree(path, ignore_errors=True)
    return found
