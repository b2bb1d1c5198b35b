"""The limits that README's fine print tells: each sentence is what happens."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

Under = Callable[..., None]


def test_lost_name(under: Under) -> None:
    """a change by a descriptor whose file has lost its name fails with ESTALE"""
    under("""
fd = os.open(D + "/spare.bin", os.O_RDONLY)
assert tier(fd)
os.rename(D + "/sub/b.bin", D + "/spare.bin")
for change in (
    lambda: os.fchmod(fd, 0o600),
    lambda: os.truncate(f"/proc/self/fd/{fd}", 0),
    lambda: os.open(f"/dev/fd/{fd}", os.O_WRONLY | os.O_TRUNC),
):
    try:
        change()
    except OSError as error:
        assert error.errno == errno.ESTALE
    else:
        raise AssertionError
assert os.stat(D + "/spare.bin").st_size == 50_000
assert os.fstat(fd).st_nlink == 1
""")


def test_links_of_others(under: Under, tree: Path) -> None:
    """the link count of a file is that of the scan until it is written to"""
    os.link(tree / "spare.bin", tree.parent / "outside-link")
    under("""
plain = {**os.environ, "MONARCH_STAGING_DISABLE": "1"}
plain.pop("LD_PRELOAD")
end = ["rm", os.path.dirname(D) + "/outside-link"]
subprocess.run(end, env=plain, check=True)
assert os.stat(D + "/spare.bin").st_nlink == 2
""")


def test_holes(under: Under, tree: Path) -> None:
    """a Replica has no holes"""
    with open(tree / "spare.bin", "r+b") as file:
        file.truncate(1 << 20)
    under("""
fd = os.open(D + "/spare.bin", os.O_RDONLY)
assert tier(fd) and os.lseek(fd, 0, os.SEEK_HOLE) == 1 << 20
assert os.stat(D + "/spare.bin").st_blocks * 512 < 1 << 20
""")


def test_statx(under: Under) -> None:
    """statx tells the basic fields of a catalogued name, and no attributes of files"""
    under("""
raw = ctypes.create_string_buffer(256)
assert libc.statx(-100, (D + "/a.bin").encode(), 0, 0x7FF, raw) == 0
mask = int.from_bytes(raw[:4], "little")
attributes_mask = int.from_bytes(raw[56:64], "little")
assert mask == 0x7FF and attributes_mask == 0
""")


@pytest.mark.root
def test_noexec(
    tree: Path, run_root: Path, monarch_command: Path, tmp_path: Path
) -> None:
    """a tier that is mounted noexec lets no Replica be mapped for execution"""
    place = tmp_path / "noexec"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "noexec", "none", place], check=True)
    script = (
        "import mmap, os, sys\n"
        "fd = os.open(sys.argv[1], os.O_RDONLY)\n"
        "assert '/monarch-' in os.readlink(f'/proc/self/fd/{fd}')\n"
        "mmap.mmap(fd, 4096, prot=mmap.PROT_READ)\n"
        "try: mmap.mmap(fd, 4096, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_EXEC)\n"
        "except PermissionError: print('refused')\n"
    )
    try:
        run = [str(monarch_command), "run", "-q", "--data", str(tree)]
        run += ["--tier", f"ram:1MiB:{place}", "--set", "cold_open.mode=wait", "--"]
        command = [*run, sys.executable, "-c", script, str(tree / "a.bin")]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    finally:
        subprocess.run(["umount", "-l", place], check=True)

    assert done.stdout == "refused\n", done.stderr


def test_unseen_writes(under: Under) -> None:
    """what a program writes in which Monarch does not work is not seen"""
    under("""
assert redirected(D + "/spare.bin")
plain = {**os.environ, "MONARCH_STAGING_DISABLE": "1"}
plain.pop("LD_PRELOAD")
subprocess.run(["sh", "-c", f"printf new > '{D}/spare.bin'"], env=plain, check=True)
with open(D + "/spare.bin", "rb") as file:
    assert tier(file.fileno()) and file.read(3) == b"sss"
""")


def test_hops(under: Under, tree: Path) -> None:
    """a link that passes a name outside of the dataset is left to the origin"""
    (tree.parent / "hop").symlink_to(tree)
    (tree / "through").symlink_to("../hop/spare.bin")
    under("""
assert redirected(D + "/spare.bin") and redirected(D + "/inner")
assert not redirected(D + "/through")
""")
