"""Batches: the Records that one `next()` of a loader returns."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import numpy.typing as npt

from monarch.errors import UsageError
from monarch.loader.link import Part
from monarch.loader.portions import ROW
from monarch.loader.wire import LoaderError

Output = Literal["memoryview", "numpy", "torch"]
Array = npt.NDArray[Any]
Decode = Callable[[memoryview], Any]


@dataclass(frozen=True, slots=True)
class Form:
    """The form in which batches return their Records.

    Args:
        output: type of `records` and `array`.
        decode: called for each Record; None: Records are not decoded.
        details: details of the index: `dtype` and `shape` if Records are arrays.

    Raises:
        UsageError: unknown output, or torch is not installed.
    """

    output: Output = "memoryview"
    decode: Decode | None = None
    details: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Check the arguments."""
        if self.output not in get_args(Output):
            known = ", ".join(get_args(Output))
            raise UsageError(f"output={self.output!r} is not valid; use one of {known}")
        if self.output == "torch":
            self.torch()

    def shaped(self, rows: Array) -> Array:
        """Return rows of bytes as arrays of the type of the Records."""
        details = self.details
        if "dtype" not in details:
            return rows
        shape = tuple(details.get("shape", ()))
        array: Array = rows.view(np.dtype(details["dtype"]))
        return array.reshape(len(rows), *shape)

    def whole(self, rows: Array, own: Own | None) -> Any:
        """Return rows of bytes as one array or tensor of the type of the Records.

        Args:
            own: the memory of the rows, if the batch owns it.
        """
        array = self.shaped(rows)
        if self.output != "torch":
            return array
        if own is None or own.tensor is None:
            return self.torch().from_numpy(array)
        # A view of the tensor, so that torch sees that other processes share it.
        kind = self.torch().from_numpy(np.empty(0, array.dtype)).dtype
        return own.tensor[: rows.size].view(kind).reshape(array.shape)

    def torch(self) -> Any:
        """Return the torch module.

        Raises:
            UsageError: it is not installed.
        """
        try:
            import torch
        except ImportError as error:
            text = 'output="torch" needs PyTorch, which is not installed'
            raise UsageError(text) from error
        return torch


class Place(NamedTuple):
    """The place of some Records of a batch.

    Attributes:
        part: their portion.
        rows: their rows in its table.
        where: their positions in the batch.
    """

    part: Part
    rows: Array
    where: Array


class Own(NamedTuple):
    """Memory of a batch that stays valid.

    Attributes:
        array: the bytes.
        tensor: the same bytes, if torch has made them.
    """

    array: Array
    tensor: Any = None

    def __reduce__(self) -> tuple[Any, ...]:
        """Return how another process shares this memory, or else copies it."""
        if self.tensor is None:
            return Own, (self.array,)
        return _of_tensor, (self.tensor, len(self.array))


