"""Which test runs when, and beside which others, where workers share the tests.

The slow ones start first, so that none of them is the last one to run; those marked
`alone` come last, one after the other, while no other test runs.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

FIRST, USUAL, LAST = range(3)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> None:
    """Orders the tests, if there are workers."""
    if not _workers(config):
        return
    for item in items:
        if item.get_closest_marker("alone"):
            item.add_marker(pytest.mark.xdist_group("alone"))
    items.sort(key=_rank)


def _workers(config: pytest.Config) -> bool:
    return hasattr(config, "workerinput")


def _rank(item: pytest.Item) -> int:
    if item.get_closest_marker("alone"):
        return LAST
    return FIRST if item.get_closest_marker("slow") else USUAL


# Before the limits of time begin: a test that waits for others is not late.
@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Keeps the other workers from their next test while one runs that is alone."""
    if not _workers(item.config):
        return (yield)
    # Of the whole run: each worker has a folder of its own in it.
    folder = item.config._tmp_path_factory.getbasetemp().parent  # type: ignore[attr-defined]
    with _turn(folder, alone=item.get_closest_marker("alone") is not None):
        return (yield)


@contextmanager
def _turn(folder: Path, alone: bool) -> Iterator[None]:
    """Holds the right to run. Whoever waits to be alone keeps the gate, so that the
    others do not begin new tests for ever."""
    with _locked(folder / "gate", fcntl.LOCK_EX):
        running = _locked(folder / "running", fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        running.__enter__()
    try:
        yield
    finally:
        running.__exit__(None, None, None)


@contextmanager
def _locked(path: Path, kind: int) -> Iterator[None]:
    fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(fd, kind)
        yield
    finally:
        os.close(fd)
