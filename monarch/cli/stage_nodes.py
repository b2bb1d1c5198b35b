"""The nodes of `monarch stage`: each has an agent that ends when all have staged."""

import os
import secrets
from functools import partial

from xxhash import xxh3_64_intdigest

from monarch.agent.agent import Agent
from monarch.agent.bootstrap import Bootstrap, find_bootstrap
from monarch.agent.job_spec import datasets_payload
from monarch.agent.lifetime import FillLifetime
from monarch.agent.main import Prepared, prepare, run
from monarch.agent.segments import AlreadyStarting, StartLock
from monarch.agent.setup import Setup, make_setup
from monarch.cli.terminal import StagingProgress, print_line, print_lines
from monarch.cli.terminal_notifier import TerminalNotifier
from monarch.cluster import node_name, run_root, safe_name
from monarch.config import Config, RunOptions, load, load_request, run_directory
from monarch.config.files import user_file
from monarch.errors import MonarchError, UsageError
from monarch.mpi.launch import Launch, import_mpi
from monarch.mpi.mpi_bootstrap import bootstrap_by_mpi
from monarch.mpi.ranks import Ranks
from monarch.native import hosts_job, job_name
from monarch.report import is_complete
from monarch.stager import Progress
from monarch.tiers.directory_lock import is_locked, remove_tree
from monarch.tiers.leftovers import collect_all

# -- nodes that are found as by `monarch run` -----------------------------------------


def stage_as_launched(options: RunOptions) -> int:
    """Stage on this node and those that its launch or the host list names."""
    config = load(options, os.environ, run_directory()).config
    node = node_name(os.environ)
    job = _shared_job(options, config)
    bootstrap = None
    if job is not None:
        bootstrap = find_bootstrap(config, job, os.environ, StageNotifier(node, None))
    if bootstrap is None or job is None:
        job = f"stage-{secrets.token_hex(4)}"
    site = _Site(options, job, node, bootstrap)
    setup = site.make_setup()
    site.tell_doubts(setup)
    return site.run(site.prepare(setup))


def _shared_job(options: RunOptions, config: Config) -> str | None:
    """Return the name of the staging on all nodes; None: only one node."""
    name = job_name(os.environ)
    if config.hosts:
        here = run_directory()
        file = user_file(options, os.environ, here)
        given = repr(sorted(options.given().items()))
        fingerprint = xxh3_64_intdigest(given.encode())
        path = None if file is None else here / file
        name = hosts_job(",".join(config.hosts), fingerprint, path)
    return None if name is None else safe_name(f"stage-{name}")


# -- nodes that MPI has launched ------------------------------------------------------


def stage_by_mpi(options: RunOptions) -> int:
    """Stage with one rank on each node; all of them exit with the same code."""
    mpi = import_mpi()
    with Launch(mpi, os.environ) as launch:
        if not launch.acts:
            return 0
        ranks = Ranks(launch)
        try:
            return _stage_as_rank(options, ranks)
        except MonarchError as error:
            # The error is the same on all nodes, so one of them prints it.
            for line in str(error).splitlines() if launch.first else ():
                print_line(f"monarch: {line}")
            return error.exit_code


def _stage_as_rank(options: RunOptions, ranks: Ranks) -> int:
    """Stage with the other ranks.

    Raises:
        MonarchError: the same on all ranks; nothing was staged.
    """
    job = ranks.all_of(f"stage-{secrets.token_hex(4)}")[0]
    node, alone = ranks.nodes[ranks.number], len(ranks.nodes) == 1

    def make_setup() -> Setup:
        setup = _Site(options, job, node, None).make_setup()
        if setup.config.peers.mode == "off" and not alone:
            raise UsageError(
                f"peers.mode is off, which --mpi on {len(ranks.nodes)} nodes does not "
                "support; use --mode"
            )
        return setup

    setup = ranks.agreed(make_setup)
    datasets = ranks.all_of(datasets_payload(setup.datasets))
    for other, theirs in zip(ranks.nodes, datasets, strict=True):
        if theirs != datasets[0]:
            raise UsageError(
                f"on {other} the configuration names other datasets than on "
                f"{ranks.nodes[0]}"
            )
    bootstrap = None if alone else bootstrap_by_mpi(ranks, job, setup.config.peers)
    site = _Site(options, job, node, bootstrap)
    site.tell_doubts(setup)
    prepared = ranks.agreed(lambda: site.prepare(setup), site.undo)
    try:
        code = site.run(prepared)
    except MonarchError as error:
        site.notifier.fail(error.exit_code, str(error))
        code = error.exit_code
    # An MPI library may end all ranks when one of them exits with an error.
    codes: list[int] = ranks.all_of(code)
    return max(codes)


