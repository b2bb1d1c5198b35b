"""Writes and reads HDF5 files with h5py, by three of its drivers."""

import hashlib
import os
import sys

import h5py
import numpy as np


def make(root: str) -> None:
    """Writes seeded files, contiguous and chunked, one larger than an Extent."""
    rng = np.random.default_rng(3)
    os.makedirs(root)
    for number in range(6):
        with h5py.File(os.path.join(root, f"part-{number}.h5"), "w") as file:
            group = file.create_group("images")
            group.create_dataset("plain", data=rng.random((30, 64)))
            packed = rng.integers(0, 9, (64, 64))
            group.create_dataset("packed", data=packed, chunks=(8, 8), compression=4)
    with h5py.File(os.path.join(root, "large.h5"), "w") as file:
        file["whole"] = rng.random((1200, 1000))


def read(root: str) -> None:
    """Prints a digest per file and driver."""
    for name in sorted(os.listdir(root)):
        for driver in (None, "stdio", "core"):
            found = hashlib.sha256()
            path = os.path.join(root, name)
            # The second open of one file makes HDF5 compare device and inode.
            with h5py.File(path, "r", driver=driver) as file, h5py.File(path) as again:
                assert again.filename == file.filename
                file.visititems(lambda _, item, to=found: take(item, to))
            print(name, driver, found.hexdigest())


def take(item: h5py.Dataset | h5py.Group, found: "hashlib._Hash") -> None:
    """Adds the bytes of one dataset."""
    if isinstance(item, h5py.Dataset):
        found.update(item[...].tobytes())


if __name__ == "__main__":
    {"make": make, "read": read}[sys.argv[1]](sys.argv[2])
