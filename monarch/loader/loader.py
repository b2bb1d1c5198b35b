"""The loader, whose first epoch may begin before the index is complete."""

from __future__ import annotations

import os
import weakref
from collections.abc import Generator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final, Unpack

import numpy as np
import numpy.typing as npt
from xxhash import xxh3_128_hexdigest

from monarch.errors import UsageError
from monarch.loader.figures import index_progress
from monarch.loader.legs import NO_LEG, Leg, ShardIndexes, legs_of
from monarch.loader.options import LoaderOptions, Options
from monarch.loader.order import RecordOrder
from monarch.loader.progress import Progress
from monarch.loader.ranks import Ranks, find_ranks
from monarch.loader.whole import WholeLoader
from monarch.records import Records
from monarch.records.groups import group
from monarch.records.opening import expanded, is_store
from monarch.records.sharing import told_by_first
from monarch.records.sources import FileSource

Array = npt.NDArray[Any]

_KEY: Final = "early"


class Loader(WholeLoader):
    """Iterates over the batches of one rank, one epoch per iteration.

    The order of an epoch depends only on `seed` and its number; global batches are
    sliced over the ranks. One process of each node reads into memory that its ranks
    map. With `start="early"`, uses that need the whole index, such as workers and later
    epochs, wait for it.

    Args:
        records: the result of `open_records`, or its argument.
        batch_size: Records in a batch of each rank.
        options: see `Options`.

    Raises:
        UsageError: an argument is invalid; the text names it.
    """

    _legs: ShardIndexes | None = None
    _leg: tuple[Leg, WholeLoader] | None = None
    _following: tuple[Leg, WholeLoader] | None = None
    _resumed: tuple[int, Mapping[str, Any] | None] | None = None
    _is_whole = False
    _tries = 0

    def __init__(
        self,
        records: Records | str | os.PathLike[str] | Sequence[str],
        batch_size: int,
        **options: Unpack[LoaderOptions],
    ) -> None:
        is_early = options.get("start") == "early" and not isinstance(records, Records)
        comm = options.get("comm")
        names = _files(records, comm) if is_early else []
        if len(names) < 2:
            super().__init__(records, batch_size, **options)
            return
        self.options = Options.of(batch_size, options)
        ranks = find_ranks(
            self.options.rank, self.options.world_size, self.options.comm
        )
        self._ranks = ranks
        self.rank, self.world_size = ranks.rank, ranks.world_size
        self._plan_of_shards = legs_of(len(names), self.options.seed)
        progress = index_progress(ranks.rank, names)
        self._names = xxh3_128_hexdigest(
            "\0".join(map(os.path.abspath, names)).encode(errors="surrogateescape")
        )
        self._legs = ShardIndexes(names, self._plan_of_shards, progress)
        weakref.finalize(self, self._legs.stop)
        self._resumed = 0, None

    def __repr__(self) -> str:
        if self._legs is None or self._is_whole:
            return super().__repr__()
        return f"<Loader, rank {self.rank} of {self.world_size}, {self._legs!r}>"

    def __len__(self) -> int:
        """Return the number of batches of each rank in an epoch.

        Raises:
            TypeError: the index is not complete yet.
        """
        if self._legs is not None and not self._legs.are_known:
            raise TypeError(
                "the number of batches is unknown until the index is complete "
                "(start='early')"
            )
        self._complete()
        return super().__len__()

    def __getattr__(self, name: str) -> Any:
        """Wait for the whole index, and return the Records.

        Raises:
            AttributeError: unknown name.
        """
        if name != "records" or self._legs is None:
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")
        self._complete()
        return self.records

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for a spawned process, which continues as the same rank."""
        self._complete()
        return super().__getstate__()

    def __iter__(self) -> Generator[Any, None, None]:
        """Return the batches of an epoch, or the rest of a resumed one."""
        if self._resumed is not None and self._place()[0] == len(self._plan_of_shards):
            self._end_early()  # the last iteration was stopped after all batches
            self._progress = Progress(1)
        if self._resumed is None:
            self._complete()
            return super().__iter__()
        self._tries += 1
        return self._early_epoch(*self._place(), self._tries)

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of the next iteration; only epoch 0 can be early.

        Raises:
            UsageError: it is negative.
        """
        if epoch < 0:
            raise UsageError(f"epoch={epoch} is negative")
        if epoch or self._resumed is None:
            self._end_early()
            super().set_epoch(epoch)

    def state_dict(self) -> dict[str, Any]:
        """Return the progress of this rank."""
        if self._resumed is None:
            self._complete()
            return super().state_dict()
        leg, state = self._place()
        return {_KEY: {"leg": leg, "state": state, **self._told_shards()}}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume from a state; the next iteration returns the rest of its epoch.

        Raises:
            UsageError: the state belongs to other records, or to another order.
        """
        early = state.get(_KEY)
        if self._legs is None or early is None:
            self._end_early()
            super().load_state_dict(state)
            return
        for name, value in self._told_shards().items():
            if early.get(name) != value:
                text = (
                    f"the state has {name}={early.get(name)!r}, this loader {value!r}"
                )
                raise UsageError(f"{text}: the early epoch would differ")
        self._end_early(completes=False)
        self._resumed = early["leg"], early["state"]
        if early["leg"] == len(self._plan_of_shards):  # all batches were delivered
            self._end_early()
            self._progress = Progress(1)

    def close(self) -> None:
        """Leave the reader of the node, which ends with its last rank."""
        if self._legs is not None:
            self._legs.stop()
            self._close_leg()
            self._close_following()
        if self._legs is None or self._is_whole:
            super().close()

    def state_after(self, epoch: int, batches: int) -> dict[str, Any]:
        """Return the state of this rank after some batches of an epoch."""
        self._complete()
        return super().state_after(epoch, batches)

    def hold(self) -> None:
        """End the early epoch, and keep the node's reader for workers of this rank."""
        self._end_early()
        super().hold()

    def tell_figures(self) -> None:
        """Under `monarch run`, send the agent the figures so far."""
        if self._legs is None or self._is_whole:
            super().tell_figures()

    def stats(self) -> dict[str, Any]:
        """Return the figures of this leg of an early epoch, or of the loader."""
        return super().stats() if self._leg is None else self._leg[1].stats()

    def _complete(self) -> None:
        """Wait for the whole index, and become its loader.

        Raises:
            RecordsError: it cannot be made.
        """
        if self._legs is None or self._is_whole:
            return
        index = self._legs.whole()
        self._is_whole = True
        self._set_up(Records(FileSource(index), True), self.options, self._ranks)

    def _end_early(self, *, completes: bool = True) -> None:
        """End the early epoch; an iteration that continues it raises an error.

        Args:
            completes: wait for the whole index.
        """
        self._tries += 1
        self._close_leg()
        self._close_following()
        self._resumed = None
        if completes:
            self._complete()

    def _early_epoch(
        self, first: int, state: Mapping[str, Any] | None, number: int
    ) -> Generator[Any, None, None]:
        """Yield the batches of the first epoch from a leg on.

        Args:
            state: state in that leg.
            number: number of this iteration.
        """
        assert self._legs is not None
        collate = self.options.collate_fn
        self._close_leg()
        leg, before = NO_LEG, first
        while before and not leg.is_last:
            leg, before = self._leg_behind(leg), before - 1
        while not leg.is_last:
            leg, loader = self._taken(leg)
            if state is not None and leg.number == first:
                loader.load_state_dict(state)
            self._leg, self._resumed = (leg, loader), (leg.number, None)
            for batch in loader:
                self._legs.go_on()
                self._prepare(leg)
                batch.ids = leg.ids[batch.ids]
                yield batch if collate is None else collate(batch)
                if number != self._tries:
                    raise UsageError("another iteration of this loader has begun")
            self._close_leg()
        self._end_early()
        self._progress = Progress(1)

    def _taken(self, leg: Leg) -> tuple[Leg, WholeLoader]:
        """Return the leg after this one, and its loader, which may exist already."""
        following = self._following
        if following is not None and following[0].number == leg.number + 1:
            self._following = None
            return following
        self._close_following()
        found = self._leg_behind(leg)
        return found, self._loader_of(found)

    def _prepare(self, leg: Leg) -> None:
        """Start the reader of the next leg or epoch, if its index is made by now."""
        assert self._legs is not None
        if self._following is not None or self._is_whole:
            return
        if leg.is_last:
            self._complete()
            super().hold()
        elif self._legs.is_made(leg.number + 1):
            found = self._leg_behind(leg)
            self._following = found, self._loader_of(found)
            self._following[1].hold()

    def _leg_behind(self, leg: Leg) -> Leg:
        """Wait for the index of the leg after this one, and return that leg."""
        assert self._legs is not None
        number = leg.number + 1
        indexes = self._legs.of_leg(number)
        is_last = number == len(self._plan_of_shards) - 1
        found = leg.next(indexes, self._rest_of(leg), is_last)
        if found.index.is_decoded:
            raise UsageError(
                f"{found.index.objects[0].path}: start='early' needs records that are "
                "not compressed together; use start='whole'"
            )
        return found

    def _rest_of(self, leg: Leg) -> Array:
        """Return the Records of a leg that fill no global batch."""
        given = self.options
        if not len(leg.index):
            return np.empty(0, np.int64)
        order = RecordOrder(
            group(leg.index, given.group_bytes),
            seed=given.seed,
            shuffle=given.shuffle or "group",
            window=given.groups_in_flight,
        )
        size = given.batch_size * self.world_size
        whole = len(order) // size * size
        return order.epoch(0).records(whole, len(order))

    def _loader_of(self, leg: Leg) -> WholeLoader:
        """Return the loader of a leg."""
        given = replace(self.options, comm=None, collate_fn=None, start="whole")
        if not leg.is_last:
            given = replace(given, remainder="drop")
        loader = WholeLoader.__new__(WholeLoader)
        ranks = Ranks(self.rank, self.world_size, "arguments", self._ranks.job)
        loader._set_up(Records(FileSource(leg.index), True), given, ranks)
        return loader

    def _place(self) -> tuple[int, Mapping[str, Any] | None]:
        """Return the number of the current or next leg, and its state."""
        assert self._resumed is not None
        if self._leg is None:
            return self._resumed
        leg, loader = self._leg
        state = loader.state_dict()
        return (leg.number, state) if not state["epoch"] else (leg.number + 1, None)

    def _close_leg(self) -> None:
        if self._leg is not None:
            self._resumed = self._place()
            _close(self._leg[1])
            self._leg = None

    def _close_following(self) -> None:
        if self._following is not None:
            _close(self._following[1])
            self._following = None

    def _told_shards(self) -> dict[str, Any]:
        given = self.options
        size = given.batch_size * self.world_size
        return {
            "shards": self._names,
            "seed": given.seed,
            "shuffle": given.shuffle or "group",
            "groups_in_flight": given.groups_in_flight,
            "group_bytes": given.group_bytes,
            "remainder": given.remainder,
            "global_batch": size,
        }


def _close(loader: WholeLoader) -> None:
    loader.close()
    loader.records.close()


def _files(records: Any, comm: Any) -> list[str]:
    """Return the files that match paths and patterns; none for a store."""
    given = [records] if isinstance(records, str | os.PathLike) else list(records)
    find = partial(expanded, [os.fspath(one) for one in given])
    names = find() if comm is None else told_by_first(comm, find)
    return [] if is_store(names[0]) else names
