"""A generated dataset: seeded bytes in a tree of directories."""

import hashlib
import random
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

EXTENT_BYTES = 8 << 20


@dataclass(frozen=True, slots=True)
class Dataset:
    """The directory of a dataset and what its files must read as."""

    root: Path
    digests: Mapping[str, str]
    size_bytes: int

    @property
    def paths(self) -> list[Path]:
        """All files, in the order of their relative paths."""
        return [self.root / name for name in sorted(self.digests)]

    def differing(self) -> list[str]:
        """The relative paths of files that do not read as they were generated."""
        return [
            name
            for name, digest in self.digests.items()
            if hashlib.sha256((self.root / name).read_bytes()).hexdigest() != digest
        ]


def make_dataset(
    root: Path,
    *,
    files: int = 40,
    mean_bytes: int = 20_000,
    large: int = 1,
    seed: int = 1,
) -> Dataset:
    """Writes `files` small files, and `large` ones of more than one Extent."""
    rng = random.Random(seed)
    digests: dict[str, str] = {}
    size_bytes = 0
    for number in range(files + large):
        small = number < files
        length = rng.randrange(2 * mean_bytes) if small else EXTENT_BYTES + 12_345
        name = f"class-{number % 7}/{'sample' if small else 'shard'}-{number:06}.bin"
        content = rng.randbytes(length)
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        digests[name] = hashlib.sha256(content).hexdigest()
        size_bytes += length
    return Dataset(root, digests, size_bytes)
