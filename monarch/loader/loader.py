"""The loader: exact shuffled epochs of Records, read in Groups, once for each node."""

from __future__ import annotations

import atexit
import os
import pickle
import sys
import weakref
from collections.abc import Generator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, Unpack

import numpy as np
from xxhash import xxh3_128_hexdigest

from monarch.cluster import RUN_VARIABLE, own_addresses
from monarch.errors import MonarchError, UsageError
from monarch.loader.batch import Form
from monarch.loader.buffers import rounded
from monarch.loader.early import EarlyReads
from monarch.loader.figures import LoaderCounts
from monarch.loader.iteration import Iteration, Reach, Tools
from monarch.loader.link import ReaderLink
from monarch.loader.options import LoaderOptions, Options
from monarch.loader.order import Batches, RecordOrder
from monarch.loader.portions import ALIGN, GAP_ALONE, ROW, Portions
from monarch.loader.progress import (
    Backlog,
    Identity,
    OrderLog,
    Progress,
    replayed,
)
from monarch.loader.ranks import Ranks, find_ranks
from monarch.loader.tokens import TokenServer
from monarch.records import Records, open_records
from monarch.records.groups import Groups, group
from monarch.records.sources import FileSource, Source

_AHEAD_MIN: Final = 8
_BATCHES_AHEAD: Final = 8
_LATE: Final = 8
_THREADS: Final = 8
_FIGURES_S: Final = 2.0

_open_loaders: weakref.WeakSet[Loader] = weakref.WeakSet()
_open_keys: dict[str, int] = {}
"""How many loaders with the same settings this process has open."""


@atexit.register
def _close_all() -> None:
    """Close what a program has not closed, so that its figures are told."""
    for loader in list(_open_loaders):
        loader.close()


