"""Reads a whole tree in several processes and epochs, in another order each time."""

import hashlib
import multiprocessing
import os
import random
import sys


def epochs(paths: list[str], reader: int, count: int) -> str:
    """Digest of all that one process has read, in the order of the names."""
    found = hashlib.sha256()
    for epoch in range(count):
        contents = {}
        for path in random.Random(reader * 1000 + epoch).sample(paths, len(paths)):
            with open(path, "rb") as file:
                contents[path] = hashlib.file_digest(file, "sha256").digest()
        found.update(b"".join(contents[path] for path in paths))
    return found.hexdigest()


def main(root: str, readers: int, count: int) -> None:
    """Prints the digest of each process; all are the same."""
    paths = sorted(
        os.path.join(folder, name)
        for folder, _, names in os.walk(root)
        for name in names
    )
    with multiprocessing.get_context("fork").Pool(readers) as pool:
        orders = [(paths, reader, count) for reader in range(readers)]
        print(len(paths), *pool.starmap(epochs, orders), sep="\n")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
