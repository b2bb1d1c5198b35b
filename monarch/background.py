"""Runs functions in daemon threads, for the event loop and with time limits."""

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
    """Run a function in a daemon thread; the future completes in the event loop."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def complete(result: T | None, error: BaseException | None) -> None:
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
        with contextlib.suppress(RuntimeError):  # the loop may be closed
            loop.call_soon_threadsafe(complete, *outcome)

    _start(work, function)
    return future


def within(limit_s: float, step: Callable[[], T]) -> T:
    """Return the result of a step that runs in a daemon thread.

    Raises:
        TimeoutError: the step has not ended in time; its thread continues.
    """
    return begin(step)(limit_s)


def begin(step: Callable[[], T]) -> Callable[[float], T]:
    """Start a step in a daemon thread; return a function that waits for its result."""
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

    _start(work, step)
    return wait


def _start(work: Callable[[], None], function: Callable[..., Any]) -> None:
    """Start a thread with the name of its function."""
    inner = function.func if isinstance(function, partial) else function
    name = getattr(inner, "__qualname__", type(inner).__name__)
    threading.Thread(target=work, name=name, daemon=True).start()


def _raise(error: BaseException) -> Any:
    raise error


def log_failure(task: "asyncio.Future[Any]") -> None:
    """Log the exception of a task that is not awaited."""
    if not task.cancelled() and task.exception() is not None:
        log.error("task failed", exc_info=task.exception())
