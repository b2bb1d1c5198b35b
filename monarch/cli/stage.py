"""`monarch stage`: fills the Tiers of nodes before a job, and retains them for it."""

from __future__ import annotations

import logging
import os
import secrets
import signal
import sys
import time
from typing import TYPE_CHECKING, Any

import click

from monarch.cli.index import LINE_SECONDS, QUIET_SECONDS, ScanProgress
from monarch.errors import MonarchError, UsageError
from monarch.units import format_count, format_size

if TYPE_CHECKING:
    from monarch.agent.setup import Setup
    from monarch.placement import Mode
    from monarch.preload.crew import Crew
    from monarch.preload.together import Standing

EPILOG = """\b
Examples:
  monarch stage -c job.yaml --set retain=node
  mpiexec -n 4 -ppn 1 monarch stage --mpi -c job.yaml
  srun -N4 --ntasks-per-node=1 monarch stage --mpi -c job.yaml --mode partition

What is staged stays as long as `retain` says, and a later `monarch run` with the same
datasets, tiers and `retain` takes it over after comparing its checksums; a tier in RAM
lasts no longer than the node's memory. The exit status is 1 if something could not be
staged.
"""
MODES = ("auto", "partition", "replicate")


@click.command("stage", epilog=EPILOG)
@click.option(
    "-c", "--config", metavar="FILE", help="Read the configuration from FILE."
)
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="KEY=VALUE",
    help="Set one value, such as retain=7d.",
)
@click.option(
    "--data",
    multiple=True,
    metavar="PATH",
    help="Stage the files below PATH. May be given more than once; replaces the "
    "configured datasets.",
)
@click.option(
    "--tier",
    "tiers",
    multiple=True,
    metavar="KIND:CAPACITY[:PATH]",
    help="Stage into this tier, as for `monarch run`; replaces the configured tiers.",
)
@click.option(
    "--index", metavar="FILE", help="Load the saved index FILE instead of scanning."
)
@click.option(
    "--mpi",
    is_flag=True,
    help="Stage on all nodes of an MPI launch; one process on each does the work.",
)
@click.option(
    "--mode",
    type=click.Choice(MODES),
    help="With --mpi: partition: one copy in the job; replicate: one on every node; "
    "auto: as many as fit. By default as peers.mode says.",
)
@click.option("-q", "--quiet", is_flag=True, help="Print no summary.")
@click.pass_context
def stage(ctx: click.Context, /, **options: Any) -> None:
    """Read the datasets into the tiers of this node, or of many, before a job.

    With --mpi every file is read from the origin by one node only, which passes it on
    to the nodes that keep it too.
    """
    # What agents write into their log is told in the summary instead.
    logging.getLogger("monarch").addHandler(logging.NullHandler())
    if options["mode"] and not options["mpi"]:
        raise UsageError("--mode: says what several nodes keep; give --mpi, too")
    _heed_signals()
    try:
        code = _stage_by_mpi(options) if options["mpi"] else _stage_alone(options)
    except _StoppedError as stopped:
        click.echo("monarch: stopped; what is staged so far is retained", err=True)
        code = 128 + stopped.signo
    ctx.exit(code)


def _stage_alone(options: dict[str, Any]) -> int:
    from monarch.cluster import node_name
    from monarch.preload.crew import Solo

    return _stage(options, Solo(node_name(os.environ)))


def _stage_by_mpi(options: dict[str, Any]) -> int:
    """Let one rank on each node stage; the first one of all speaks for them."""
    from monarch.mpi.launch import Launch, import_mpi
    from monarch.mpi.ranks import Ranks
    from monarch.preload.outbox import EXTENT_BYTES
    from monarch.preload.parcel import parcel_bytes

    mpi = import_mpi()
    with Launch(mpi, os.environ) as launch:
        code = 0
        if launch.acts:
            ranks = Ranks(mpi, launch, parcel_bytes(EXTENT_BYTES))
            try:
                code = _stage(options, ranks)
            except MonarchError as error:
                # It is the same on all nodes, and one of them says it.
                _say(launch.first, str(error))
                code = error.exit_code
    return code


def _say(speaks: bool, text: str) -> None:
    for line in text.splitlines() if speaks else ():
        click.echo(f"monarch: {line}", err=True)


