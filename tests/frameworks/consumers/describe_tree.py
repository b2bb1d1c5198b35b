"""Prints the lstat results, extended attributes and bytes of a tree."""

import hashlib
import os
import stat
import sys


def describe(root: bytes, identity: bool) -> None:
    """Prints one line per name below `root`; with `identity` also what a copy loses."""
    links: dict[tuple[int, int], int] = {}
    for path in sorted(walk(root)):
        found = os.lstat(path)
        number = links.setdefault((found.st_dev, found.st_ino), len(links))
        words = [oct(found.st_mode), found.st_uid, found.st_gid, found.st_nlink, number]
        if not stat.S_ISDIR(found.st_mode):
            words += [found.st_size, found.st_mtime_ns]
        if identity:
            words += [found.st_dev, found.st_ino, found.st_ctime_ns, found.st_blocks]
        print(ascii(os.path.relpath(path, root)), *words, attributes(path), end=" ")
        print(content(path, found.st_mode))


def walk(root: bytes) -> list[bytes]:
    """Every name below a directory, its own included."""
    paths = [root]
    for folder, directories, files in os.walk(root):
        paths += [os.path.join(folder, name) for name in directories + files]
    return paths


def attributes(path: bytes) -> str:
    """Digest of the extended attributes (access control lists are among them)."""
    names = sorted(os.listxattr(path, follow_symlinks=False))
    pairs = [(name, os.getxattr(path, name, follow_symlinks=False)) for name in names]
    return hashlib.sha256(repr(pairs).encode()).hexdigest()[:16] if pairs else "-"


def content(path: bytes, mode: int) -> str:
    """Digest of a file, target of a link, nothing of other kinds."""
    if stat.S_ISLNK(mode):
        return ascii(os.readlink(path))
    if stat.S_ISREG(mode):
        with open(path, "rb") as file:
            same = os.fstat(file.fileno()) == os.stat(path)
            return f"{hashlib.file_digest(file, 'sha256').hexdigest()} {same}"
    return "-"


if __name__ == "__main__":
    describe(os.fsencode(sys.argv[1]), identity="--identity" in sys.argv)
