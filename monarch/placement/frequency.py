"""How often one node reads each File of a dataset that is shuffled in each epoch.

Where each epoch deals the Files anew, each to one of N nodes, a node reads a File in E
epochs as often as Binomial(E, 1/N) says: some Files far more often than others. A
Placement by these counts would need the seed of the program, which hash values do not;
`monarch plan` shows what it could gain.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

Shares = np.ndarray[Any, np.dtype[np.float64]]

_LIKELY: Final = 60
"""Counts that lie more standard deviations from the mean are not looked at: a million
epochs shall not need a million numbers."""


def read_counts(epochs: int, nodes: int) -> tuple[npt.NDArray[np.int64], Shares]:
    """Return how often a node can read a File, and the share of Files for each count.

    Counts ascend; those that are too unlikely to matter are left out.
    """
    if nodes == 1:
        return np.array([epochs]), np.ones(1)
    chance = 1 / nodes
    mean = epochs * chance
    reach = _LIKELY * (1 + (mean * (1 - chance)) ** 0.5)
    counts = np.arange(int(max(0, mean - reach)), int(min(epochs, mean + reach)) + 1)
    # Logarithms of the ratios of neighbours, summed from the first on: factorials would
    # overflow. The first share is whatever makes the sum of all one.
    later = counts[1:]
    steps = np.log((epochs - later + 1) / later * chance / (1 - chance))
    logs = np.concatenate([[0.0], np.cumsum(steps)])
    shares = np.exp(logs - logs.max())
    return counts, shares / shares.sum()


def files_read_more_than(times: int, files: int, epochs: int, nodes: int) -> float:
    """Return how many Files one node is expected to read more than `times` times."""
    counts, shares = read_counts(epochs, nodes)
    return files * float(shares[counts > times].sum())


def local_share_at_best(room: float, epochs: int, nodes: int) -> float:
    """Return which share of its reads a node answers that keeps what it reads most.

    Args:
        room: for which share of the dataset it has room.
    """
    counts, shares = read_counts(epochs, nodes)
    counts, shares = counts[::-1], shares[::-1]
    before = np.cumsum(shares) - shares
    kept = np.clip(room - before, 0, shares)
    reads = float((counts * shares).sum())
    return min(1.0, float((counts * kept).sum()) / reads) if reads else 0.0
