"""How often one node reads each File of a dataset that is shuffled in each epoch.

If each epoch assigns each File anew to one of N nodes, the number of a node's reads of
a File in E epochs follows Binomial(E, 1/N): some Files are read far more often than
others. A Placement by these counts would need the seed of the program, which hash
values do not; `monarch plan` shows its possible gain.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

Shares = np.ndarray[Any, np.dtype[np.float64]]

_LIKELY: Final = 60
"""Counts more standard deviations from the mean are ignored: a million epochs must not
need a million numbers."""


def read_counts(epochs: int, nodes: int) -> tuple[npt.NDArray[np.int64], Shares]:
    """Return the read counts of Files on a node, and the share of Files for each count.

    Counts ascend; those that are too unlikely to matter are left out.
    """
    if nodes == 1:
        return np.array([epochs]), np.ones(1)
    chance = 1 / nodes
    mean = epochs * chance
    reach = _LIKELY * (1 + (mean * (1 - chance)) ** 0.5)
    counts = np.arange(int(max(0, mean - reach)), int(min(epochs, mean + reach)) + 1)
    # Logarithms of the ratios of neighbours, summed from the first on: factorials would
    # overflow. The shares are then normalised to a sum of one.
    later = counts[1:]
    steps = np.log((epochs - later + 1) / later * chance / (1 - chance))
    logs = np.concatenate([[0.0], np.cumsum(steps)])
    shares = np.exp(logs - logs.max())
    return counts, shares / shares.sum()


def files_read_more_than(times: int, files: int, epochs: int, nodes: int) -> float:
    """Return the expected number of Files read more than `times` times by one node."""
    counts, shares = read_counts(epochs, nodes)
    return files * float(shares[counts > times].sum())


def local_share_at_best(room: float, epochs: int, nodes: int) -> float:
    """Return the share of local reads of a node that keeps its most read Files.

    Args:
        room: the share of the dataset that fits on it.
    """
    counts, shares = read_counts(epochs, nodes)
    counts, shares = counts[::-1], shares[::-1]
    before = np.cumsum(shares) - shares
    kept = np.clip(room - before, 0, shares)
    reads = float((counts * shares).sum())
    return min(1.0, float((counts * kept).sum()) / reads) if reads else 0.0
