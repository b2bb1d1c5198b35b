"""Reads a tree with a pool of processes started by the given method."""

import hashlib
import multiprocessing
import os
import sys


def digest(path: str) -> tuple[str, str]:
    """The path and the digest of its bytes."""
    with open(path, "rb") as file:
        return path, hashlib.file_digest(file, "sha256").hexdigest()


def main(start: str, root: str) -> None:
    """Prints a digest per file."""
    paths = [
        os.path.join(folder, name)
        for folder, _, names in os.walk(root)
        for name in names
        if os.path.isfile(os.path.join(folder, name))
    ]
    with multiprocessing.get_context(start).Pool(2) as pool:
        for path, found in sorted(pool.imap_unordered(digest, paths)):
            print(ascii(os.path.relpath(path, root)), found)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
