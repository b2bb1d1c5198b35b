"""`monarch stage`: fills the Tiers of nodes before a job, and retains them."""

from __future__ import annotations

import logging
import os
import secrets
import signal
from typing import TYPE_CHECKING, Any

import click

from monarch.cli.terminal import ScanProgress, StagingProgress
from monarch.errors import MonarchError, UsageError

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

Staged files are kept as `retain` specifies. A later `monarch run` with the same
datasets, tiers and `retain` adopts them after comparing their checksums. A tier in RAM
is lost when the node restarts. The exit status is 1 if a file could not be staged.
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
    help="Stage into this tier, as in `monarch run`; replaces the configured tiers.",
)
@click.option(
    "--index", metavar="FILE", help="Load the index file FILE instead of scanning."
)
@click.option(
    "--mpi",
    is_flag=True,
    help="Stage on all nodes of an MPI launch, with one process on each node.",
)
@click.option(
    "--mode",
    type=click.Choice(MODES),
    help="With --mpi: partition: one copy in the job; replicate: a copy on every node; "
    "auto: as many copies as fit. Default: peers.mode of the configuration.",
)
@click.option("-q", "--quiet", is_flag=True, help="Print no summary.")
@click.pass_context
def stage(ctx: click.Context, /, **options: Any) -> None:
    """Copy the datasets into the tiers of this node, or of many nodes, before a job.

    With --mpi one node reads each file from the origin and sends it to the other nodes
    that keep it.
    """
    # The summary contains what an agent would log.
    logging.getLogger("monarch").addHandler(logging.NullHandler())
    if options["mode"] and not options["mpi"]:
        raise UsageError("--mode needs --mpi")
    _handle_signals()
    try:
        code = _stage_by_mpi(options) if options["mpi"] else _stage_alone(options)
    except _StoppedError as stopped:
        click.echo("monarch: stopped; the files staged so far are retained", err=True)
        code = 128 + stopped.signo
    ctx.exit(code)


def _stage_alone(options: dict[str, Any]) -> int:
    from monarch.cluster import node_name
    from monarch.preload.crew import Solo

    return _stage(options, Solo(node_name(os.environ)))


def _stage_by_mpi(options: dict[str, Any]) -> int:
    """Stage with one rank on each node; the first rank prints."""
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
                # The error is the same on all nodes, so one of them prints it.
                _print_error(str(error), is_first=launch.first)
                code = error.exit_code
    return code


def _print_error(text: str, *, is_first: bool) -> None:
    for line in text.splitlines() if is_first else ():
        click.echo(f"monarch: {line}", err=True)


def _stage(options: dict[str, Any], crew: Crew) -> int:
    """Stage as one node of a group; return the exit code."""
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
    progress = _StageProgress(crew)
    try:
        account = stage_together(Task(setup, run, mode), crew, progress)
    finally:
        progress.close()
    if crew.number == 0 and not options["quiet"]:
        click.echo(render(account))
    return 0 if account.complete else 1


def _prepare(options: dict[str, Any], job_node: str, nodes: int) -> tuple[Setup, Mode]:
    """Return the setup, checked on this machine."""
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
            "retain: job would remove the staged files when this command ends; use "
            "--set retain=node or a duration such as 7d, here and in the job"
        )
    mode = options["mode"] or setup.config.peers.mode
    if mode == "off" and nodes > 1:
        raise UsageError(
            f"peers.mode is off, which --mpi on {nodes} nodes does not support; use "
            "--mode"
        )
    return setup, Mode("auto" if mode == "off" else mode)


class _StageProgress:
    """Shows the progress of scans on each node, and of staging on the first node."""

    def __init__(self, crew: Crew) -> None:
        self._is_first = crew.number == 0
        self._scan: tuple[str, ScanProgress] | None = None
        on = f" on {crew.nodes[0]}" if len(crew.nodes) > 1 else ""
        self._staging = StagingProgress(f"staging{on}")

    def warn(self, text: str) -> None:
        """Print a warning."""
        click.echo(f"monarch: {text}", err=True)

    def scanning(self, path: str, entries: int) -> None:
        """Show the number of names that a scan has found."""
        if self._scan is None or self._scan[0] != path:
            self._close_scan()
            self._scan = path, ScanProgress(path)
        self._scan[1](entries)

    def staging(self, done: Standing) -> None:
        """Show the number of staged files of this node."""
        self._close_scan()
        if self._is_first:
            self._staging(done.held_files, done.kept_files, done.held_bytes)

    def close(self) -> None:
        """Remove the progress from the terminal."""
        self._close_scan()
        self._staging.close()

    def _close_scan(self) -> None:
        if self._scan is not None:
            self._scan[1].close()
            self._scan = None


class _StoppedError(BaseException):
    """A signal has stopped the command; the files staged so far are retained."""

    def __init__(self, signo: int) -> None:
        super().__init__(signo)
        self.signo = signo


def _handle_signals() -> None:
    """Stop in order at the first signal, and ignore later ones."""
    signals = (signal.SIGINT, signal.SIGTERM)

    def stop(signo: int, _frame: object) -> None:
        for each in signals:
            signal.signal(each, signal.SIG_IGN)
        raise _StoppedError(signo)

    for each in signals:
        signal.signal(each, stop)
