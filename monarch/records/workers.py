"""Threads that index files and do not delay the end of their process.

The threads of `concurrent.futures.ThreadPoolExecutor` are joined when the interpreter
ends, after all queued work: Ctrl-C would wait for the index of all shards.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from types import TracebackType
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")
Work = tuple[Future[Any], Callable[[], Any]]


class Workers(Executor):
    """Daemon threads that start on demand.

    Args:
        most: maximum number of threads.
        name: name of the threads.
    """

    def __init__(self, most: int, name: str) -> None:
        self._most = most
        self._name = name
        self._queue: queue.SimpleQueue[Work | None] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"<Workers {self._name}, {len(self._threads)} of {self._most}>"

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Wait for the threads; after an error, cancel queued work and do not wait."""
        self.shutdown(wait=error is None, cancel_futures=error is not None)

    def submit(
        self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs
    ) -> Future[T]:
        """Queue a call for the threads."""
        future: Future[T] = Future()
        self._queue.put((future, lambda: fn(*args, **kwargs)))
        with self._lock:
            if len(self._threads) < self._most:
                thread = threading.Thread(
                    target=self._work, name=self._name, daemon=True
                )
                self._threads.append(thread)
                thread.start()
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End the threads after all submitted work.

        Args:
            wait: wait for their end.
            cancel_futures: cancel work that no thread has begun.
        """
        while cancel_futures and not self._queue.empty():
            work = self._queue.get()
            if work is not None:
                work[0].cancel()
        for _ in self._threads:
            self._queue.put(None)
        for thread in self._threads if wait else ():
            thread.join()

    def _work(self) -> None:
        while (work := self._queue.get()) is not None:
            future, call = work
            if not future.set_running_or_notify_cancel():
                continue
            try:
                future.set_result(call())
            except BaseException as error:
                future.set_exception(error)
