"""Exact shuffled epochs of Records, read in Groups, once for each node."""

from __future__ import annotations

import atexit
import itertools
import os
import pickle
import sys
import weakref
from collections.abc import Generator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, Self, Unpack

import numpy as np
from xxhash import xxh3_128_hexdigest

from monarch.cluster import RUN_VARIABLE, own_addresses
from monarch.errors import MonarchError, UsageError
from monarch.loader.batch import Form
from monarch.loader.early import EarlyReads
from monarch.loader.epochs import Share
from monarch.loader.figures import LoaderCounts, index_progress
from monarch.loader.iteration import Iteration, Reach, Tools
from monarch.loader.link import ReaderLink
from monarch.loader.options import LoaderOptions, Options
from monarch.loader.order import Batches, RecordOrder
from monarch.loader.plan import plan, spare_bytes
from monarch.loader.portions import Portions
from monarch.loader.progress import Backlog, Identity, OrderLog, Progress, replayed
from monarch.loader.ranks import Ranks, find_ranks
from monarch.loader.tokens import TokenServer
from monarch.loader.worker import Worker
from monarch.records import Records
from monarch.records.groups import group
from monarch.records.opening import Making
from monarch.records.shard_memory import NO_SHARDS, ShardMemory
from monarch.records.sharing import node_name
from monarch.records.sources import FileSource

_THREADS: Final = 8
_FIGURES_S: Final = 2.0

_open_loaders: weakref.WeakSet[WholeLoader] = weakref.WeakSet()
_numbers = itertools.count()
"""Numbers of the loaders that this process has made."""
_open_keys: dict[str, int] = {}
"""Number of open loaders of this process with the same settings."""


@atexit.register
def _close_all() -> None:
    """Close the loaders that a program left open: the report needs their figures."""
    for loader in list(_open_loaders):
        loader.close()