def _stage(options: dict[str, Any], crew: Crew) -> int:
    """Stage as one node of a crew; return the exit code."""
    from monarch.cluster import run_root
    from monarch.preload.account import render
    from monarch.preload.crew import agreed
    from monarch.preload.together import Task, stage_together
    from monarch.tiers.directory_lock import make_private

    job = crew.all_of(f"stage-{secrets.token_hex(4)}")[0]
    root = run_root(os.environ)
    run = root / f"{job}.{crew.nodes[crew.number]}"

    def prepare() -> tuple[Setup, Mode]:
        make_private(root)
        return _prepare(options, run.name, len(crew.nodes))

    setup, mode = agreed(crew, prepare)
    teller = _Teller(crew)
    try:
        account = stage_together(Task(setup, run, mode), crew, teller)
    finally:
        teller.close()
    if crew.number == 0 and not options["quiet"]:
        click.echo(render(account))
    return 0 if account.complete else 1


def _prepare(options: dict[str, Any], job_node: str, nodes: int) -> tuple[Setup, Mode]:
    """Return what to do, found possible on this machine."""
    from monarch.agent.setup import make_setup
    from monarch.config import RunOptions
    from monarch.placement import Mode

    asked = RunOptions(
        config=options["config"],
        settings=options["settings"],
        data=options["data"],
        tiers=options["tiers"],
        index=options["index"],
    )
    setup = make_setup(asked, [], job_node, os.environ)
    if setup.config.retain == "job":
        raise UsageError(
            "retain: job would remove what is staged when this command ends; choose "
            "node or a duration such as 7d (--set retain=node), for the job, too"
        )
    mode = options["mode"] or setup.config.peers.mode
    if mode == "off" and nodes > 1:
        raise UsageError(
            f"peers.mode: off has no meaning with --mpi on {nodes} nodes; give --mode"
        )
    return setup, Mode("auto" if mode == "off" else mode)


class _Teller:
    """Says on stderr how far long steps are, for all nodes together on the first."""

    def __init__(self, crew: Crew) -> None:
        self._crew = crew
        self._terminal = sys.stderr.isatty()
        self._began = self._said = time.monotonic()
        self._scan: tuple[str, ScanProgress] | None = None
        self._spoke = False

    def warn(self, text: str) -> None:
        """Print a warning."""
        click.echo(f"monarch: {text}", err=True)

    def scanning(self, path: str, entries: int) -> None:
        """Print how many names were seen."""
        if self._scan is None or self._scan[0] != path:
            self.close()
            self._scan = path, ScanProgress(path)
        self._scan[1](entries)

    def staging(self, done: Standing) -> None:
        """Print how many files this node has of those that it is to keep."""
        now = time.monotonic()
        interval = LINE_SECONDS if self._spoke and not self._terminal else QUIET_SECONDS
        if self._crew.number or now - self._said < interval:
            return
        self.close()
        self._said, self._spoke = now, True
        start, end = ("\r\033[K", "") if self._terminal else ("", "\n")
        on = f" on {self._crew.nodes[0]}" if len(self._crew.nodes) > 1 else ""
        text = (
            f"staging{on}: {format_count(done.held_files)} of "
            f"{format_count(done.kept_files)} files, {format_size(done.held_bytes)}"
        )
        click.echo(f"{start}monarch: {text}{end}", err=True, nl=False)

    def close(self) -> None:
        """Clear what was written over and over."""
        if self._scan is not None:
            self._scan[1].close()
            self._scan = None
        if self._spoke and self._terminal:
            click.echo("\r\033[K", err=True, nl=False)


class _StoppedError(BaseException):
    """The user has lost patience; what is staged so far is retained on the way out."""

    def __init__(self, signo: int) -> None:
        super().__init__(signo)
        self.signo = signo


def _heed_signals() -> None:
    """Let the first signal end the work in order; those after it change nothing."""
    signals = (signal.SIGINT, signal.SIGTERM)

    def stop(signo: int, _frame: object) -> None:
        for each in signals:
            signal.signal(each, signal.SIG_IGN)
        raise _StoppedError(signo)

    for each in signals:
        signal.signal(each, stop)
