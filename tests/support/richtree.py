"""A tree with every kind of name and metadata that a file system can hold."""

import os
import random
import shutil
import stat
import subprocess
from pathlib import Path

EXTENT_BYTES = 8 << 20
# Reading does not change an access time later than all other times of a file.
LATER_NS = 3_600 * 10**9


def make_rich_tree(root: Path) -> Path:
    """Fills a directory with links, modes, owners, attributes, odd names and a hole."""
    rng = random.Random(11)
    for number in range(30):
        path = root / f"class {number % 3}" / f"sample-{number:03}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(rng.randbytes(rng.randrange(40_000)) + b"\nneedle\nhay\n")
    (root / "empty").touch()
    (root / "extent").write_bytes(rng.randbytes(EXTENT_BYTES))
    (root / "large").write_bytes(rng.randbytes(EXTENT_BYTES + 4321))
    add_odd_names(root)
    add_links(root)
    add_modes(root)
    add_attributes(root)
    with (root / "hole").open("wb") as file:
        file.truncate(300_000)
        file.seek(100_000)
        file.write(b"island")
    set_times(root)
    return root


def add_odd_names(root: Path) -> None:
    """Adds names that are no text, or that a careless program would take apart."""
    odd = [
        b"new\nline",
        b"\xff\xfe latin",
        "\u00e9\u4e2d".encode(),
        b"-dash",
        b"a  b\\c'\"",
    ]
    folder = os.fsencode(root) + b"/odd \xe9"
    os.mkdir(folder)
    for number, name in enumerate(odd):
        with open(folder + b"/" + name, "wb") as file:
            file.write(b"odd needle %d\n" % number)


def add_links(root: Path) -> None:
    """Adds hard links, and links that stay inside, leave the root or lead nowhere."""
    first = root / "class 0" / "sample-000.txt"
    os.link(first, root / "class 1" / "hard")
    outside = root.parent / "outside.txt"
    outside.write_bytes(b"outside needle\n")
    links = {
        "inside": "class 0/sample-003.txt",
        "absolute": str(first),
        "leaving": str(outside),
        "dangling": "nothing/there",
        "folder": "class 2",
        "class 2/up": "../class 0/sample-006.txt",
    }
    for name, target in links.items():
        (root / name).symlink_to(target)
    os.mkfifo(root / "fifo")


def add_modes(root: Path) -> None:
    """Adds modes and, as root, owners."""
    for number, mode in enumerate((0o444, 0o600, 0o755, 0o4755, 0o2644, 0o640)):
        path = root / f"mode-{mode:o}"
        path.write_bytes(b"mode %o\n" % mode)
        if os.geteuid() == 0:
            os.chown(path, 1000 + number, 2000 + number)
        path.chmod(mode)


def add_attributes(root: Path) -> None:
    """Adds extended attributes and access control lists where the disk keeps them."""
    target = root / "attributes"
    target.write_bytes(b"with attributes\n")
    try:
        os.setxattr(target, "user.origin", b"\x00binary\xff")
        os.setxattr(root / "class 0", "user.folder", b"yes")
    except OSError:
        return
    if shutil.which("setfacl"):
        subprocess.run(["setfacl", "-m", "u:12345:r--", target], check=False)


def set_times(root: Path) -> None:
    """Sets a modification time of its own on every entry, with odd nanoseconds."""
    paths = [root, *root.rglob("*")]
    for number, path in enumerate(sorted(paths, reverse=True)):
        modified_ns = 1_600_000_000_123_456_789 + number * 1_000_000_007
        accessed_ns = path.lstat().st_ctime_ns + LATER_NS
        os.utime(path, ns=(accessed_ns, modified_ns), follow_symlinks=False)


def zero(root: Path) -> int:
    """Overwrites each regular file with zeros, times kept; returns their count."""
    paths = [p for p in root.rglob("*") if p.is_file() and not p.is_symlink()]
    for path in paths:
        found = path.stat()
        path.chmod(0o600)  # an ordinary user writes no file of mode 444
        with path.open("r+b") as file:
            file.write(bytes(found.st_size))
        path.chmod(stat.S_IMODE(found.st_mode))
        os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns))
    return len(paths)