class Batch:
    """Some Records, in the order of the epoch.

    It is valid until the next `next()` of its loader, which reuses its memory. `keep`
    returns one that stays valid.

    Attributes:
        ids: the numbers of the Records.
    """

    def __init__(self, ids: Array, places: Sequence[Place], form: Form) -> None:
        self.ids = ids
        self._given: Sequence[Place] | None = places
        self._form = form
        self._views: list[memoryview] = []
        self._owners: list[weakref.ref[Array]] = []
        self._records: list[Any] | None = None
        self._array: Any = None
        self._own: Own | None = None

    def __repr__(self) -> str:
        return f"<Batch of {len(self)} records>"

    def __len__(self) -> int:
        """Return the number of Records."""
        return len(self.ids)

    @property
    def _places(self) -> Sequence[Place]:
        """Return the places of the Records.

        Raises:
            UsageError: their memory has been reused.
        """
        if self._given is None:
            raise UsageError(
                "this batch is no longer valid: the next batch uses its memory; "
                "batch.keep() returns one that stays valid"
            )
        return self._given

    @property
    def nbytes(self) -> int:
        """Return the bytes of all Records."""
        return sum(
            int(one.part.table["length"][one.rows].sum()) for one in self._places
        )

    @property
    def portions(self) -> int:
        """Return the number of portions that the Records are from."""
        return len(self._places)

    @property
    def records(self) -> list[Any]:
        """Return the Records.

        They are read-only memoryviews, arrays or tensors according to `output`, or the
        results of `decode`.

        Raises:
            UsageError: the batch is not valid any more.
        """
        if self._records is None:
            self._records = self._made()
        return self._records

    @property
    def array(self) -> Any:
        """Return the Records as one array or tensor, which stays valid.

        Raises:
            UsageError: the Records have different sizes, or the batch is not valid any
                more.
        """
        if self._array is None:
            self._array = self._form.whole(self._rows(), self._own)
        return self._array

    def keep(self, allocate: Callable[[int], Own] | None = None) -> Batch:
        """Return a batch with the same Records that stays valid.

        Args:
            allocate: allocates memory of a given size; None: ordinary memory.
        """
        lengths = np.zeros(len(self), np.int64)
        for one in self._places:
            lengths[one.where] = one.part.table["length"][one.rows]
        starts = np.cumsum(lengths) - lengths
        size = int(lengths.sum())
        own = Own(np.empty(size, np.uint8)) if allocate is None else allocate(size)
        into = own.array.data
        for one in self._places:
            views = _views_of(one, one.part.view)
            for start, view in zip(starts[one.where].tolist(), views, strict=True):
                into[start : start + len(view)] = view
        return Batch.of(self.ids, lengths, own, self._form)

    @classmethod
    def of(cls, ids: Array, lengths: Array, own: Own, form: Form) -> Batch:
        """Return a batch that stays valid.

        Args:
            lengths: lengths of the Records.
            own: their concatenated bytes.
        """
        table = np.zeros(len(lengths), ROW)
        table["start"], table["length"] = np.cumsum(lengths) - lengths, lengths
        view = own.array.data.toreadonly()
        every = np.arange(len(lengths))
        place = Place(Part(table, view, np.ones(1, bool)), every, every)
        batch = cls(ids, [place], form)
        batch._own = own
        return batch

    @classmethod
    def of_decoded(cls, ids: Array, records: list[Any], form: Form) -> Batch:
        """Return a batch that has the results of `decode`, and no bytes."""
        batch = cls(ids, [], form)
        batch._records = records
        return batch

    def __reduce__(self) -> tuple[Any, ...]:
        """Return how another process makes the same batch, which stays valid there.

        Results of `decode` are sent instead of the bytes.
        """
        if self._form.decode is not None or not self._places:
            form = replace(self._form, decode=None)
            return Batch.of_decoded, (self.ids, self.records, form)
        if self._own is None:
            return self.keep().__reduce__()
        lengths = self._places[0].part.table["length"].astype(np.int64)
        return Batch.of, (self.ids, lengths, self._own, self._form)

    def release(self) -> bool:
        """Invalidate the batch; return whether no view of its Records is left."""
        for view in self._views:
            with suppress(BufferError):
                view.release()
        self._views, self._records, self._given = [], None, None
        return all(owner() is None for owner in self._owners)

    def _all_views(self) -> list[memoryview]:
        """Return a view of each Record.

        All views of a portion, and objects made from them, keep an array alive: so
        `release` detects that they are in use.
        """
        if self._views or not len(self):
            return self._views
        views: list[Any] = [None] * len(self)
        for one in self._places:
            owner = np.frombuffer(one.part.view, np.uint8)
            self._owners.append(weakref.ref(owner))
            found = _views_of(one, memoryview(owner.data))
            for where, view in zip(one.where.tolist(), found, strict=True):
                views[where] = view
        self._views = views
        return views

    def _made(self) -> list[Any]:
        form = self._form
        if form.decode is not None:
            return self._decoded(form.decode)
        if form.output == "memoryview":
            return self._all_views()
        if len(self._lengths()) == 1 or "dtype" in form.details:
            return list(self.array)
        found = [np.frombuffer(bytes(view), np.uint8) for view in self._all_views()]
        if form.output == "torch":
            return [form.torch().from_numpy(one.copy()) for one in found]
        return found

    def _decoded(self, decode: Decode) -> list[Any]:
        """Return the result of `decode` for each Record.

        Raises:
            LoaderError: `decode` fails; the text names the Record.
        """
        found = []
        for number, view in zip(self.ids.tolist(), self._all_views(), strict=True):
            try:
                found.append(decode(view))
            except Exception as error:
                told = " ".join(str(error).split())
                text = f"record {number}: decode: {type(error).__name__}: {told}"
                raise LoaderError(text) from error
        return found

    def _lengths(self) -> set[int]:
        return {
            int(length)
            for one in self._places
            for length in np.unique(one.part.table["length"][one.rows])
        }

    def _rows(self) -> Array:
        """Return the bytes, a row for each Record, outside of a reader's memory."""
        if len(self) and not self._places:
            raise UsageError(
                "this batch has no bytes: another process decoded it; use batch.records"
            )
        lengths = self._lengths()
        if len(lengths) > 1:
            raise UsageError(
                f"records of {min(lengths)} to {max(lengths)} bytes do not form an "
                "array; use batch.records, or decode="
            )
        length = lengths.pop() if lengths else 0
        if self._own is not None:
            return self._own.array.reshape(len(self), length)
        rows = np.empty((len(self), length), np.uint8)
        for one in self._places:
            found = np.frombuffer(one.part.view, np.uint8)
            starts = one.part.table["start"][one.rows].tolist()
            for where, start in zip(one.where.tolist(), starts, strict=True):
                rows[where] = found[start : start + length]
        return rows


def _of_tensor(tensor: Any, size: int) -> Own:
    return Own(tensor.numpy()[:size], tensor)


def _views_of(place: Place, view: memoryview) -> list[memoryview]:
    """Return the Records of a place as views."""
    rows = place.part.table[place.rows]
    pairs = zip(rows["start"].tolist(), rows["length"].tolist(), strict=True)
    return [view[start : start + length] for start, length in pairs]
