"""The arguments of a loader, named as in other loaders."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, fields
from difflib import get_close_matches
from typing import Any, Final, Literal, TypedDict, get_args

from monarch.errors import UsageError
from monarch.loader.batch import Output
from monarch.loader.order import Remainder, Shuffle

MIB: Final = 1 << 20


Start = Literal["whole", "early"]


class LoaderOptions(TypedDict, total=False):
    """The arguments of a loader by name; `Options` describes them."""

    seed: int
    shuffle: Shuffle | None
    groups_in_flight: int
    group_bytes: int
    rank: int | None
    world_size: int | None
    comm: Any
    start: Start
    remainder: Remainder
    in_order: bool
    reorder_window: int
    slow_start: int
    prefetch_batches: int | None
    memory_limit: int | None
    readers_max: int | None
    window: int | Literal["auto"]
    decode: Callable[[memoryview], Any] | None
    collate_fn: Callable[[Any], Any] | None
    output: Output
    timeout: float
    order_log: str | os.PathLike[str] | None
    replay: str | os.PathLike[str] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The arguments of a loader.

    Attributes:
        batch_size: Records in a batch of each rank.
        seed: seed of the order; the same on all ranks.
        shuffle: "group": Groups are shuffled, and Records among `groups_in_flight` of
            them; "global": all Records, at the cost of a read for each; "none". None:
            "global" if each Record is an object of a store, else "group".
        groups_in_flight: number of Groups that are mixed with each other.
        group_bytes: bytes of consecutive Records that are read together.
        rank, world_size: by default from `comm`, torchrun, MPI or Slurm.
        comm: a communicator as of mpi4py, the same for all ranks.
        start: "early": the first epoch begins before all shards are indexed. It takes
            them in an order that `seed` shuffles; `len()` is unknown until the index is
            complete. "whole": the first epoch waits for the index.
        remainder: treatment of Records that fill no global batch: "drop", "pad" or
            "uneven".
        in_order: False: a batch does not wait for a late Record.
        reorder_window: batches by which a Record may be late; 0: 4 if not in order.
        slow_start: batches after which one more is requested ahead; 0: all at once.
        prefetch_batches: batches to request ahead; None: as many as fit.
        memory_limit: bytes of all buffers of a node; None: twice the mixed Groups. In
            a first epoch, what is beyond these keeps shards that were read for their
            index.
        readers_max: maximum requests that are read at the same time, by the job if
            `comm` is given, else by each node.
        window: requests in flight to a store from each node; "auto": as many as its
            rate and the round trip need, within `memory_limit`.
        decode: called by the rank for each Record.
        collate_fn: called with each batch; the loop gets its result.
        output: "memoryview", "numpy" or "torch".
        timeout: seconds after which a wait fails with an error.
        order_log: file to which the order of the batches is written.
        replay: such a file, whose order is repeated.
    """

    batch_size: int
    seed: int = 0
    shuffle: Shuffle | None = None
    groups_in_flight: int = 16
    group_bytes: int = 4 * MIB
    rank: int | None = None
    world_size: int | None = None
    comm: Any = None
    start: Start = "whole"
    remainder: Remainder = "drop"
    in_order: bool = True
    reorder_window: int = 0
    slow_start: int = 0
    prefetch_batches: int | None = None
    memory_limit: int | None = None
    readers_max: int | None = None
    window: int | Literal["auto"] = "auto"
    decode: Callable[[memoryview], Any] | None = None
    collate_fn: Callable[[Any], Any] | None = None
    output: Output = "memoryview"
    timeout: float = 60.0
    order_log: str | os.PathLike[str] | None = None
    replay: str | os.PathLike[str] | None = None

    @classmethod
    def of(cls, batch_size: int, given: LoaderOptions) -> Options:
        """Return the given arguments, with defaults for all others.

        Raises:
            UsageError: an argument is unknown or invalid.
        """
        known = [field.name for field in fields(cls)]
        for name in given:
            if name not in known:
                near = get_close_matches(name, known, 1)
                hint = f"; did you mean {near[0]}?" if near else ""
                raise UsageError(f"Loader has no argument {name!r}{hint}")
        found = cls(batch_size=batch_size, **given)
        found.check()
        return found

    def check(self) -> None:
        """Check the values that no other part checks.

        Raises:
            UsageError: a value is invalid.
        """
        least = {
            "group_bytes": 1,
            "reorder_window": 0,
            "slow_start": 0,
            "prefetch_batches": 0,
            "memory_limit": 1,
            "readers_max": 1,
        }
        for name, limit in least.items():
            value = getattr(self, name)
            if value is not None and value < limit:
                raise UsageError(f"{name}={value} is less than {limit}")
        if self.window != "auto" and not (
            isinstance(self.window, int) and self.window >= 1
        ):
            raise UsageError(f"window={self.window!r} is neither 'auto' nor 1 or more")
        if self.start not in get_args(Start):
            known = ", ".join(get_args(Start))
            raise UsageError(f"start={self.start!r} is not valid; use one of {known}")
        if self.start == "early":
            self._check_early()
        if self.timeout <= 0:
            raise UsageError(f"timeout={self.timeout} is not a time")
        if self.in_order and self.reorder_window:
            text = f"reorder_window={self.reorder_window} needs in_order=False"
            raise UsageError(text)

    def _check_early(self) -> None:
        """Reject arguments that an early first epoch does not support.

        Raises:
            UsageError: such an argument was given.
        """
        for name in ("order_log", "replay"):
            if getattr(self, name) is not None:
                raise UsageError(f"{name} needs start='whole'")
        if self.readers_max is not None and self.comm is not None:
            text = "readers_max of all nodes of a comm needs start='whole'"
            raise UsageError(text)

    @property
    def lateness(self) -> int:
        """Return the number of batches by which a Record may be late."""
        if self.in_order:
            return 0
        return self.reorder_window or 4


def depth(consumed: int, ahead: int, slow_start: int) -> int:
    """Return how many batches to request ahead (the ramp-up of arXiv 2503.22643).

    Args:
        consumed: number of batches delivered so far.
        ahead: number of batches requested after the ramp-up.
        slow_start: see `Options`.
    """
    if not slow_start:
        return ahead
    return min(ahead, -(-consumed // slow_start))
