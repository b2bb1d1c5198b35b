"""Confirms, at the lowest priority, an index that an earlier job has saved."""

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from monarch.agent.namespace import Namespace
from monarch.background import in_thread, log_failure
from monarch.origins.recheck import Compared, compare

BATCH_FILES: Final = 64
THREADS: Final = 4
"""Few at a time: programs have precedence at the origin."""
THREADS_AT_START: Final = 16
PAUSE_S: Final = 0.005
DEMAND_PAUSE_S: Final = 0.05
"""The time without an answered cold open after which the comparison continues."""

log = logging.getLogger("monarch.agent")


class _Part(NamedTuple):
    """Some Files of one root, by their numbers in its block."""

    root: int
    numbers: Sequence[int]


class Judge(Protocol):
    """Receives the results of comparisons."""

    def confirm(self, files: npt.NDArray[np.int64]) -> None:
        """Note unchanged Files."""

    def mark_written(self, file: int) -> None:
        """Note a changed File."""


def provisional_roots(namespace: Namespace) -> list[int]:
    """Return the roots whose attributes are those of an earlier job."""
    roots = namespace.segments.record("catalog")["roots"][: len(namespace.roots)]
    return np.flatnonzero(roots["provisional"]).tolist()


def unconfirmed(namespace: Namespace, files: Sequence[int]) -> set[int]:
    """Return the Files of provisional roots that are not found unchanged.

    A Replica of an earlier job is not compared with the origin when it is adopted.
    """
    found: set[int] = set()
    numbers = np.array(files, np.int64)
    for root in provisional_roots(namespace):
        base, count = namespace.bases[root], namespace.roots[root].block.file_count
        doubted = numbers[(numbers >= base) & (numbers < base + count)]
        parts = list(_parts(root, (doubted - base).tolist()))
        with ThreadPoolExecutor(THREADS_AT_START) as threads:
            compared = threads.map(lambda part: _compare(namespace, part), parts)
            same = {base + n for one in compared for n in one.same.tolist()}
        found |= set(doubted.tolist()) - same
    return found


def _parts(root: int, numbers: Sequence[int]) -> Iterator[_Part]:
    for start in range(0, len(numbers), BATCH_FILES):
        yield _Part(root, numbers[start : start + BATCH_FILES])


def _compare(namespace: Namespace, part: _Part) -> Compared:
    root = namespace.roots[part.root]
    return compare(root.path, root.block, part.numbers)


class Rechecking:
    """Compares every File of the provisional roots with the origin, once.

    Args:
        judge: called with unchanged Files, and with changed ones.
        answered: returns the number of cold opens that have been answered so far.
    """

    def __init__(
        self,
        namespace: Namespace,
        judge: Judge,
        answered: Callable[[], int],
    ) -> None:
        self._namespace = namespace
        self._judge = judge
        self._answered = answered
        self.left = sum(
            namespace.roots[root].block.file_count
            for root in provisional_roots(namespace)
        )

    def __repr__(self) -> str:
        return f"<Rechecking {self.left} files left>"

    def begin(self) -> "asyncio.Task[None]":
        """Begin to compare all Files, with pauses while programs wait for Files."""
        task = asyncio.create_task(self._run())
        task.add_done_callback(log_failure)
        return task

    async def _run(self) -> None:
        for root in provisional_roots(self._namespace):
            files = self._namespace.roots[root].block.file_count
            step = THREADS * BATCH_FILES
            for start in range(0, files, step):
                await self._wait_for_calm()
                await self._step(root, range(start, min(start + step, files)))

    async def _wait_for_calm(self) -> None:
        before = self._answered()
        await asyncio.sleep(PAUSE_S)
        while (now := self._answered()) != before:
            before = now
            await asyncio.sleep(DEMAND_PAUSE_S)

    async def _step(self, root: int, numbers: range) -> None:
        base = self._namespace.bases[root]
        comparing = [
            in_thread(_compare, self._namespace, part) for part in _parts(root, numbers)
        ]
        for one in await asyncio.gather(*comparing):
            self._judge.confirm(one.same + base)
            for number in one.changed.tolist():
                self._judge.mark_written(base + number)
        self.left -= len(numbers)
        if not self.left:
            log.info("saved index compared with the origin")
