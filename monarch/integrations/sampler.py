"""A sampler that announces the files that a map-style dataset opens next.

It wraps any sampler or batch sampler of PyTorch, but does not need PyTorch.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Final

from monarch import hint
from monarch.cluster import RUN_VARIABLE
from monarch.errors import UsageError

AnyPath = str | bytes | os.PathLike[str] | os.PathLike[bytes]
PathOf = Callable[[int], AnyPath | Sequence[AnyPath]]
"""Returns the file of a sample, or its files."""

_AHEAD: Final = 1 << 20


class HintingSampler:
    """Yields the steps of a sampler, and passes their files to `monarch.hint` in order.

    The sampler is read ahead: `ahead` steps are announced at once, and the next ones
    when half of these are used. Outside a job of Monarch nothing is announced.

    Args:
        sampler: any iterable of indexes, or of lists of indexes.
        paths: a function that returns the file or the files of an index; or a dataset
            that has a list `samples` or `imgs` of paths with their classes, as
            `ImageFolder`, or a `Subset` of one.
        ahead: how many steps of the sampler are announced at once.

    Raises:
        UsageError: the dataset has no list of paths.
    """

    def __init__(
        self, sampler: Iterable[Any], paths: PathOf | Any, *, ahead: int = _AHEAD
    ) -> None:
        if ahead < 1:
            raise UsageError(f"ahead={ahead} is less than 1")
        self.sampler = sampler
        self._path_of = path_of(paths)
        self._ahead = ahead

    def __repr__(self) -> str:
        return f"<HintingSampler of {self.sampler!r}>"

    def __len__(self) -> int:
        """Return the length of the sampler."""
        length: int = len(self.sampler)  # type: ignore[arg-type]
        return length

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of the sampler, or of the sampler in a batch sampler."""
        inner = getattr(self.sampler, "sampler", None)
        for one in (self.sampler, inner):
            set_epoch = getattr(one, "set_epoch", None)
            if set_epoch is not None:
                set_epoch(epoch)
                return

    def __iter__(self) -> Iterator[Any]:
        """Yield the steps of the sampler."""
        steps = iter(self.sampler)
        waiting: deque[Any] = deque()
        is_over = False
        while not is_over or waiting:
            if not is_over and len(waiting) <= self._ahead // 2:
                fresh = list(islice(steps, self._ahead - len(waiting)))
                is_over = not fresh
                waiting.extend(fresh)
                if fresh and RUN_VARIABLE in os.environ:
                    hint(self._paths(waiting))
            if waiting:
                yield waiting.popleft()

    def _paths(self, steps: Iterable[Any]) -> Iterator[AnyPath]:
        for step in steps:
            indexes = step if isinstance(step, list | tuple) else [step]
            for index in indexes:
                found = self._path_of(int(index))
                if isinstance(found, list | tuple):
                    yield from found
                else:
                    yield found  # type: ignore[misc]


def path_of(paths: PathOf | Any) -> PathOf:
    """Return a function that returns the files of a sample.

    Raises:
        UsageError: it is neither a function nor a dataset that has a list of paths.
    """
    for name in ("samples", "imgs"):
        samples = getattr(paths, name, None)
        if isinstance(samples, Sequence) and not isinstance(samples, str | bytes):
            return lambda index: _first(samples[index])
    if hasattr(paths, "dataset") and hasattr(paths, "indices"):
        whole, indices = path_of(paths.dataset), paths.indices
        return lambda index: whole(int(indices[index]))
    if callable(paths):
        found: PathOf = paths
        return found
    raise UsageError(
        f"{type(paths).__name__} has no list of paths (samples, imgs): give a function "
        "that returns the path of an index"
    )


def _first(sample: Any) -> AnyPath:
    """Return the path of a sample of `ImageFolder`, which is a path and a class."""
    path: AnyPath = sample[0] if isinstance(sample, list | tuple) else sample
    return path
