"""Writes and reads archives with Python's zipfile, tarfile, gzip, lzma and sqlite3."""

import gzip
import hashlib
import io
import lzma
import os
import random
import sqlite3
import sys
import tarfile
import zipfile


def make(root: str) -> None:
    """Writes one file per format, of seeded bytes."""
    members = {f"m{n}.bin": random.Random(n).randbytes(5000 + n) for n in range(20)}
    os.makedirs(root)
    with (
        zipfile.ZipFile(os.path.join(root, "a.zip"), "w") as archive,
        tarfile.open(os.path.join(root, "a.tar.gz"), "w:gz") as tape,
    ):
        for name, content in members.items():
            archive.writestr(name, content)
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tape.addfile(member, io.BytesIO(content))
    whole = b"".join(members.values())
    with gzip.open(os.path.join(root, "a.gz"), "wb") as file:
        file.write(whole)
    with lzma.open(os.path.join(root, "a.xz"), "wb") as file:
        file.write(whole)
    with sqlite3.connect(os.path.join(root, "a.sqlite")) as database:
        database.execute("create table sample (name text, content blob)")
        database.executemany("insert into sample values (?, ?)", members.items())


def read(root: str) -> None:
    """Prints a digest of the bytes that each format returns."""
    with zipfile.ZipFile(os.path.join(root, "a.zip")) as archive:
        show("zip", b"".join(archive.read(name) for name in archive.namelist()))
    with tarfile.open(os.path.join(root, "a.tar.gz")) as tape:
        files = [file for member in tape if (file := tape.extractfile(member))]
        show("tar", b"".join(file.read() for file in files))
    with gzip.open(os.path.join(root, "a.gz")) as packed:
        show("gzip", packed.read())
    with lzma.open(os.path.join(root, "a.xz")) as squeezed:
        show("lzma", squeezed.read())
    # Only `immutable` keeps SQLite from opening a journal beside the file.
    address = f"file:{os.path.join(root, 'a.sqlite')}?mode=ro&immutable=1"
    database = sqlite3.connect(address, uri=True)
    rows = database.execute("select content from sample order by name")
    show("sqlite", b"".join(row[0] for row in rows))


def show(name: str, content: bytes) -> None:
    """Prints one line."""
    print(name, hashlib.sha256(content).hexdigest())


if __name__ == "__main__":
    {"make": make, "read": read}[sys.argv[1]](sys.argv[2])
