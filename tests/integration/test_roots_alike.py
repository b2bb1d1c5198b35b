"""Two datasets that agree in everything but their bytes, or share a file."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.programs import Runner

NAMES = [f"f{i}" for i in range(10)]
BYTES = 4096


def image(folder: Path, letter: str) -> Path:
    """A file system whose files hold one letter; all have the same inodes and times."""
    source, made = folder / f"source-{letter}", folder / f"{letter}.img"
    source.mkdir()
    for name in NAMES:
        (source / name).write_bytes(letter.encode() * BYTES)
    subprocess.run(["mkfs.ext4", "-q", "-d", source, made, "8M"], check=True)
    fields = ("mtime", "ctime", "atime", "mtime_extra", "ctime_extra")
    for name in NAMES:
        for field in fields:
            value = "0" if field.endswith("extra") else "@1700000000"
            change = f"set_inode_field {name} {field} {value}"
            subprocess.run(["debugfs", "-w", "-R", change, made], check=True)
    return made


@pytest.fixture
def twins(tmp_path: Path) -> Iterator[list[Path]]:
    """Two roots: same names, inodes, sizes and times, other bytes and devices."""
    missing = [tool for tool in ("mkfs.ext4", "debugfs") if not shutil.which(tool)]
    if missing:
        pytest.skip(f"not here: {', '.join(missing)}")
    roots = []
    try:
        for letter in "AB":
            root = tmp_path / f"root-{letter}"
            root.mkdir()
            made = str(image(tmp_path, letter))
            words = ["mount", "-o", "loop,ro", made, str(root)]
            done = subprocess.run(words, capture_output=True, text=True)
            if done.returncode:
                pytest.skip(f"no loop device: {done.stderr.strip()}")
            roots.append(root)
        yield roots
    finally:
        for root in roots:
            subprocess.run(["umount", root], check=True)


@pytest.mark.root
def test_replicas_of_two_roots_never_share_a_name(
    twins: list[Path], runner: Runner
) -> None:
    first, second = ((root / "f0").stat() for root in twins)
    assert first.st_ino == second.st_ino
    assert first.st_ctime_ns == second.st_ctime_ns
    a, b = twins
    # The third round finds the Replicas of the first two in the Tier.
    script = "".join(
        f"cut -c1 {a / name}; cut -c1 {b / name}; " for _ in range(3) for name in NAMES
    )
    done = runner.under_monarch(
        ["sh", "-c", script], roots=twins, options=["--set", "fill.enabled=false"]
    )

    assert done.succeed().stdout == b"A\nB\n" * (3 * len(NAMES))
    assert done.redirected_opens >= 6 * len(NAMES)


REOPEN = """
import os, sys
first, second = sys.argv[1:]
held = open(f"{first}/inner/file", "rb")
assert held.read() == b"old"
os.rename(f"{first}/inner", f"{first}/away")
with open(f"/proc/self/fd/{held.fileno()}", "r+b") as again:
    again.write(b"new")
print(open(f"{second}/same", "rb").read().decode())
"""


def test_file_of_two_roots_is_written_by_its_name_in_the_other(
    runner: Runner, tmp_path: Path
) -> None:
    """Both names are of one File, which belongs to the first root."""
    first, second = tmp_path / "first", tmp_path / "second"
    (first / "inner").mkdir(parents=True)
    second.mkdir()
    (first / "inner" / "file").write_bytes(b"old")
    os.link(first / "inner" / "file", second / "same")
    words = [sys.executable, "-c", REOPEN, str(first), str(second)]

    outcome = runner.under_monarch(words, roots=[first, second]).succeed()

    assert outcome.stdout == b"new\n"
    assert (second / "same").read_bytes() == b"new"


BY_ANOTHER_LINK = """
import os, sys
root, left, gone = sys.argv[1:]
fd = os.open(f"{root}/{left}", os.O_RDONLY)
assert os.readlink(f"/proc/self/fd/{fd}") != os.path.realpath(f"{root}/{left}")
os.rename(f"{root}/{gone}", f"{root}/moved")
os.fchmod(fd, 0o640)
with open(f"/proc/self/fd/{fd}", "w") as file:
    file.write("new")
print(oct(os.stat(f"{root}/{left}").st_mode & 0o777))
"""


@pytest.mark.parametrize(
    ("left", "gone"),
    [("a", "b"), ("b", "a"), ("b", "folder"), ("folder/file", "b")],
)
def test_file_outside_is_changed_by_the_link_that_still_leads_to_it(
    runner: Runner, tmp_path: Path, left: str, gone: str
) -> None:
    """The file has one name, which is in no dataset, and links lead to it."""
    root, store = tmp_path / "root", tmp_path / "store"
    root.mkdir()
    store.mkdir()
    (store / "file").write_bytes(b"old")
    (root / "b").symlink_to("../store/file")
    other = "../store/file" if "a" in (left, gone) else "../store"
    (root / ("a" if "a" in (left, gone) else "folder")).symlink_to(other)
    words = [sys.executable, "-c", BY_ANOTHER_LINK, str(root), left, gone]

    outcome = runner.under_monarch(words, roots=[root]).succeed()

    assert outcome.stdout == b"0o640\n"
    assert (store / "file").read_bytes() == b"new"
