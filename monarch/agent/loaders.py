"""What the loaders of programs tell the agent at their end."""

from __future__ import annotations

from dataclasses import dataclass, replace
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
"""The figures of a loader, by their names there."""


@dataclass(slots=True)
class _Reader:
    """What a reader has done, as far as one of its ranks has told."""

    requests: int = 0
    bytes: int = 0
    memory: int = 0


class LoaderRows:
    """Keeps the last figures of each loader of each process."""

    def __init__(self) -> None:
        self._rows: dict[tuple[int, int], LoaderFigures] = {}
        self._readers: dict[int, _Reader] = {}

    def __repr__(self) -> str:
        return f"<LoaderRows, {len(self._rows)}>"

    def take(self, asked: dict[str, Any], pid: int) -> dict[str, Any]:
        """Take what a loader of a process has counted.

        Raises:
            MonarchError: it is not what a loader tells.
        """
        from monarch.report.model import LoaderFigures

        try:
            stats, number = asked["stats"], int(asked["number"])
            figures: dict[str, Any] = {
                name: (float if name.endswith("_s") else int)(stats[given])
                for name, given in _NAMES.items()
            }
            busy = stats["accelerator_utilization"]
            reader = _Reader(
                int(stats.get("requests", 0)),
                int(stats.get("request_bytes", 0)),
                int(stats.get("memory_peak_bytes", 0)),
            )
            row = LoaderFigures(
                **figures,
                ranks=1,
                slowest_rank=int(asked["rank"]),
                utilization_min=1.0 if busy is None else float(busy),
            )
        except (KeyError, TypeError, ValueError) as error:
            text = f"these are no figures of a loader: {error!r}"
            raise MonarchError(text) from error
        if (pid, number) in self._rows or len(self._rows) < _ROWS_MAX:
            self._rows[pid, number] = row
            self._note(int(stats.get("reader_pid", 0)), reader)
        return {"ok": True}

    def figures(self) -> LoaderFigures:
        """Return the figures of all loaders as one."""
        from monarch.report.loaders import together

        readers = self._readers.values()
        return replace(
            together(self._rows.values()),
            requests=sum(one.requests for one in readers),
            request_bytes=sum(one.bytes for one in readers),
            memory_bytes=sum(one.memory for one in readers),
        )

    def _note(self, pid: int, reader: _Reader) -> None:
        known = self._readers.setdefault(pid, _Reader())
        known.requests = max(known.requests, reader.requests)
        known.bytes = max(known.bytes, reader.bytes)
        known.memory = max(known.memory, reader.memory)
