"""Replicas of an earlier job that can be adopted, each after its verification."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from monarch.tiers.retained import Manifest


@dataclass(frozen=True, slots=True)
class ExtentDigests:
    """The checksums of all Extents; File f's begin at first[f]."""

    digests: npt.NDArray[np.uint64]
    first: npt.NDArray[np.uint64]

    def of(self, file: int) -> npt.NDArray[np.uint64]:
        """Return the checksums of one File, as a view."""
        return self.digests[int(self.first[file]) : int(self.first[file + 1])]


def match(
    manifest: Manifest,
    names: Iterable[tuple[int, str]],
    sizes: npt.NDArray[np.uint64],
    extents: ExtentDigests,
) -> tuple[list[int], set[str]]:
    """Return the Files of a manifest, with their checksums noted, and its other names.

    Args:
        names: each File with the name of its Replica.
    """
    places = {name.decode(): n for n, name in enumerate(manifest.names.tolist())}
    found: list[int] = []
    for file, name in names:
        place = places.get(name)
        if place is None or manifest.sizes[place] != sizes[file]:
            continue
        start, end = manifest.first[place : place + 2].tolist()
        if end - start != len(extents.of(file)):
            continue
        extents.of(file)[:] = manifest.digests[start:end]
        del places[name]
        found.append(file)
    return found, set(places)


def describe(
    files: npt.NDArray[np.int64],
    name_of: Callable[[int], str],
    sizes: npt.NDArray[np.uint64],
    extents: ExtentDigests,
    expires_s: float,
) -> Manifest:
    """Return the manifest of the Replicas of these Files."""
    parts = [extents.of(file) for file in files.tolist()]
    counts = np.array([0, *(len(part) for part in parts)], np.uint64)
    return Manifest(
        names=np.array([name_of(file) for file in files.tolist()], "S32"),
        sizes=sizes[files],
        first=np.cumsum(counts, dtype=np.uint64),
        digests=np.concatenate([np.empty(0, np.uint64), *parts]),
        expires_s=expires_s,
    )