class Loader:
    """Gives the batches of one rank, epoch after epoch.

    The order of an epoch depends on `seed` and its number alone; global batches are
    sliced over the ranks. One process of each node reads, into memory that its ranks
    map.

    Args:
        records: what `open_records` returns, or what it takes.
        batch_size: of each rank.
        options: see `Options`.

    Raises:
        UsageError: an argument cannot be; the text names it.
    """

    def __init__(
        self,
        records: Records | str | os.PathLike[str] | Sequence[str],
        batch_size: int,
        **options: Unpack[LoaderOptions],
    ) -> None:
        given = Options.of(batch_size, options)
        self.records = (
            records if isinstance(records, Records) else open_records(records)
        )
        self.options = given
        ranks = find_ranks(given.rank, given.world_size, given.comm)
        self.rank, self.world_size = ranks.rank, ranks.world_size
        index = self.records.index
        groups = group(index, given.group_bytes)
        window = given.groups_in_flight
        order = RecordOrder(
            groups, seed=given.seed, shuffle=given.shuffle, window=window
        )
        self._batches = Batches(
            len(index), batch_size, ranks.rank, ranks.world_size, given.remainder
        )
        self._portions = Portions(order, replace(self._batches, rank=0))
        self._form = Form(given.output, given.decode, index.details)
        largest = rounded(self._largest(groups))
        self._memory = self._memory_limit(largest, order.window)
        self._room = max(1, self._memory // largest)
        self._counts = LoaderCounts()
        self._progress = Progress()
        self._told: int | None = None
        self._is_closed = False
        self._current: Iteration | None = None
        self._current_epoch = 0
        self._iterators = 0
        self._identity = self._identified(ranks)
        self._server: TokenServer | None = None
        self._link = self._linked(ranks)
        self._log = OrderLog(given.order_log) if given.order_log else None
        self._replay = replayed(given.replay) if given.replay else None
        _open_loaders.add(self)

    def __repr__(self) -> str:
        return (
            f"<Loader of {self.records.index!r}, rank {self.rank} of {self.world_size}>"
        )

    def __len__(self) -> int:
        """Return how many batches each rank has in an epoch."""
        return len(self._batches)

    def __enter__(self) -> Loader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def set_epoch(self, epoch: int) -> None:
        """Say which epoch the next iteration gives; without it, it is the next one.

        Raises:
            UsageError: it is negative.
        """
        if epoch < 0:
            raise UsageError(f"epoch={epoch} is negative")
        self._told = epoch

    def __iter__(self) -> Generator[Any, None, None]:
        """Return the batches of an epoch, or the rest of one that is resumed."""
        self._sync()
        progress = self._progress
        if self._told is not None and self._told != progress.epoch:
            progress = Progress(self._told)
        self._told = None
        self._progress = progress
        self._iterators += 1
        return self._iterate(progress, self._iterators)

    def state_dict(self) -> dict[str, Any]:
        """Return how far this rank is, as few numbers for a checkpoint.

        Without `reorder_window` it is the same on all ranks, and another number of them
        may go on from it.
        """
        self._sync()
        return self._identity.state(self._progress)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where a state was; the next iteration gives the rest of its epoch.

        Raises:
            UsageError: the state is of other records, or of another order.
        """
        self._current = None
        self._iterators += 1
        self._progress = self._identity.progress(state)
        self._told = None

    def stats(self) -> dict[str, Any]:
        """Return what was counted, by name; times in seconds, sizes in bytes."""
        figures = self._link.figures(_FIGURES_S)
        return self._counts.stats(figures, self._link.restarts)

    def close(self) -> None:
        """Leave the reader of the node, which ends with its last rank.

        Under `monarch run` the report of the job then has the figures of this loader.
        """
        if self._is_closed:
            return
        self._is_closed = True
        self._sync()
        if RUN_VARIABLE in os.environ and self._counts.batches:
            self._tell_agent()
        self._current = None
        self._link.close()
        if self._log is not None:
            self._log.close()
        if self._server is not None:
            self._server.close()
        _open_keys[self._base] = max(0, _open_keys.get(self._base, 1) - 1)

    def _tell_agent(self) -> None:
        from monarch.agent.control import ask

        told = {"rank": self.rank, "number": id(self), "stats": self.stats()}
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
        """Note how far the iteration is that goes on."""
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

    def _iteration(self, progress: Progress) -> Iteration:
        start = progress.start if progress.late else progress.place
        batches = replace(self._batches, start=start)
        sizes = [len(batches.places(number)) for number in _last_first(len(batches))]
        ends = np.arange(1, len(batches) + 1, dtype=np.int64) * batches.batch_size
        if sizes:
            ends[-1] += sizes[-1] - batches.batch_size
        number = (progress.place - start) // batches.global_size
        backlog = Backlog(ends.tolist(), self.options.window, number, progress.late)
        reach = Reach(
            self._room,
            self._batches_ahead(),
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

    def _batches_ahead(self) -> int | None:
        given = self.options.prefetch_batches
        if given is None and not self._portions.is_shared:
            return max(_BATCHES_AHEAD, self.options.window)
        return given

    # -- the reader --------------------------------------------------------------------

    def _largest(self, groups: Groups) -> int:
        """Return the bytes of the largest portion, as far as that is known."""
        index = groups.index
        if not len(index):
            return ALIGN
        row = ROW.itemsize + ALIGN
        if self.options.shuffle == "global":
            most = int(index.units["length"].max()) + GAP_ALONE + row
            return self.options.batch_size * most
        sizes = groups.request_bytes() + groups.record_counts() * row
        return int(sizes.max()) + ALIGN

    def _memory_limit(self, largest: int, window: int) -> int:
        """Return the limit of all buffers.

        Raises:
            UsageError: too little for one batch is allowed.
        """
        given = self.options.memory_limit
        if self.options.shuffle == "global":
            least, usual = 2, self._batches_ahead_or_usual() + 2
            if self.options.window:  # a late Record holds the memory of its batch
                usual *= _LATE
        else:
            least, usual = window + 1, window + max(window, _AHEAD_MIN)
        if given is None:
            return usual * largest
        if given < least * largest:
            raise UsageError(
                f"memory_limit={given} is less than the {least * largest} bytes that "
                f"{least} groups of {largest} bytes need; raise it, or lower "
                "groups_in_flight or group_bytes"
            )
        return given

    def _batches_ahead_or_usual(self) -> int:
        given = self.options.prefetch_batches
        return max(_BATCHES_AHEAD if given is None else given, self.options.window)

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

    def _linked(self, ranks: Ranks) -> ReaderLink:
        given, source = self.options, self.records.source
        is_file = isinstance(source, FileSource)
        threads = int(getattr(source, "concurrency", _THREADS))
        settings = {
            **self._identity.order,
            "fingerprint": self._identity.fingerprint,
            "batch_size": given.batch_size,
            "world_size": ranks.world_size,
            "memory_limit": self._memory,
            "readers_max": given.readers_max,
            "threads": min(threads, given.readers_max or threads),
            "token_server": self._token_server(ranks),
            "source": "" if is_file else pickle.dumps(source).hex(),
        }
        named = f"{ranks.job} {sorted(settings.items())}"
        self._base = xxh3_128_hexdigest(named.encode())
        number = _open_keys.get(self._base, 0)
        _open_keys[self._base] = number + 1
        settings["sys_path"] = list(sys.path)
        key = f"{self._base}-{number}"
        early = self._early_reads(source)
        index = self.records.index
        return ReaderLink(key, settings, index, ranks.rank, early)

    def _early_reads(self, source: Source) -> EarlyReads | None:
        """Return what reads until the reader does; not if memory or reads are few."""
        has_limits = (self.options.memory_limit, self.options.readers_max) != (
            None,
        ) * 2
        is_read = self._portions.is_shared and not source.index.is_decoded
        if has_limits or not is_read or not isinstance(source, FileSource):
            return None
        return EarlyReads(self._portions, source)

    def _token_server(self, ranks: Ranks) -> list[Any] | None:
        """Return where the readers of all nodes get their tokens."""
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
    """Return the number of the last batch, of which alone the size may differ."""
    return range(max(0, count - 1), count)