# -- one node -------------------------------------------------------------------------


class _Site:
    """One node that stages.

    Args:
        job: the name of the staging, the same on all nodes.
    """

    def __init__(
        self, options: RunOptions, job: str, node: str, bootstrap: Bootstrap | None
    ) -> None:
        self.notifier = StageNotifier(node, bootstrap)
        self._options = options
        self._run = run_root(os.environ) / f"{job}.{node}"
        self._bootstrap = bootstrap

    def __repr__(self) -> str:
        return f"<_Site {self._run}>"

    def make_setup(self) -> Setup:
        """Return the setup, checked on this machine.

        Raises:
            UsageError: with one line for each value that is not valid.
        """
        request = load_request(self._options, [], os.environ)
        setup = make_setup(request, self._run.name, os.environ)
        if setup.config.retain == "job":
            raise UsageError(
                "retain: job would remove the staged files when this command ends; use "
                "--set retain=node or a duration such as 7d, here and in the job"
            )
        for warning in setup.warnings:
            self.notifier.warn(warning)
        return setup

    def prepare(self, setup: Setup) -> Prepared:
        """Claim the run directory, and make the Tiers.

        Raises:
            MonarchError: another process on this node stages for the same nodes, or no
                tier can be used.
        """
        # The lock ends with this process, which is no agent that programs may join.
        try:
            StartLock(self._run)
        except AlreadyStarting:
            raise UsageError(
                "another process on this node stages for the same nodes: run one "
                "process on each node"
            ) from None
        try:
            homes = {self._run.parent, *(tier.home for tier in setup.tiers)}
            collect_all(sorted(homes))
            return prepare(self._run, setup, self.notifier, self._bootstrap)
        except BaseException:
            self._remove()
            raise

    def undo(self, prepared: Prepared) -> None:
        """Remove the Tiers and the run directory."""
        prepared.undo()
        self._remove()

    def tell_doubts(self, setup: Setup) -> None:
        """Print the doubts about the tiers, once for all nodes."""
        for doubt in setup.doubts if self.notifier.is_first else ():
            self.notifier.warn(doubt)

    def run(self, prepared: Prepared) -> int:
        """Stage until all nodes have ended; return the exit code.

        Raises:
            MonarchError: no Catalog exists.
        """
        try:
            agent = run(
                prepared,
                self.notifier,
                partial(FillLifetime, show=self.notifier.staging),
            )
        except BaseException:
            self._remove()
            raise
        finally:
            self.notifier.close()
        return _exit_code(agent, self.notifier)

    def _remove(self) -> None:
        """Remove the run directory, which is ours unless an agent has its lock."""
        if not is_locked(self._run):
            remove_tree(self._run)


class StageNotifier(TerminalNotifier):
    """Prints the progress on stderr and, on the first node, the summary on stdout.

    Attributes:
        delegated: whether another node prints the summary.
    """

    def __init__(self, node: str, bootstrap: Bootstrap | None) -> None:
        first = bootstrap is None or bootstrap.announces
        prefix = "" if bootstrap is None else node
        super().__init__(prefix, lambda: None, first=first, quiet=True)
        self.delegated = False
        on = "" if bootstrap is None else f" on {node}"
        self._progress = StagingProgress(f"staging{on}")

    def staging(
        self, found: Progress, rate: float | None, left_s: float | None
    ) -> None:
        """Show how much of this node's share is staged."""
        if self._first:
            self._progress(found.bytes, found.kept_bytes, rate, left_s)

    def ready(self, text: str) -> None:
        """Print no start line: the summary contains it."""

    def say(self, text: str) -> None:
        """Print the summary."""
        self._progress.close()
        print_lines(text.splitlines())

    def done(self) -> None:
        """Note that another node prints the summary."""
        self.delegated = True

    def close(self) -> None:
        """Clear the progress line."""
        self._progress.close()
        super().close()


def _exit_code(agent: Agent, notifier: StageNotifier) -> int:
    """Return the exit code of a staging; the node with the report decides for all."""
    if agent.signal:
        kept = "; the files staged so far are retained" if agent.retained else ""
        print_line(f"monarch: stopped{kept}")
        return 128 + agent.signal
    complete = notifier.delegated
    if agent.report is not None:
        complete = is_complete(agent.report)
    return 0 if complete and agent.retained else 1
