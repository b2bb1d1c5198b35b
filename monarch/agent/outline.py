"""The outline: the segment of programs that start before the Catalog is ready."""

import asyncio
import logging
import time
from dataclasses import replace
from typing import Any, Final

from monarch import native
from monarch.agent.namespace import is_fault, open_policy
from monarch.agent.segments import Bytes, Segments
from monarch.agent.setup import Setup
from monarch.background import in_thread
from monarch.catalog.segment import plan_catalog
from monarch.errors import UsageError
from monarch.native import DTYPES, CatalogState
from monarch.origins.dataset import Dataset, Indexed, empty_index
from monarch.origins.root import open_root

ROOTS_S: Final = 1.0
"""How long programs wait for an answer of the datasets' roots before they start."""

log = logging.getLogger("monarch.agent")


async def outline_roots(setup: Setup) -> list[Indexed]:
    """Return an index without names for each dataset.

    A root that does not answer in time has no device: any change may be below it.

    Raises:
        UsageError: a dataset is not a readable directory.
    """
    asked = [in_thread(_outline_root, dataset) for dataset in setup.datasets]
    await asyncio.wait(asked, timeout=ROOTS_S)
    return [
        _answer(one, dataset)
        for one, dataset in zip(asked, setup.datasets, strict=True)
    ]


def _answer(asked: "asyncio.Future[Indexed]", dataset: Dataset) -> Indexed:
    if not asked.done():
        return empty_index(dataset)
    error = asked.exception()
    if isinstance(error, UsageError) and not is_fault(error):
        raise error
    return asked.result() if error is None else empty_index(dataset)


def _outline_root(dataset: Dataset) -> Indexed:
    """Return an index that contains only its root."""
    root, blank = open_root(dataset.path), empty_index(dataset)
    block = blank.index.block
    block.header["root_dev"], block.header["root_ino"] = root.dev, root.ino
    block.entries["ino"][0], block.attrs["dev"][0] = root.ino, root.dev
    native.index_finish(block.memory)
    return replace(blank, root=root)


class Outline:
    """A Catalog without names, and the changes of programs until the Catalog is ready.

    The Shim records each file and directory that a program changes in a table, by its
    identity. When the Catalog is ready, the entries become marks of its Files: the scan
    may have seen them before or after the change.
    """

    def __init__(self, setup: Setup, segments: Segments, roots: list[Indexed]) -> None:
        self._segments = segments
        self._revision = 0
        self._began_s = time.monotonic()
        self._ended_s: float | None = None
        generation = segments.generation
        plan = plan_catalog(
            [one.mapped() for one in roots], (), open_policy(setup, inner_mounts=False)
        )
        table = -(-plan.flags_length // 8) * 8

        def write_changes(_: str, memory: Bytes) -> None:
            plan.write_flags(memory, generation)
            _head(memory)["changes"] = table

        segments.create("changes", table + DTYPES["changes"].itemsize, write_changes)
        segments.create(
            "outline", plan.length, lambda _, m: plan.write_into(m, generation)
        )
        start, dtype = table, DTYPES["changes"]
        memory = segments.memory["changes"]
        self._table = memory[start : start + dtype.itemsize].view(dtype)[0]

    def __repr__(self) -> str:
        return f"<Outline revision {int(self._table['revision'])}>"

    @property
    def late_s(self) -> float:
        """How long the outline has been in use in place of a Catalog."""
        ended_s = time.monotonic() if self._ended_s is None else self._ended_s
        return ended_s - self._began_s

    def end(self) -> None:
        """Note that the Catalog is ready."""
        self._ended_s = time.monotonic()

    def apply(self) -> None:
        """Set the marks of all changes so far."""
        self._revision = int(self._table["revision"])
        memory = self._segments.memory
        native.changes_apply(
            *(memory[name] for name in ("outline", "changes", "catalog", "flags"))
        )

    def look(self) -> None:
        """Apply later changes of a process that cannot map the Catalog."""
        if int(self._table["revision"]) != self._revision:
            log.info("changes of a program without catalog applied")
            self.apply()


def serve_catalog(requests: Bytes, outline: Outline | None) -> None:
    """Make the Catalog visible to programs, with the marks of their earlier changes.

    A program that still finds no Catalog after a change has recorded the change before
    the table is read here; any other program sets the marks itself.
    """
    if outline is not None:
        native.catalog_state_store(requests, CatalogState.SETTLING)
        outline.apply()
        outline.end()
    native.catalog_state_store(requests, CatalogState.SERVED)


def _head(memory: Bytes) -> Any:
    dtype = DTYPES["flags"]
    return memory[: dtype.itemsize].view(dtype)[0]
