"""Work that is done beside the event loop, in threads that no exit waits for."""

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

T = TypeVar("T")

log = logging.getLogger("monarch")


def in_thread(function: Callable[..., T], *arguments: Any) -> "asyncio.Future[T]":
    """Run a function beside the loop, in a thread that no exit waits for."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def settle(result: T | None, error: BaseException | None) -> None:
        if future.done():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)  # type: ignore[arg-type]

    def work() -> None:
        try:
            outcome: tuple[T | None, BaseException | None] = function(*arguments), None
        except BaseException as error:
            outcome = None, error
        with contextlib.suppress(RuntimeError):  # the loop may have ended without us
            loop.call_soon_threadsafe(settle, *outcome)

    threading.Thread(target=work, daemon=True).start()
    return future


def within(limit_s: float, step: Callable[[], T]) -> T:
    """Return what a step gives; one that hangs is left behind.

    Raises:
        TimeoutError: it has not ended in time.
    """
    return begin(step)(limit_s)


def begin(step: Callable[[], T]) -> Callable[[float], T]:
    """Begin a step in a thread of its own; return what waits so many seconds for it."""
    ends: list[Callable[[], T]] = []
    ended = threading.Event()

    def work() -> None:
        try:
            result = step()
            ends.append(lambda: result)
        except BaseException as error:
            ends.append(partial(_raise, error))
        ended.set()

    def wait(limit_s: float) -> T:
        if not ended.wait(limit_s):
            raise TimeoutError
        return ends[0]()

    threading.Thread(target=work, daemon=True).start()
    return wait


def _raise(error: BaseException) -> Any:
    raise error


def log_failure(task: "asyncio.Future[Any]") -> None:
    """Log what a task that nobody awaits has died of."""
    if not task.cancelled() and task.exception() is not None:
        log.error("task failed", exc_info=task.exception())
