"""Lots: the numbers that contestants draw for Files, the least of which wins."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

Keys: TypeAlias = npt.NDArray[np.uint64]

CHUNK: Final = 8192
"""Files whose lots are drawn at once: few enough for the cache of a core."""

_GOLDEN: Final = np.uint64(0x9E3779B97F4A7C15)
_FIRST: Final = np.uint64(0xBF58476D1CE4E5B9)
_SECOND: Final = np.uint64(0x94D049BB133111EB)
_S12, _S27, _S30, _S31 = (np.uint64(bits) for bits in (12, 27, 30, 31))
_LOG_TERMS: Final = 8
_LN_2: Final = 0.6931471805599453


def file_keys(files: npt.NDArray[np.intp], digest: int) -> Keys:
    """Return a well mixed number for each File of a Catalog."""
    words = files.astype(np.uint64)
    words *= _GOLDEN
    words += np.uint64(digest)
    return _mix(words)


class Lots:
    """Contestants with their weights; who has twice the weight wins twice as often.

    A lot is exponential with the weight as its rate: the least of several is drawn by
    each contestant with the probability of its share in the sum of weights.
    """

    def __init__(self, seeds: Sequence[int], weights: Sequence[int]) -> None:
        self._seeds = np.array(seeds, np.uint64)
        self._weights = np.array(weights, np.float64)
        # The logarithm does not change who is least where all weights are the same.
        self._equal = len(set(weights)) == 1

    def draw(self, keys: Keys, members: npt.NDArray[np.intp]) -> npt.NDArray[Any]:
        """Return the lots of some contestants: a row for each, a column a key."""
        words = _mix(keys[None, :] ^ self._seeds[members][:, None])
        if self._equal:
            return words
        with np.errstate(divide="ignore"):
            return minus_log(words) / self._weights[members][:, None]

    def least(
        self, keys: Keys, members: npt.NDArray[np.intp]
    ) -> npt.NDArray[np.uint16]:
        """Return which of some contestants has the least lot for each key."""
        won = np.full(len(keys), members[0], np.uint16)
        for start in range(0, len(keys), CHUNK):
            part = slice(start, start + CHUNK)
            least = self.draw(keys[part], members[:1])[0]
            for number in range(1, len(members)):
                lots = self.draw(keys[part], members[number : number + 1])[0]
                np.copyto(won[part], np.uint16(members[number]), where=lots < least)
                np.minimum(least, lots, out=least)
        return won


def minus_log(words: Keys) -> npt.NDArray[np.float64]:
    """Return -ln of words as fractions of 2**64, to nine digits and never 0.

    Libraries differ in the last bit of a logarithm, so two machines could disagree
    about a winner; sums, products and quotients are the same everywhere.
    """
    # 52 bits and a half are exact; one bit more would round up to 1.
    fraction = ((words >> _S12).astype(np.float64) + 0.5) * 2.0**-52
    mantissa, exponent = np.frexp(fraction)
    ratio = (1.0 - mantissa) / (1.0 + mantissa)
    square = ratio * ratio
    series = np.full_like(square, 2.0 / (2 * _LOG_TERMS + 1))
    for odd in range(2 * _LOG_TERMS - 1, 0, -2):
        series *= square
        series += 2.0 / odd
    series *= ratio
    series -= exponent * _LN_2
    return series


def _mix(words: Keys) -> Keys:
    """Let every bit change half of the others, in place: splitmix64's last step."""
    words ^= words >> _S30
    words *= _FIRST
    words ^= words >> _S27
    words *= _SECOND
    words ^= words >> _S31
    return words
