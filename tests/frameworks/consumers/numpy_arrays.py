"""Writes and reads arrays with numpy's load, savez, memmap, fromfile and loadtxt."""

import hashlib
import os
import sys

import numpy as np


def make(root: str) -> None:
    """Writes seeded arrays; one of them is larger than an Extent."""
    rng = np.random.default_rng(7)
    os.makedirs(root)
    for number in range(8):
        array = rng.random((50 + number, 40))
        np.save(os.path.join(root, f"array-{number}.npy"), array)
        array.astype("f4").tofile(os.path.join(root, f"raw-{number}.f4"))
    np.savez(os.path.join(root, "many.npz"), x=rng.random(99), y=rng.random(98))
    np.savetxt(os.path.join(root, "table.txt"), rng.random((20, 5)))
    np.save(os.path.join(root, "large.npy"), rng.random((1200, 1000)))


def read(root: str) -> None:
    """Prints a digest of each array that each reader returns."""
    for name in sorted(os.listdir(root)):
        path = os.path.join(root, name)
        if name.endswith(".npy"):
            show(name, np.load(path), np.load(path, mmap_mode="r"))
        elif name.endswith(".f4"):
            mapped = np.memmap(path, dtype="f4", mode="r")
            part = np.fromfile(path, dtype="f4", count=100, offset=400)
            show(name, np.fromfile(path, dtype="f4"), mapped, part)
        elif name.endswith(".npz"):
            with np.load(path) as arrays:
                show(name, *(arrays[key] for key in sorted(arrays.files)))
        else:
            show(name, np.loadtxt(path), np.genfromtxt(path))


def show(name: str, *arrays: np.ndarray) -> None:
    """Prints one line."""
    digests = [hashlib.sha256(array.tobytes()).hexdigest() for array in arrays]
    print(name, *digests)


if __name__ == "__main__":
    {"make": make, "read": read}[sys.argv[1]](sys.argv[2])
