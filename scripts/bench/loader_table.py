"""The loaders that are compared, and how their figures are printed and judged."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from table import Row

MB = 1_000_000


@dataclass(frozen=True, slots=True)
class Kind:
    """A loader.

    Args:
        venv: of `loader_site`; "" is Monarch's.
        data: the format that it reads.
        needs: a package that makes the dataset.
        is_converted: it reads no format but its own.
        is_global: a Record may come at any place of an epoch.
    """

    label: str
    venv: str
    data: str
    needs: str = ""
    is_converted: bool = False
    is_global: bool = False

    @property
    def has_headers(self) -> bool:
        """Whether only the header before a Record tells where it is."""
        return not self.venv and self.data in ("tfrecord", "tar")


KINDS = {
    "monarch-lmdb": Kind("Monarch, LMDB", "", "lmdb", "lmdb"),
    "monarch-tfrecord": Kind("Monarch, TFRecord", "", "tfrecord"),
    "monarch-tar": Kind("Monarch, tar", "", "tar"),
    "monarch-tfrecord-early": Kind("Monarch, TFRecord, early", "", "tfrecord"),
    "monarch-tar-early": Kind("Monarch, tar, early", "", "tar"),
    "monarch-hdf5": Kind("Monarch, HDF5 in chunks of 64", "", "hdf5", "h5py"),
    "torch-lmdb": Kind(
        "torch, py-lmdb, 8 workers", "torch", "lmdb", "lmdb", is_global=True
    ),
    "torch-lmdb-random": Kind(
        "the same, readahead=False", "torch", "lmdb", "lmdb", is_global=True
    ),
    "webdataset": Kind("WebDataset, tar", "webdataset", "tar"),
    "tf.data": Kind("tf.data, TFRecord", "tensorflow", "tfrecord"),
    "streaming": Kind(
        "mosaicml-streaming, 4 workers", "streaming", "mds", is_converted=True
    ),
    "grain": Kind(
        "grain, array-record",
        *("grain", "array_record"),
        is_converted=True,
        is_global=True,
    ),
    "litdata": Kind("litdata, 4 workers", "litdata", "litdata", is_converted=True),
}
OURS = tuple(name for name, kind in KINDS.items() if not kind.venv)

Figures = dict[str, float]


@dataclass(slots=True)
class Told:
    """The figures of all runs of a loader, and what has failed."""

    runs: list[Figures] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    def get(self, name: str) -> float | None:
        """The median of a figure."""
        found = [run[name] for run in self.runs if name in run]
        return statistics.median(found) if found else None


# -- what is printed -------------------------------------------------------------------


def print_table(told: Mapping[str, Told], count: int, size: int) -> None:
    """Print the figures of all loaders."""
    columns = {
        "epoch 1 s": "e1",
        "samples/s": "",
        "with its index s": "indexed",
        "epoch 2 s": "e2",
        "origin reads 1": "reads1",
        "bytes ratio": "bytes1",
        "reads 2": "reads2",
        "first batch s": "first",
        "exposed wait s": "exposed",
        "p99 ms": "exposed_p99",
        "PSS MB": "pss",
        "not shared MB": "private",
        "resume s": "resume",
        "local epoch 1 s": "local1",
        "local epoch 2 s": "local2",
        "local samples/s": "local",
    }
    print(f"\n| loader | {' | '.join(columns)} |")
    print(f"| --- {'| ---: ' * len(columns)}|")
    for name, one in told.items():
        cells = [cell(one, figure, count, size) for figure in columns.values()]
        print(f"| {KINDS[name].label} | {' | '.join(cells)} |")
    print()
    for name, one in told.items():
        for failure in dict.fromkeys(one.failures):
            print(f"{KINDS[name].label}: {failure}")


def cell(one: Told, figure: str, count: int, size: int) -> str:
    """A figure as it is printed."""
    rates = {"": "e1", "local": "local2"}
    value = one.get(rates.get(figure, figure))
    if value is None:
        return "-"
    if figure in rates:
        return f"{count / value:,.0f}"
    if figure.startswith("bytes"):
        return f"{value / size:.2f}"
    if figure in ("pss", "private"):
        return f"{value / MB:,.0f}"
    if figure.startswith("reads"):
        return f"{value:,.0f}"
    return f"{value * 1000:.1f}" if figure == "exposed_p99" else f"{value:.2f}"


def best(told: Mapping[str, Told], figure: str, *, whole: bool) -> tuple[float, str]:
    """The least time of a loader that is not ours.

    Args:
        whole: of those alone that shuffle the whole of a dataset as it is.
    """
    found = []
    for name, one in told.items():
        kind, value = KINDS[name], one.get(figure)
        fits = not whole or (kind.is_global and not kind.is_converted)
        if name not in OURS and value is not None and fits:
            found.append((value, kind.label))
    return min(found, default=(0.0, ""))


def goals(told: Mapping[str, Told], bytes_per_s: int, size: int) -> Iterator[Row]:
    """What Monarch is judged by, of the readers that have read an epoch at all.

    Args:
        bytes_per_s: of the slow origin.
        size: bytes of all Records.
    """
    for name in OURS:
        if name in told and told[name].get("e1") is not None:
            yield from goals_from_origin(name, told, bytes_per_s, size)
            yield from goals_from_memory(name, told)


def goals_from_origin(
    name: str, told: Mapping[str, Told], bytes_per_s: int, size: int
) -> Iterator[Row]:
    """The time of an epoch, as a share of what the origin can give."""
    one, label = told[name], KINDS[name].label
    for epoch, figure, counted in (
        ("epoch 1", "e1", "bytes1"),
        ("epoch 1 with a saved index", "indexed", "bytes_indexed"),
        ("epoch 2", "e2", "bytes2"),
    ):
        took, read = one.get(figure), one.get(counted)
        if took and read:
            least = read / bytes_per_s
            measured, against = f"{took:.2f} s", f"{least:.2f} s of the link"
            what = f"{label}: {epoch}"
            yield Row(what, measured, against, least / took, 0.97, at_least=True)
    if KINDS[name].has_headers and (took := one.get("e1")):
        least = size / bytes_per_s
        against = f"{least:.2f} s of the link"
        what = f"{label}: index and epoch 1"
        yield Row(what, f"{took:.2f} s", against, took / least, 1.15)
    yield from against_best(f"{label}: epoch 1", one, told, "e1", 1.5)
    for figure, what, unit, goal in (
        ("resume", "time to resume", 1.0, 0.1),
        ("private", "MB beside what is shared", MB, 150),
        ("requests", "requests of an epoch", 1, 100),
        ("first", "first batch s", 1, 0.5 if name.endswith("-early") else 0.3),
        ("indexed_first", "first batch s with a saved index", 1, 0.3),
    ):
        if (value := one.get(figure)) is not None:
            share = value / unit / goal
            yield Row(f"{label}: {what}", f"{value / unit:.3g}", f"{goal:g}", share, 1)


def goals_from_memory(name: str, told: Mapping[str, Told]) -> Iterator[Row]:
    """The time of an epoch, against the best of the others."""
    label = KINDS[name].label
    for epoch in (1, 2):
        what, figure = f"{label}: local, epoch {epoch}", f"local{epoch}"
        yield from against_best(what, told[name], told, figure, 1)


def against_best(
    what: str, one: Told, told: Mapping[str, Told], figure: str, goal: float
) -> Iterator[Row]:
    """How many times faster than the best of the others one is.

    At the origin only those count that shuffle the whole of a dataset as it is.
    """
    ours, found = one.get(figure), []
    for name, other in told.items():
        kind, value = KINDS[name], other.get(figure)
        counts = figure != "e1" or (kind.is_global and not kind.is_converted)
        if name not in OURS and value is not None and counts:
            found.append((value, kind.label))
    if found and ours:
        theirs, who = min(found)
        against = f"{theirs:.2f} s, {who}"
        yield Row(what, f"{ours:.2f} s", against, theirs / ours, goal, at_least=True)
