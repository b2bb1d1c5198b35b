"""PyTorch: a dataset for `DataLoader`, and a sampler that announces the next reads."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from multiprocessing.util import Finalize
from typing import Any, Final, Unpack

try:
    import torch
    from torch.utils.data import IterableDataset, get_worker_info
except ImportError as error:
    raise ImportError(
        "monarch.integrations.torch needs PyTorch, which is not installed"
    ) from error

from monarch.errors import UsageError
from monarch.integrations.sampler import HintingSampler
from monarch.loader import Loader
from monarch.loader.batch import Batch, Own
from monarch.loader.epochs import Epochs, Share
from monarch.loader.options import LoaderOptions
from monarch.loader.progress import Progress
from monarch.loader.worker import Worker
from monarch.records import Records

__all__ = ["HintingSampler", "LoaderDataset"]

_CLOSE_FIRST: Final = 10


class LoaderDataset(IterableDataset):  # type: ignore[misc]
    """The batches of a loader, for `DataLoader(dataset, batch_size=None)`.

    With n workers, each yields every n-th batch, so that the `DataLoader` returns them
    in the order of the loader; `decode` and `collate_fn` of the loader run in the
    workers. All batches stay valid. It is a `Stateful` of torchdata.

    Args:
        records: a loader, or the first argument of one.
        batch_size: of a loader that is made here.
        options: of a loader that is made here.

    Raises:
        UsageError: an argument is not valid; the text names it.
    """

    def __init__(
        self,
        records: Loader | Records | str | os.PathLike[str] | list[str],
        batch_size: int | None = None,
        **options: Unpack[LoaderOptions],
    ) -> None:
        if not isinstance(records, Loader):
            if batch_size is None:
                raise UsageError(
                    "LoaderDataset needs batch_size, as DataLoader has none"
                )
            records = Loader(records, batch_size, **options)
        elif options or batch_size is not None:
            raise UsageError("LoaderDataset takes a loader or its arguments, not both")
        self.loader = records
        self.loader.hold()
        self._epochs = Epochs()
        self._running: int | None = None
        self._over: int | None = None
        self._worker: tuple[int, Worker] | None = None
        self._resumed: Mapping[str, Any] | None = None

    def __repr__(self) -> str:
        return f"<LoaderDataset of {self.loader!r}>"

    def __len__(self) -> int:
        """Return how many batches this rank has in an epoch."""
        return len(self.loader)

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of the next iteration; by default it is the next epoch.

        Raises:
            UsageError: it is negative.
        """
        if epoch == self._over:  # a checkpoint has ended it
            return
        self._over = None
        self.loader.set_epoch(epoch)
        self._epochs.tell(epoch)

    def close(self) -> None:
        """Leave the reader of the node."""
        self.loader.close()

    def __iter__(self) -> Iterator[Any]:
        """Return the batches of an epoch, or a worker's share of them.

        Raises:
            UsageError: the `DataLoader` would make batches of batches, or the loader
                cannot be shared.
        """
        if sys._getframe(1).f_locals.get("auto_collation"):
            raise UsageError(
                "LoaderDataset yields batches: use DataLoader(dataset, batch_size=None)"
            )
        info = get_worker_info()
        if info is None:
            return self._in_one_process()
        worker = self._of_process(Share(info.id, info.num_workers))
        progress = None
        if self._resumed is not None:
            progress, self._resumed = worker.progress(self._resumed), None
        seed = info.seed - info.id  # of all workers of the DataLoader
        resumed = None if progress is None else progress.epoch
        told = self._epochs.begin(seed, worker.share, resumed)
        return self._in_worker(worker, progress or worker.start(*told))

    # -- checkpoints -------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Return the progress of this process; see `state_after` for the main process.

        Raises:
            UsageError: workers deliver the batches, and only they have the state.
        """
        if get_worker_info() is not None:
            return self._of_process(None).state()
        if self._epochs.have_begun:
            raise UsageError(
                "workers deliver the batches: use state_after(epoch, batches) of the "
                "dataset, or torchdata's StatefulDataLoader"
            )
        state = self.loader.state_dict()
        over = self._over
        if self._running is not None and state["epoch"] > self._running:
            over = self._running
        return state if over is None else {**state, "over": over}

    def state_after(self, epoch: int, batches: int) -> dict[str, Any]:
        """Return the state after some batches of an epoch, which the program counts.

        It may be loaded for any number of workers and ranks.
        """
        return self.loader.state_after(epoch, batches)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a state.

        Raises:
            UsageError: the state is of other records, of another order, or of other
                workers.
        """
        if get_worker_info() is not None:
            self._resumed = state
            return
        if "share" in state:
            text = "worker {} of {}".format(*state["share"])
            raise UsageError(f"the state is of {text}: num_workers must be the same")
        self.loader.load_state_dict(state)
        self._over, self._running = state.get("over"), None
        self._epochs.tell(state["epoch"], state["place"])

    # -- where batches come from -------------------------------------------------------

    def _in_one_process(self) -> Iterator[Any]:
        if self._over is not None:
            self._over = None
            return
        iterator = iter(self.loader)
        self._running = self.loader.state_dict()["epoch"]
        for batch in iterator:
            yield batch.keep() if isinstance(batch, Batch) else batch
        self._running = None

    def _in_worker(self, worker: Worker, progress: Progress) -> Iterator[Any]:
        options = self.loader.options
        collate = options.collate_fn
        # Receivers map the memory with the bytes, unless only results made from them
        # are sent.
        is_sent = options.decode is None and (
            collate is None or options.output == "torch"
        )
        allocate = _in_shared_memory if is_sent else None
        for batch in worker.give(progress, lambda one: one.keep(allocate)):
            if collate is not None:
                yield collate(batch)
                continue
            if options.decode is not None:
                _ = batch.records  # an error is raised here, not in a queue's thread
            yield batch
        self.loader.tell_figures()

    def _of_process(self, share: Share | None) -> Worker:
        """Return the worker of this process."""
        if self._worker is None or self._worker[0] != os.getpid():
            info = get_worker_info()
            share = share or Share(info.id, info.num_workers)
            self._worker = os.getpid(), self.loader.worker(*share)
            Finalize(None, self.loader.close, exitpriority=_CLOSE_FIRST)
        return self._worker[1]

    def __getstate__(self) -> dict[str, Any]:
        """Return the state with which a spawned worker continues."""
        return {**self.__dict__, "_worker": None}


def _in_shared_memory(size: int) -> Own:
    storage = torch.UntypedStorage._new_shared(max(1, size))
    tensor = torch.empty(0, dtype=torch.uint8).set_(storage)
    return Own(tensor.numpy()[:size], tensor)
