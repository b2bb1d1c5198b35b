"""Columns of Records, such as label and split, and selection of Records by them.

A selection reads no payload: it is an array of Record numbers, computed from columns.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from monarch.records.errors import RecordsError

Rows = npt.NDArray[np.int64]
"""Numbers of Records."""

_DIMENSIONS_MAX: Final = 2
_SHARES_SLACK: Final = 1e-6


@dataclass(frozen=True, slots=True, eq=False)
class Column:
    """One value for each Record.

    Attributes:
        values: numbers, of shape (records,), or (records, labels) in a multilabel
            column; with `names`, indices into these.
        names: the distinct texts of a column of texts; None: values are numbers.
    """

    values: npt.NDArray[Any]
    names: tuple[str, ...] | None = None

    @classmethod
    def of(cls, values: Sequence[Any] | npt.NDArray[Any]) -> Column:
        """Make a column of texts, of numbers, or of lists of numbers.

        Raises:
            RecordsError: the values are of several kinds.
        """
        try:
            found = np.asarray(values)
        except ValueError as error:
            raise RecordsError(
                f"a column has rows of several lengths: {error}"
            ) from error
        if found.dtype.kind in "US":
            names, codes = np.unique(found.astype(str), return_inverse=True)
            return cls(codes.astype(_narrowest(len(names))), tuple(names.tolist()))
        if found.dtype.kind not in "biuf" or not 1 <= found.ndim <= _DIMENSIONS_MAX:
            raise RecordsError("a column holds either texts or numbers")
        return cls(found)

    def __len__(self) -> int:
        """Return the number of Records."""
        return len(self.values)

    def __repr__(self) -> str:
        kind = "texts" if self.names is not None else str(self.values.dtype)
        return f"<Column of {len(self)} {kind}>"

    @property
    def is_multilabel(self) -> bool:
        """Whether it has several values for each Record."""
        return self.values.ndim == _DIMENSIONS_MAX

    def matches(self, wanted: Any) -> npt.NDArray[np.bool_]:
        """Return which Records have a value, or one of a list of values.

        In a multilabel column, a number selects the Records whose label of that number
        is not 0.

        Raises:
            RecordsError: a text is compared with numbers, or a number with texts.
        """
        several = isinstance(wanted, list | tuple | set | frozenset | np.ndarray)
        given = [*wanted] if several else [wanted]
        if self.names is not None:
            return np.isin(self.values, self._codes(given))
        if any(isinstance(one, str) for one in given):
            raise RecordsError(f"{given[0]!r} is a text, and the column holds numbers")
        if self.is_multilabel:
            found: npt.NDArray[np.bool_] = (self.values[:, given] != 0).any(axis=1)
            return found
        return np.isin(self.values, given)

    def take(self, rows: Rows) -> Column:
        """Return the values of some Records."""
        return Column(self.values[rows], self.names)

    def groups(self) -> tuple[npt.NDArray[Any], npt.NDArray[np.int64]]:
        """Return the distinct values, and for each Record the number of its value.

        Raises:
            RecordsError: it has several values for each Record.
        """
        if self.is_multilabel:
            raise RecordsError("a multilabel column cannot group records")
        values, numbers = np.unique(self.values, return_inverse=True)
        return values, numbers.astype(np.int64)

    def name_of(self, value: Any) -> Any:
        """Return a stored value as the user's value."""
        return value.item() if self.names is None else self.names[int(value)]

    def _codes(self, given: Sequence[Any]) -> list[int]:
        assert self.names is not None
        known = {name: code for code, name in enumerate(self.names)}
        for one in given:
            if not isinstance(one, str):
                raise RecordsError(f"{one!r} is no text, and the column holds texts")
        return [known[one] for one in given if one in known]


Columns = Mapping[str, Column]


