"""Figures of a report that are computed from one part of an agent."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from typing import Final

import numpy as np
import numpy.typing as npt

from monarch import __version__, native
from monarch import report as reports

SIZE_STEP: Final = 4
"""The end of a class in the histogram of file sizes, as a multiple of its start."""

Waits = Mapping[str, tuple[list[int], int]]
"""The histogram of waits for each source, and their sum in ns."""


def wait_buckets(waits: Waits) -> tuple[reports.WaitBucket, ...]:
    """Return the buckets of all sources, one source after the other."""
    return tuple(
        bucket
        for source, (counts, _) in waits.items()
        for bucket in _buckets(counts, source)
    )


def wait_totals(waits: Waits) -> tuple[reports.WaitTotal, ...]:
    """Return the sums of the sources that had waits."""
    return tuple(
        reports.WaitTotal(source, total_ns)
        for source, (_, total_ns) in waits.items()
        if total_ns
    )


def file_sizes(sizes: npt.NDArray[np.uint64]) -> tuple[reports.FileSizes, ...]:
    """Return the histogram of file sizes in bytes; empty files are first."""
    # Half a byte more puts a power of SIZE_STEP into the class that begins with it.
    classes = np.ceil(np.log(sizes + 0.5) / np.log(SIZE_STEP))
    classes[sizes == 0] = 0
    return tuple(
        reports.FileSizes(
            SIZE_STEP ** int(one - 1) if one else 0,
            SIZE_STEP ** int(one),
            int(np.count_nonzero(classes == one)),
            int(sizes[classes == one].sum()),
        )
        for one in np.unique(classes)
    )


def versions() -> dict[str, str]:
    """Return the versions of Monarch, Python, the kernel and libc."""
    return {
        "monarch": __version__,
        "python": platform.python_version(),
        "kernel": platform.release(),
        "libc": " ".join(platform.libc_ver()),
    }


def _buckets(counts: list[int], source: str) -> tuple[reports.WaitBucket, ...]:
    edges = [native.wait_bucket_ns(number) for number in range(len(counts))]
    edges.append(2 * edges[-1])
    return tuple(
        reports.WaitBucket(edges[n], edges[n + 1], count, source)
        for n, count in enumerate(counts)
    )
