"""The indexes of all datasets, made side by side: a root that hangs delays no other."""

import logging
import threading
import time
from collections.abc import Callable
from typing import Final

from monarch.agent.launcher_pipe import Notifier
from monarch.agent.setup import Setup
from monarch.errors import UsageError
from monarch.origins.dataset import Dataset, Indexed, empty_index, prepare_index
from monarch.tiers.probe import FAULTS
from monarch.units import format_count

PROGRESS_AFTER_S: Final = 1.0
SILENT_S: Final = 5.0
"""A root whose scan finds no name for so long hangs; a slow one goes on finding."""
LOOK_S: Final = 0.1

log = logging.getLogger("monarch.agent")


def index_datasets(setup: Setup, notifier: Notifier) -> list[Indexed]:
    """Load or scan the index of every dataset, saying so where it takes long.

    Where there are several, one that fails or hangs is left to the origin as soon as
    `catalog.wait_max` is over and another one is there.

    Raises:
        UsageError: a dataset is not what was meant.
    """
    indexings = [Indexing(dataset, setup, notifier) for dataset in setup.datasets]
    for indexing in indexings:
        threading.Thread(target=indexing.run, daemon=True).start()
    deadline_s = time.monotonic() + setup.config.catalog.wait_max
    for indexing in indexings:
        while not indexing.ended.wait(LOOK_S):
            late = time.monotonic() >= deadline_s
            if late and indexing.hangs and any(one.result for one in indexings):
                break
    return [_taken(indexing, indexings, notifier) for indexing in indexings]


def _taken(
    indexing: "Indexing", all_of_them: "list[Indexing]", notifier: Notifier
) -> Indexed:
    error = indexing.error
    if indexing.result is not None:
        return indexing.result
    cause = error.__cause__ if error is not None else None
    failed = isinstance(cause, OSError) and cause.errno in FAULTS
    meant = isinstance(error, UsageError) and not failed
    if meant or not any(one.result for one in all_of_them):
        raise error or AssertionError("nothing has ended")
    why = error or f"its scan has had no answer for {SILENT_S:g} s"
    log.warning("no index path=%s", indexing.dataset.path, exc_info=error)
    notifier.warn(f"{indexing.dataset.path} is left to the origin: {why}")
    return empty_index(indexing.dataset)


class Indexing:
    """The making of one index, which may never end.

    Attributes:
        ended: set when there is a result or an error.
    """

    def __init__(self, dataset: Dataset, setup: Setup, notifier: Notifier) -> None:
        self.dataset = dataset
        self.ended = threading.Event()
        self.result: Indexed | None = None
        self.error: Exception | None = None
        self._threads = setup.config.catalog.scan_threads
        self._notifier = notifier
        self._tell = progress_of(dataset.path, notifier)
        self._names = -1
        self._moved_s = time.monotonic()
        self._answered = False

    def __repr__(self) -> str:
        return f"<Indexing {self.dataset.path} {self._names} names>"

    @property
    def hangs(self) -> bool:
        """Whether the origin owes an answer for too long."""
        silent_s = time.monotonic() - self._moved_s
        return not self._answered and silent_s >= SILENT_S

    def run(self) -> None:
        """Make the index; for a thread that nobody waits for."""
        try:
            self.result = prepare_index(
                self.dataset,
                threads=self._threads,
                warn=self._notifier.warn,
                progress=self._note,
                answered=self._note_answered,
            )
        except Exception as error:
            self.error = error
        finally:
            self.ended.set()

    def _note(self, names: int) -> None:
        if names != self._names:
            self._names, self._moved_s = names, time.monotonic()
        self._tell(names)

    def _note_answered(self) -> None:
        self._answered = True


def progress_of(path: str, notifier: Notifier) -> Callable[[int], None]:
    """Return what tells the launcher how far a scan is, once it takes long."""
    started_s = time.monotonic()

    def tell(entries: int) -> None:
        if time.monotonic() - started_s >= PROGRESS_AFTER_S:
            notifier.progress(f"scanning {path}: {format_count(entries)} names")

    return tell