def column_of(columns: Columns, name: str) -> Column:
    """Return a column by its name.

    Raises:
        RecordsError: no column has that name.
    """
    if name not in columns:
        known = ", ".join(columns) or "none"
        near = difflib.get_close_matches(name, columns, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise RecordsError(f"unknown column {name!r}; the columns are: {known}{hint}")
    return columns[name]


def where(columns: Columns, conditions: Mapping[str, Any]) -> Rows:
    """Return the Records that meet all conditions, in their order.

    Args:
        conditions: a value, or a list of values, by the name of a column.

    Raises:
        RecordsError: a column is missing, or has values of another kind.
    """
    if not conditions:
        raise RecordsError("where() needs a condition, such as split='train'")
    masks = [
        column_of(columns, name).matches(wanted) for name, wanted in conditions.items()
    ]
    return np.flatnonzero(np.logical_and.reduce(masks)).astype(np.int64)


def balanced(
    column: Column, seed: int, weights: Mapping[Any, float] | None = None
) -> Rows:
    """Return Records of each value in equal numbers, or in the ratio of weights.

    As many are drawn, without replacement, as the rarest value allows; they are
    returned in the order of the column.

    Args:
        weights: weights by value; a value without a weight is left out.

    Raises:
        RecordsError: a weight is not above 0, or is that of a missing value.
    """
    values, numbers = column.groups()
    names = [column.name_of(value) for value in values]
    shares = np.ones(len(names))
    if weights is not None:
        _check_weights(weights, names)
        shares = np.array([float(weights.get(name, 0.0)) for name in names])
    counts = np.bincount(numbers, minlength=len(names))
    used = shares > 0
    if not used.any():
        return np.empty(0, np.int64)
    unit = float((counts[used] / shares[used]).min())
    quotas = np.floor(unit * shares + _SHARES_SLACK).astype(np.int64)
    drawn = _ranks(numbers, seed) < quotas[numbers]
    return np.flatnonzero(drawn).astype(np.int64)


def parted(
    count: int, shares: Mapping[str, float], seed: int, by: Column | None = None
) -> dict[str, Rows]:
    """Return disjoint random parts of all Records, by name.

    Args:
        shares: share of each part; at most 1 in total.
        by: all parts have the same shares of each value of this column.

    Raises:
        RecordsError: the shares are not above 0, or more than 1 in total.
    """
    given = np.array([*shares.values()], np.float64)
    if not len(given) or (given <= 0).any() or given.sum() > 1 + _SHARES_SLACK:
        raise RecordsError("the shares must be above 0, and at most 1 in total")
    numbers = np.zeros(count, np.int64) if by is None else by.groups()[1]
    sizes = np.bincount(numbers, minlength=1)
    ranks = _ranks(numbers, seed)
    ends = np.rint(np.cumsum(given)[:, None] * sizes[None, :]).astype(np.int64)
    part = (ranks[None, :] >= ends[:, numbers]).sum(axis=0)
    return {
        name: np.flatnonzero(part == number).astype(np.int64)
        for number, name in enumerate(shares)
    }


def _ranks(numbers: npt.NDArray[np.int64], seed: int) -> npt.NDArray[np.int64]:
    """Return the position of each Record in a random order of its group."""
    chance = np.random.default_rng(seed).random(len(numbers))
    order = np.lexsort((chance, numbers))
    starts = np.cumsum(np.bincount(numbers)) - np.bincount(numbers)
    ranks = np.empty(len(numbers), np.int64)
    ranks[order] = np.arange(len(numbers)) - starts[numbers[order]]
    return ranks


def _check_weights(weights: Mapping[Any, float], names: Sequence[Any]) -> None:
    for name, weight in weights.items():
        if name not in names:
            raise RecordsError(f"a weight is given for {name!r}, which no record has")
        if not weight > 0:
            raise RecordsError(
                f"the weight of {name!r} is {weight}; it must be above 0"
            )


def _narrowest(count: int) -> np.dtype[Any]:
    """Return the smallest type for this many distinct numbers."""
    return np.min_scalar_type(max(0, count - 1))