class WholeLoader:
    """Iterates over the batches of one rank, with a complete index; see `Loader`.

    The order of an epoch depends only on `seed` and its number; global batches are
    sliced over the ranks. One process of each node reads into memory that its ranks
    map.

    Args:
        records: the result of `open_records`, or its argument.
        batch_size: Records in a batch of each rank.
        options: see `Options`.

    Raises:
        UsageError: an argument is invalid; the text names it.
    """

    def __init__(
        self,
        records: Records | str | os.PathLike[str] | Sequence[str],
        batch_size: int,
        **options: Unpack[LoaderOptions],
    ) -> None:
        given = Options.of(batch_size, options)
        ranks = find_ranks(given.rank, given.world_size, given.comm)
        memory = NO_SHARDS
        if not isinstance(records, Records):
            told = index_progress(ranks.rank, records)
            memory = ShardMemory(spare_bytes(given), ranks.world_size)
            making = Making(are_read=True, progress=told, memory=memory)
            records = making.records(records, given.comm)
        self._set_up(records, given, ranks, shards=memory)

    def _set_up(
        self,
        records: Records,
        given: Options,
        ranks: Ranks,
        reader: Mapping[str, Any] | None = None,
        shards: ShardMemory = NO_SHARDS,
    ) -> None:
        """Make all parts.

        Args:
            reader: the key and the settings of an existing reader; None: they are
                derived from the Records and options.
            shards: shards in memory, for the reader.
        """
        self.records = records
        if given.shuffle is None:
            given = replace(
                given, shuffle="global" if records.index.is_keyed else "group"
            )
        assert given.shuffle is not None
        self.options = given
        self.rank, self.world_size = ranks.rank, ranks.world_size
        index = records.index
        groups = group(index, given.group_bytes)
        window = given.groups_in_flight
        order = RecordOrder(
            groups, seed=given.seed, shuffle=given.shuffle, window=window
        )
        self._batches = Batches(
            len(index), given.batch_size, ranks.rank, ranks.world_size, given.remainder
        )
        self._portions = Portions(order, replace(self._batches, rank=0))
        self._form = Form(given.output, given.decode, index.details)
        self._plan = plan(given, groups, order.window)
        self._counts = LoaderCounts()
        self._progress = Progress()
        self._told: int | None = None
        self._is_closed = False
        self._current: Iteration | None = None
        self._current_epoch = 0
        self._iterators = 0
        self._identity = self._identified(ranks)
        self._server: TokenServer | None = None
        self._base: str | None = None
        self._reader = dict(reader) if reader else self._reader_of(ranks)
        shards.bound(self._plan.spare // ranks.world_size)
        early = None if reader else self._early_reads()
        self._link = ReaderLink(
            **self._reader, index=index, rank=self.rank, early=early
        )
        self._link.shards = shards
        self._log = OrderLog(given.order_log) if given.order_log else None
        self._replay = replayed(given.replay) if given.replay else None
        self._maker = os.getpid(), next(_numbers)
        _open_loaders.add(self)

    def __del__(self) -> None:
        """Send the figures: a program may not close its loader.

        A forked process sends nothing, but its parent does.
        """
        maker, _ = getattr(self, "_maker", (0, 0))
        if maker == os.getpid() and not self._is_closed:
            self._sync()
            self.tell_figures()

    def __repr__(self) -> str:
        return (
            f"<Loader of {self.records.index!r}, rank {self.rank} of {self.world_size}>"
        )

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for a spawned process, which continues as the same rank.

        It has its own connection to the same reader.
        """
        self._sync()
        return {
            "records": self.records,
            "given": replace(self.options, comm=None),
            "ranks": Ranks(self.rank, self.world_size, "arguments", ""),
            "reader": self._reader,
            "progress": self._progress,
            "told": self._told,
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Become the loader of a state."""
        progress, told = state.pop("progress"), state.pop("told")
        self._set_up(**state)
        self._progress, self._told = progress, told

    def __len__(self) -> int:
        """Return the number of batches of each rank in an epoch."""
        return len(self._batches)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of the next iteration, which otherwise follows the last one.

        Raises:
            UsageError: it is negative.
        """
        if epoch < 0:
            raise UsageError(f"epoch={epoch} is negative")
        self._told = epoch

    def __iter__(self) -> Generator[Any, None, None]:
        """Return the batches of an epoch, or the rest of a resumed one."""
        self._sync()
        progress = self._progress
        if self._told is not None and self._told != progress.epoch:
            progress = Progress(self._told)
        self._told = None
        self._progress = progress
        self._iterators += 1
        return self._iterate(progress, self._iterators)

    def state_dict(self) -> dict[str, Any]:
        """Return the progress of this rank as a few numbers, for a checkpoint.

        With batches in order it is the same on all ranks, and another number of ranks
        may resume from it.
        """
        self._sync()
        return self._identity.state(self._progress)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume from a state; the next iteration returns the rest of its epoch.

        Raises:
            UsageError: the state belongs to other records, or to another order.
        """
        self._current = None
        self._iterators += 1
        self._progress = self._identity.progress(state)
        self._told = None

    def state_after(self, epoch: int, batches: int) -> dict[str, Any]:
        """Return the state of this rank after some batches of an epoch."""
        place = min(self._batches.begin(batches), len(self.records))
        return self._identity.state(Progress(epoch, place))

    def hold(self) -> None:
        """Keep the reader of the node for workers of this rank."""
        self._link.hold()

    def worker(self, number: int, count: int) -> Worker:
        """Return a worker for the share of a worker process of this rank.

        Raises:
            UsageError: delivery out of order needs all batches in one process.
        """
        if self.options.lateness:
            raise UsageError(
                "in_order=False gives batches in one process: use num_workers=0, or "
                "in_order=True"
            )
        self._counts = LoaderCounts()
        return Worker(
            Share(number, count),
            self._batches,
            self._iteration,
            self._identity,
            self._link,
        )

    def tell_figures(self) -> None:
        """Under `monarch run`, send the agent the figures so far."""
        if RUN_VARIABLE in os.environ and self._counts.batches:
            self._tell_agent()

    def stats(self) -> dict[str, Any]:
        """Return all figures by name; times in seconds, sizes in bytes."""
        figures = self._link.figures(_FIGURES_S)
        return self._counts.stats(figures, self._link.restarts)

    def close(self) -> None:
        """Leave the reader of the node, which ends with its last rank.

        Under `monarch run` the job's report then includes the figures of this loader.
        """
        if self._is_closed:
            return
        self._is_closed = True
        self._sync()
        self.tell_figures()
        self._current = None
        self._link.close()
        if self._log is not None:
            self._log.close()
        if self._server is not None:
            self._server.close()
        if self._base is not None:
            _open_keys[self._base] = max(0, _open_keys.get(self._base, 1) - 1)

    def _tell_agent(self) -> None:
        from monarch.agent.control import ask

        number = self._maker[1]
        told = {"rank": self.rank, "number": number, "stats": self.stats()}
        with suppress(MonarchError):
            ask(Path(os.environ[RUN_VARIABLE]), {"op": "loader", **told})

    # -- one epoch ---------------------------------------------------------------------

    def _iterate(self, progress: Progress, iterator: int) -> Generator[Any, None, None]:
        self._check_iterator(iterator)
        current = self._current = self._iteration(progress)
        self._current_epoch = progress.epoch
        collate = self.options.collate_fn
        try:
            for batch in current:
                yield batch if collate is None else collate(batch)
                self._check_iterator(iterator)
        finally:
            if self._iterators == iterator:
                self._sync()
                self._current = None
        self._counts.epochs += 1
        self._progress = Progress(progress.epoch + 1)

    def _check_iterator(self, iterator: int) -> None:
        if iterator != self._iterators:
            raise UsageError("another iteration of this loader has begun")

    def _sync(self) -> None:
        """Update the progress from the current iteration."""
        if self._current is None:
            return
        backlog, batches = self._current.backlog, self._current.batches
        late = backlog.late()
        place = min(batches.begin(backlog.batch), len(self.records))
        is_over = backlog.batch >= len(batches)
        epoch = self._current_epoch
        self._progress = (
            Progress(epoch + 1)
            if is_over
            else Progress(epoch, place, batches.start, late)
        )

    def _iteration(self, progress: Progress, step: int = 0) -> Iteration:
        """Return an epoch from a place on.

        Args:
            step: distance of a worker's batches, which begin at the start in its
                progress; 0: no worker.
        """
        has_start = bool(progress.late or step)
        start = progress.start if has_start else progress.place
        batches = replace(self._batches, start=start)
        sizes = [len(batches.places(number)) for number in _last_first(len(batches))]
        ends = np.arange(1, len(batches) + 1, dtype=np.int64) * batches.batch_size
        if sizes:
            ends[-1] += sizes[-1] - batches.batch_size
        number = (progress.place - start) // batches.global_size
        late, window = progress.late, self.options.lateness
        backlog = Backlog(ends.tolist(), window, number, late, max(1, step))
        reach = Reach(
            self._plan.positions,
            self._plan.batches,
            self.options.slow_start,
            self._counts.epochs > 0,
        )
        tools = Tools(
            self._link,
            self._portions,
            self._counts,
            self._form,
            self.options.timeout,
            self._log,
            self._replay,
        )
        order = self._portions.epoch(progress.epoch)
        return Iteration(tools, order, batches, backlog, reach)

    # -- the reader --------------------------------------------------------------------

    def _identified(self, ranks: Ranks) -> Identity:
        given = self.options
        order = {
            "seed": given.seed,
            "shuffle": given.shuffle,
            "groups_in_flight": given.groups_in_flight,
            "group_bytes": given.group_bytes,
            "remainder": given.remainder,
        }
        dealt = {
            "batch_size": given.batch_size,
            "rank": ranks.rank,
            "world_size": ranks.world_size,
        }
        return Identity(self.records.index.fingerprint(), order, dealt)

    def _reader_of(self, ranks: Ranks) -> dict[str, Any]:
        """Return the key and the settings of the reader, the same on all ranks."""
        given, source = self.options, self.records.source
        is_known = isinstance(source, FileSource) or source.index.keys is not None
        threads = int(getattr(source, "concurrency", _THREADS))
        settings = {
            **self._identity.order,
            "fingerprint": self._identity.fingerprint,
            "batch_size": given.batch_size,
            "world_size": ranks.world_size,
            "memory_limit": self._plan.memory_limit,
            "window": self._window(ranks),
            "window_is_auto": given.window == "auto",
            "readers_max": given.readers_max,
            "threads": min(threads, given.readers_max or threads),
            "token_server": self._token_server(ranks),
            "source": "" if is_known else pickle.dumps(source).hex(),
        }
        named = f"{ranks.job} {sorted(settings.items())}"
        self._base = xxh3_128_hexdigest(named.encode())
        number = _open_keys.get(self._base, 0)
        _open_keys[self._base] = number + 1
        settings["sys_path"] = list(sys.path)
        return {"key": f"{self._base}-{number}", "settings": settings}

    def _window(self, ranks: Ranks) -> int:
        """Return the window of this node's reader: its part of readers_max."""
        window, most = self._plan.window, self.options.readers_max
        if most is None or ranks.comm is None:
            return window
        nodes = len(set(ranks.comm.allgather(node_name())))
        return max(1, min(window, most // nodes))

    def _early_reads(self) -> EarlyReads | None:
        """Return early reads; None if memory or reads are limited, or not possible."""
        given, source = self.options, self.records.source
        has_limits = given.memory_limit is not None or given.readers_max is not None
        is_read = self._portions.is_shared and not source.index.is_decoded
        if has_limits or not is_read or not isinstance(source, FileSource):
            return None
        return EarlyReads(self._portions, source)

    def _token_server(self, ranks: Ranks) -> list[Any] | None:
        """Return the address of the token server of all readers; None: no tokens."""
        tokens = self.options.readers_max
        if tokens is None or ranks.comm is None or ranks.world_size < 2:
            return None
        address = None
        if ranks.rank == 0:
            host = next(iter(own_addresses()), "127.0.0.1")
            self._server = TokenServer(tokens, host)
            address = self._server.address
        found: list[Any] = ranks.told_by_first(address)
        return found


def _last_first(count: int) -> range:
    """Return the number of the last batch, the only one whose size may differ."""
    return range(max(0, count - 1), count)
