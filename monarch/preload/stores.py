"""The Tiers of this node while they are filled, with what an agent has to fill them."""

from __future__ import annotations

import select
import time
from collections.abc import Sequence
from typing import Final, Self

import numpy as np

from monarch import native
from monarch.agent.namespace import extent_arrays, publish
from monarch.agent.segments import RunDirectory, Segments
from monarch.agent.setup import Setup
from monarch.agent.shutdown import claim_all, expiry_s, offer
from monarch.agent.staging import engine_threads
from monarch.errors import MonarchError
from monarch.metrics import AgentCounters
from monarch.native import Reason, ReplicaState
from monarch.origins.dataset import Indexed
from monarch.preload.asker import AHEAD, Asker
from monarch.stager import (
    Event,
    ExtentDigests,
    Stager,
    StagerSettings,
    Storage,
    describe,
    footprints,
)
from monarch.tiers import RamTier
from monarch.tiers.memory import read_memory
from monarch.tiers.retained import namespace_digest, retain_directory

ENGINE_TIMEOUT_MS: Final = 2000


class Stores:
    """Composes Catalog, Tiers, engine and Stager of a node that runs no program.

    A context manager: at its end the Tiers are set aside for later jobs.
    """

    def __init__(
        self, setup: Setup, run: RunDirectory, indexed: Sequence[Indexed]
    ) -> None:
        self.setup = setup
        self.run = run
        self.counters = AgentCounters()
        segments = Segments(run.path)
        segments.create_first()
        for tier in setup.tiers:
            tier.prepare(locked=run.path)
        manifests = claim_all(setup.tiers, [one.root.path for one in indexed])
        self.namespace = publish(setup, list(indexed), segments)
        ram = [tier for tier in setup.tiers if isinstance(tier, RamTier)]
        for first in ram[:1]:
            first.subtract(sum(map(len, segments.memory.values())))
        self.extents = ExtentDigests(*extent_arrays(self.namespace))
        self._engine = self._start_engine(segments)
        replicas = self.namespace.replicas()
        self.asker = Asker(self._engine, replicas.words, setup.config.fill.concurrency)
        # Nothing is urgent: the engine's limits on background copies hold for all.
        ahead = AHEAD * setup.config.fill.concurrency
        settings = StagerSettings(False, ahead, urgent_bytes_max=-1)
        storage, counters = Storage(setup.tiers), self.counters
        self.stager = Stager(replicas, self.asker, storage, settings, counters)
        offer(self.stager, self.namespace, manifests, self.extents)
        self._closed = False

    def _start_engine(self, segments: Segments) -> native.Engine:
        fill, memory = self.setup.config.fill, segments.memory
        board = native.Segments(
            memory["catalog"], memory["flags"], memory["requests"], memory["inodes"]
        )
        options = native.Options(
            threads=engine_threads(fill.concurrency, len(self.setup.datasets)),
            background_max=fill.concurrency,
            bandwidth_bytes_per_s=fill.bytes_per_s,
            digests=self.extents.digests,
            digest_first=self.extents.first,
        )
        return native.Engine(board, options)

    @property
    def capacity_bytes(self) -> int:
        """What all Tiers may hold together."""
        return sum(tier.capacity_bytes for tier in self.setup.tiers)

    def clear_room(self, kept: np.ndarray) -> None:
        """Remove what earlier commands left and nobody keeps, if it takes the room.

        Args:
            kept: marks the Files that this node is to hold.
        """
        replicas, held = self.stager.replicas, self.stager.adoption.tiers
        strangers = [file for file in held if not kept[file]]
        needs = footprints(replicas.sizes)
        wanted = int(needs[kept].sum()) + int(needs[strangers].sum())
        if wanted <= self.capacity_bytes:
            return
        for file in strangers:
            self.stager.refuse_adoption(file)

    def wait(self, seconds: float) -> None:
        """Sleep until a copy has ended, no longer than this."""
        select.select([self._engine.event_fd], [], [], seconds)

    def guard(self) -> None:
        """Give memory back where a limit is near, as an agent does."""
        freed = 0
        for level in read_memory():
            used = level.used_bytes - freed
            freed += self.stager.relieve(used, level.limit_bytes)

    def ready(self) -> np.ndarray:
        """Return which Files are staged."""
        return self.stager.replicas.in_state(ReplicaState.READY)

    def mtime_ns(self, file: int) -> int:
        """Return when a File was changed last."""
        number = self.namespace.inventory.root_of(file)
        block = self.namespace.roots[number].block
        entry = block.first_entry[file - self.namespace.bases[number]]
        return int(block.entries["mtime_ns"][entry])

    def refuse(self, file: int) -> None:
        """Note that a File cannot be had."""
        self.stager.replicas.change(file, Event.REFUSED, reason=Reason.ERROR)

    def set_aside(self) -> None:
        """End all copies, and retain the Tiers for later jobs.

        What was taken over but not checked yet is kept, too: whoever takes it over next
        checks it.
        """
        if self._closed:
            return
        self._closed = True
        self.stager.stop()
        self._engine.close(ENGINE_TIMEOUT_MS)
        self.stager.abandon()
        try:
            self._retain()
        except OSError as error:
            raise MonarchError(f"the tiers are not retained: {error}") from error
        finally:
            for tier in self.setup.tiers:
                tier.remove(locked=self.run.path)

    def _retain(self) -> None:
        namespace, replicas = self.namespace, self.stager.replicas
        digest = namespace_digest([root.path for root in namespace.roots])
        expires_s = expiry_s(self.setup.config.retain, time.time())
        unchecked = self.stager.adoption.tiers
        for number, tier in enumerate(self.setup.tiers):
            waiting = [file for file, where in unchecked.items() if where == number]
            files = np.union1d(replicas.ready_in(number), np.array(waiting, np.int64))
            if len(files):
                manifest = describe(
                    files, namespace.name_of, replicas.sizes, self.extents, expires_s
                )
                retain_directory(tier.directory, tier.home, digest, manifest)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        """Set aside what is staged, after an error too: it has cost time."""
        self.set_aside()
