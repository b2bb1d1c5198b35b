"""Figures that the loaders of programs report to the agent at their end."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from monarch.errors import MonarchError

if TYPE_CHECKING:  # most jobs have no loader, and import nothing for it
    from monarch.report.model import LoaderFigures

_ROWS_MAX: Final = 4096
_NAMES: Final = {
    "batches": "batches",
    "records": "records",
    "bytes": "bytes",
    "wait_p50_s": "exposed_wait_p50_s",
    "wait_p99_s": "exposed_wait_p99_s",
    "wait_max_s": "exposed_wait_max_s",
    "waited_s": "exposed_wait_s",
    "restarts": "reader_restarts",
}
"""The figures of a loader: our names, and the names of the loader."""
_READER_NAMES: Final = {
    "requests": "requests",
    "request_bytes": "request_bytes",
    "memory_bytes": "memory_peak_bytes",
    "retries": "retries",
    "hedges": "hedges",
    "store_delay_p50_s": "store_delay_p50_s",
    "store_delay_p99_s": "store_delay_p99_s",
    "store_window": "store_window",
    "store_reconnects": "store_reconnects",
}
"""The same for its reader."""


def _reader_of(stats: Mapping[str, Any]) -> LoaderFigures:
    """Return the figures of a loader's reader, as those of no rank.

    Raises:
        TypeError, ValueError: they are not valid.
    """
    from monarch.report.model import LoaderFigures

    figures: dict[str, Any] = {
        name: (float if name.endswith("_s") else int)(stats.get(given) or 0)
        for name, given in _READER_NAMES.items()
    }
    served = dict(stats.get("store_servers") or {})
    return LoaderFigures(
        **figures,
        store_servers=tuple(map(str, served)),
        store_served=tuple(map(int, served.values())),
    )


class LoaderRows:
    """Keeps the last figures of each loader of each process."""

    def __init__(self) -> None:
        self._rows: dict[tuple[int, int], LoaderFigures] = {}
        self._readers: dict[int, LoaderFigures] = {}

    def __repr__(self) -> str:
        return f"<LoaderRows, {len(self._rows)}>"

    def take(self, asked: dict[str, Any], pid: int) -> dict[str, Any]:
        """Store the figures of a loader of a process.

        Raises:
            MonarchError: these are not the figures of a loader.
        """
        from monarch.report.model import LoaderFigures

        try:
            stats, number = asked["stats"], int(asked["number"])
            figures: dict[str, Any] = {
                name: (float if name.endswith("_s") else int)(stats[given])
                for name, given in _NAMES.items()
            }
            busy = stats["accelerator_utilization"]
            reader = _reader_of(stats)
            row = LoaderFigures(
                **figures,
                ranks=1,
                slowest_rank=int(asked["rank"]),
                utilization_min=1.0 if busy is None else float(busy),
            )
        except (KeyError, TypeError, ValueError) as error:
            text = f"not the figures of a loader: {error!r}"
            raise MonarchError(text) from error
        if (pid, number) in self._rows or len(self._rows) < _ROWS_MAX:
            self._rows[pid, number] = row
            self._note(int(stats.get("reader_pid", 0)), reader)
        return {"ok": True}

    def figures(self) -> LoaderFigures:
        """Return the figures of all loaders as one."""
        from monarch.report.loaders import together

        return together([*self._rows.values(), *self._readers.values()])

    def _note(self, pid: int, reader: LoaderFigures) -> None:
        """Keep the later figures of a reader: several ranks report it."""
        known = self._readers.get(pid)
        if known is None or reader.requests >= known.requests:
            self._readers[pid] = reader
