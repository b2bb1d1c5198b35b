"""A worker: one of several processes that share the batches of a rank.

Worker `w` of `n` returns the batches `w`, `w + n` and so on, all from the reader of the
node. It is idle while its program requests no batch, but must not keep its requested
portions in memory that others need. So a thread listens to the reader meanwhile.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from monarch.errors import UsageError
from monarch.loader.batch import Batch
from monarch.loader.epochs import Share
from monarch.loader.iteration import Iteration
from monarch.loader.link import ReaderLink
from monarch.loader.order import Batches
from monarch.loader.progress import Identity, Progress

_SLICE_S: Final = 0.5


class Worker:
    """Returns a share of the batches of a rank.

    Args:
        batches: batches of the rank.
        iterate: returns an epoch from a place on, with a distance between batches.
    """

    def __init__(
        self,
        share: Share,
        batches: Batches,
        iterate: Callable[[Progress, int], Iteration],
        identity: Identity,
        link: ReaderLink,
    ) -> None:
        self.share = share
        self._batches = batches
        self._iterate = iterate
        self._identity = identity
        self._listener = Listener(link)
        self._progress = Progress()

    def __repr__(self) -> str:
        return f"<Worker {self.share.number} of {self.share.workers}>"

    def start(self, epoch: int, place: int) -> Progress:
        """Return the start of this worker if the batches begin at a place."""
        begin = self.share.number * self._batches.global_size
        return Progress(epoch, place + begin, place)

    def give(
        self, progress: Progress, keep: Callable[[Batch], Batch]
    ) -> Iterator[Batch]:
        """Return the batches of the rest of an epoch, each of which stays valid.

        Args:
            keep: makes a batch that stays valid from one that does not.
        """
        self._progress = progress
        return self._given(progress, keep)

    def _given(
        self, progress: Progress, keep: Callable[[Batch], Batch]
    ) -> Iterator[Batch]:
        iteration = self._iterate(progress, self.share.workers)
        for batch in iteration:
            kept = keep(batch)
            batch.release()
            place = iteration.batches.begin(iteration.backlog.batch)
            self._progress = Progress(progress.epoch, place, progress.start)
            with self._listener.listening():
                yield kept

    def state(self) -> dict[str, Any]:
        """Return the progress of this worker, for a checkpoint."""
        return {**self._identity.state(self._progress), "share": list(self.share)}

    def progress(self, state: Mapping[str, Any]) -> Progress:
        """Return the progress in the state of a checkpoint.

        Raises:
            UsageError: the state belongs to another worker, records or order.
        """
        found = state.get("share")
        if found is None or Share(*found) != self.share:
            of = "a rank" if found is None else "worker {} of {}".format(*found)
            raise UsageError(
                f"the state is of {of}, this is worker {self.share.number} of "
                f"{self.share.workers}: num_workers must be the same"
            )
        return self._identity.progress(state)


class Listener:
    """Listens to the reader in a thread, while the thread of the loader does not."""

    def __init__(self, link: ReaderLink) -> None:
        self._link = link
        self._may = threading.Event()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def __repr__(self) -> str:
        return f"<Listener to {self._link!r}>"

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Let the thread listen until the end of the block."""
        if self._thread is None:
            self._thread = threading.Thread(
                target=self._listen, name="loader", daemon=True
            )
            self._thread.start()
        self._may.set()
        try:
            yield
        finally:
            self._may.clear()
            with self._lock:  # wait for the message that it is processing
                pass

    def _listen(self) -> None:
        while self._may.wait():
            has_message = self._link.wait_for_message(_SLICE_S)
            with self._lock:
                if has_message and self._may.is_set() and not self._link.hear_idly():
                    self._may.clear()
