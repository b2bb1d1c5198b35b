"""Stages the datasets of a configuration on every node of a crew, and retains them."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, Protocol

import numpy as np

from monarch import native
from monarch.agent.job_spec import indexes_from_blocks
from monarch.agent.segments import RunDirectory
from monarch.agent.setup import Setup
from monarch.catalog.block import Bytes
from monarch.catalog.inventory import catalog_digest
from monarch.errors import MonarchError, UsageError
from monarch.native import Reason
from monarch.origins.dataset import Dataset, Indexed, prepare_index
from monarch.placement import Mode, Node, Placement
from monarch.preload.account import Account, NodeAccount
from monarch.preload.crew import Crew, agreed
from monarch.preload.inbox import Inbox
from monarch.preload.outbox import Outbox
from monarch.preload.stores import Stores
from monarch.stager import footprints
from monarch.tiers.directory_lock import lock_directory
from monarch.tiers.leftovers import collect_all

GUARD_S: Final = 0.25
PAUSE_S: Final = 0.002
"""How long we sleep where nothing moves: MPI tells of messages only when asked."""
_REASONS: Final = {
    Reason.NO_ROOM: "no room",
    Reason.CHANGED: "changed since the scan",
    Reason.MEMORY: "removed again, because memory is short",
}


class Teller(Protocol):
    """Tells the user how far long steps are."""

    def warn(self, text: str) -> None:
        """Say what the user should know although the work goes on."""

    def scanning(self, path: str, entries: int) -> None:
        """Say how far the scan of a dataset is."""

    def staging(self, done: Standing) -> None:
        """Say how far the staging is."""


@dataclass(frozen=True, slots=True)
class Standing:
    """How far this node is."""

    held_files: int
    kept_files: int
    held_bytes: int


@dataclass(frozen=True, slots=True)
class Task:
    """What is to be done.

    Args:
        run: a run directory of our own.
    """

    setup: Setup
    run: Path
    mode: Mode


@dataclass(slots=True)
class _Share:
    """What one node is to hold."""

    placement: Placement
    kept: np.ndarray


def stage_together(task: Task, crew: Crew, teller: Teller) -> Account:
    """Fill the Tiers of every node of a crew; the account is the same on each.

    Raises:
        MonarchError: on every node the same, if one of them cannot do its part.
    """
    began = time.monotonic()
    indexed = _index(task.setup, crew, teller)
    with ExitStack() as held:

        def begin() -> Stores:
            run = _own_directory(task.run)
            held.callback(run.remove)
            homes = {run.path.parent, *(tier.home for tier in task.setup.tiers)}
            collect_all(sorted(homes))
            return held.enter_context(Stores(task.setup, run, indexed))

        stores = agreed(crew, begin)
        digest = crew.all_of(catalog_digest(stores.namespace.roots))
        share = _divide(stores, crew, digest[0], task.mode)
        own = _fill(stores, crew, _Work(share, teller))
        agreed(crew, stores.set_aside)
    accounts = crew.all_of(own)
    seconds = time.monotonic() - began
    return _account(stores, share.placement, task.mode, (seconds, accounts))


def _own_directory(path: Path) -> RunDirectory:
    """Make a run directory as launchers do: else it is no leftover if we are killed."""
    start = lock_directory(path, "start")
    if start is None:
        raise MonarchError(f"{path}: is in use")
    try:
        # A collector of leftovers finds at least one of the two locks taken.
        return RunDirectory(path)
    finally:
        os.close(start)


# -- the Catalog --------------------------------------------------------------------


def _index(setup: Setup, crew: Crew, teller: Teller) -> list[Indexed]:
    """Let the first node scan, and the others receive what it has found."""
    told = [[d.path, d.patterns] for d in setup.datasets]
    for node, others in zip(crew.nodes, crew.all_of(told), strict=True):
        if others != told:
            raise UsageError(f"on {node} the configuration names other datasets")
    scanned: list[Indexed] = []
    if crew.number == 0:
        scanned = agreed(crew, lambda: _scan(setup, teller))
    else:
        agreed(crew, lambda: None)
    blocks = [
        crew.from_first(scanned[number].index.block.memory if scanned else None)
        for number in range(len(setup.datasets))
    ]
    return agreed(
        crew, lambda: scanned or _received(setup.datasets, blocks, crew.nodes[0])
    )


def _scan(setup: Setup, teller: Teller) -> list[Indexed]:
    return [
        prepare_index(
            dataset,
            threads=setup.config.catalog.scan_threads,
            warn=teller.warn,
            progress=partial(teller.scanning, dataset.path),
        )
        for dataset in setup.datasets
    ]


def _received(
    datasets: Sequence[Dataset], blocks: Sequence[Bytes], node: str
) -> list[Indexed]:
    return indexes_from_blocks(datasets, [block.data for block in blocks], node)


# -- who holds what -----------------------------------------------------------------


def _divide(stores: Stores, crew: Crew, digest: int, mode: Mode) -> _Share:
    """Place the Files as the agents of a job on these nodes will."""
    rooms = crew.all_of(stores.capacity_bytes)
    nodes = [Node(name, room) for name, room in zip(crew.nodes, rooms, strict=True)]
    needs = footprints(stores.stager.replicas.sizes)
    placement = Placement(nodes, needs, digest, mode)
    return _Share(placement, placement.kept(crew.number))


# -- filling ------------------------------------------------------------------------


class _Work:
    """A node's share of the work, and what was done of it when.

    Attributes:
        guarded_s: when memory was looked at last.
        adopted_files: what earlier commands had left of the share.
    """

    def __init__(self, share: _Share, teller: Teller) -> None:
        self.share = share
        self.teller = teller
        self.guarded_s = 0.0
        self.adopted_files = 0


def _fill(stores: Stores, crew: Crew, work: _Work) -> NodeAccount:
    """Check what is there, tell the owners what is missing, and read, send and take."""
    share, stager = work.share, stores.stager
    stores.clear_room(share.kept)
    _turn_until(stores, work, lambda: stager.idle, [])
    work.adopted_files = stores.counters.adopted_files
    missing = share.kept & ~stores.ready()
    owners = share.placement.owners
    wants = [
        np.flatnonzero(missing & (owners == node)).astype(np.uint32)
        for node in range(len(crew.nodes))
    ]
    awaited = missing & (owners != crew.number)
    parts = [want.view(np.uint8) for want in wants]
    parts[crew.number] = np.empty(0, np.uint8)
    wanted = {
        node: part.view(np.uint32)
        for node, part in enumerate(crew.exchange(parts))
        if node != crew.number
    }
    stores.asker.ask_for(wants[crew.number])
    outbox, inbox = Outbox(crew, stores, wanted), Inbox(crew, stores, awaited)

    def ended() -> bool:
        return stores.asker.done and outbox.done and inbox.done and stager.idle

    try:
        _turn_until(stores, work, ended, [outbox.turn, inbox.turn])
    finally:
        inbox.close()
    return _own_account(stores, work, crew, inbox)


def _turn_until(
    stores: Stores,
    work: _Work,
    ended: Callable[[], bool],
    steps: Sequence[Callable[[], bool]],
) -> None:
    """Take turns until the end, sleeping where nothing moves."""
    while not ended():
        moved = stores.stager.turn()
        for step in steps:
            moved = step() or moved
        now = time.monotonic()
        if now - work.guarded_s >= GUARD_S:
            work.guarded_s = now
            stores.guard()
            work.teller.staging(_standing(stores, work.share))
        if not moved:
            stores.wait(PAUSE_S if steps else GUARD_S)


def _standing(stores: Stores, share: _Share) -> Standing:
    used = sum(account.used_bytes for account in stores.stager.storage.ledger.accounts)
    counters = stores.counters
    held = counters.staged_files + counters.adopted_files - counters.evicted_files
    return Standing(held, int(np.count_nonzero(share.kept)), used)


# -- the account --------------------------------------------------------------------


def _own_account(stores: Stores, work: _Work, crew: Crew, inbox: Inbox) -> NodeAccount:
    replicas, counters = stores.stager.replicas, stores.counters
    ready, kept = stores.ready(), work.share.kept
    lacking = np.flatnonzero(kept & ~ready)
    reasons: dict[str, int] = {}
    for word in replicas.words[lacking].tolist():
        reason = native.word_parts(word)[2]
        text = _REASONS.get(reason, "could not be copied")
        reasons[text] = reasons.get(text, 0) + 1
    faults = [
        f"{stores.namespace.path(file)}: {why}"
        for file, why in stores.asker.faults.items()
        if not ready[file]
    ]
    return NodeAccount(
        node=crew.nodes[crew.number],
        kept_files=int(np.count_nonzero(kept)),
        held_files=int(np.count_nonzero(ready)),
        held_bytes=int(replicas.sizes[ready].sum()),
        adopted_files=work.adopted_files,
        origin_files=counters.staged_files,
        origin_bytes=counters.origin_read_bytes,
        received_files=counters.adopted_files - work.adopted_files,
        received_bytes=inbox.received_bytes,
        lacking=reasons,
        faults=tuple(faults),
    )


def _account(
    stores: Stores,
    placement: Placement,
    mode: Mode,
    told: tuple[float, Sequence[NodeAccount]],
) -> Account:
    sizes, placed = stores.stager.replicas.sizes, placement.placed
    seconds, nodes = told
    unplaced = int(np.count_nonzero(~placed))
    short = 0
    if mode is Mode.REPLICATE:
        kept = sum(node.kept_files for node in nodes)
        short = len(nodes) * (len(sizes) - unplaced) - kept
    return Account(
        files=len(sizes),
        total_bytes=int(sizes.sum()),
        unplaced_files=unplaced,
        unplaced_bytes=int(sizes[~placed].sum()),
        copies_short=short,
        seconds=seconds,
        nodes=tuple(nodes),
    )
